package admin

import (
	"net/http"

	"github.com/cleavedb/cleave/internal/api"
)

func (s *Server) getTransactions(w http.ResponseWriter, r *http.Request) error {
	list, err := s.config.Cluster.Transactions(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, list)
}

func (s *Server) resolveTransaction(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.ResolveTransaction](r)
	if err != nil {
		return err
	}
	done, err := s.config.Cluster.ResolveTransaction(r.Context(), request.ID, request.How)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.TransactionResolved{Message: done})
}
