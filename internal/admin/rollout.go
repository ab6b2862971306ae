package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
)

func (s *Server) getRollouts(w http.ResponseWriter, r *http.Request) error {
	rollouts, err := s.config.Cluster.Rollouts(r.Context())
	if err != nil {
		return err
	}
	list := api.RolloutList{Rollouts: []api.Rollout{}}
	for _, rollout := range rollouts {
		list.Rollouts = append(list.Rollouts, api.DescribeRollout(rollout))
	}
	return reply(w, http.StatusOK, list)
}

func (s *Server) beginRollout(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.BeginRollout](r)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.BeginRollout(r.Context(), control.RolloutBegin{
		Name: request.Name, Change: request.Change, Undo: request.Undo, Shards: request.Shards, SearchPath: request.SearchPath,
	})
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/schema/rollouts/"+url.PathEscape(changed.Rollout.Name))
	return reply(w, http.StatusCreated, changed)
}

func (s *Server) nextRollout(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.StepRollout](r)
	if err != nil {
		return err
	}
	return s.stepRollout(w, r, request.Shard, s.config.Cluster.NextRollout)
}

func (s *Server) finishRollout(w http.ResponseWriter, r *http.Request) error {
	if _, err := decode[struct{}](r); err != nil {
		return err
	}
	return s.stepRollout(w, r, "", s.config.Cluster.FinishRollout)
}

func (s *Server) undoRollout(w http.ResponseWriter, r *http.Request) error {
	if _, err := decode[struct{}](r); err != nil {
		return err
	}
	return s.stepRollout(w, r, "", s.config.Cluster.UndoRollout)
}

// stepRollout is asked by an operator, who may go on with any roll-out.
func (s *Server) stepRollout(w http.ResponseWriter, r *http.Request, shard string, step func(context.Context, control.RolloutStep) (api.RolloutChanged, error)) error {
	changed, err := step(r.Context(), control.RolloutStep{Name: r.PathValue("name"), Shard: shard})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, changed)
}
