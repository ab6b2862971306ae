package admin

import (
	"net/http"

	"github.com/cleavedb/cleave/internal/api"
)

func (s *Server) planRebalance(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.PlanRebalance](r)
	if err != nil {
		return err
	}
	plan, err := s.config.Cluster.PlanRebalance(r.Context(), request)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, plan)
}

func (s *Server) applyRebalance(w http.ResponseWriter, r *http.Request) error {
	if _, err := decode[struct{}](r); err != nil {
		return err
	}
	list, err := s.config.Cluster.ApplyRebalance(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	list.Moves = listOf(list.Moves)
	return reply(w, http.StatusAccepted, list)
}

func (s *Server) getAutomation(w http.ResponseWriter, r *http.Request) error {
	automation, err := s.config.Cluster.Automation(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, automation)
}

func (s *Server) updateAutomation(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.UpdateAutomation](r)
	if err != nil {
		return err
	}
	automation, err := s.config.Cluster.UpdateAutomation(r.Context(), request)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, automation)
}
