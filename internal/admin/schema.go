package admin

import (
	"net/http"

	"github.com/cleavedb/cleave/internal/api"
)

func (s *Server) diffSchema(w http.ResponseWriter, r *http.Request) error {
	findings, err := s.config.Cluster.DiffSchema(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.FindingList{Findings: listOf(findings)})
}
