package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/shard"
)

const (
	// sagasListed is how many sagas are listed if the caller does not say, maxSagas how many it may ask for.
	sagasListed = 100
	maxSagas    = 10_000
)

func (s *Server) getSagas(w http.ResponseWriter, r *http.Request) error {
	parameters := r.URL.Query()
	request := control.SagasRequest{State: parameters.Get("state"), Type: parameters.Get("type"), Limit: sagasListed}
	if request.State != "" && !slices.Contains(shard.SagaStates(), request.State) {
		return invalid("state " + quote(request.State) + " is none of " + strings.Join(shard.SagaStates(), ", "))
	}
	if parameters.Has("limit") {
		limit, err := strconv.Atoi(parameters.Get("limit"))
		if err != nil || limit < 1 || limit > maxSagas {
			return invalid("parameter limit must be a number from 1 to " + strconv.Itoa(maxSagas))
		}
		request.Limit = limit
	}
	list, err := s.config.Cluster.Sagas(r.Context(), request)
	if err != nil {
		return err
	}
	list.Sagas, list.Findings = listOf(list.Sagas), listOf(list.Findings)
	return reply(w, http.StatusOK, list)
}
