package admin

import (
	"net/http"

	"github.com/cleavedb/cleave/internal/api"
)

func (s *Server) getMoves(w http.ResponseWriter, r *http.Request) error {
	list, err := s.config.Cluster.Moves(r.Context())
	if err != nil {
		return err
	}
	list.Moves = listOf(list.Moves)
	return reply(w, http.StatusOK, list)
}

func (s *Server) getMove(w http.ResponseWriter, r *http.Request) error {
	move, err := s.config.Cluster.Move(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, move)
}

func (s *Server) startMoves(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.StartMove](r)
	if err != nil {
		return err
	}
	list, err := s.config.Cluster.StartMoves(r.Context(), request)
	if err != nil {
		return err
	}
	list.Moves = listOf(list.Moves)
	return reply(w, http.StatusAccepted, list)
}

func (s *Server) wishMove(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.WishMove](r)
	if err != nil {
		return err
	}
	move, err := s.config.Cluster.WishMove(r.Context(), r.PathValue("id"), request.Wish)
	if err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, move)
}

func (s *Server) throttleMove(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.MoveLimits](r)
	if err != nil {
		return err
	}
	move, err := s.config.Cluster.ThrottleMove(r.Context(), r.PathValue("id"), request)
	if err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, move)
}

func (s *Server) splitRanges(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.SplitRanges](r)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.SplitRanges(r.Context(), r.PathValue("name"), request)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, changed)
}

func (s *Server) mergeRanges(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.MergeRanges](r)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.MergeRanges(r.Context(), r.PathValue("name"), request)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, changed)
}
