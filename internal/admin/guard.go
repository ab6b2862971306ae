package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
)

// guard decides whether a request may go on. Against strangers there is the token. Without one the server is meant for
// this machine, where the danger is a web page in somebody's browser:
//
//   - one that has its own name resolve to this machine and then counts as the same origin: its Host header gives it away;
//   - one that sends a form or a fetch without asking: browsers mark those by Origin or Sec-Fetch-Site, and cannot send JSON
//     across origins unasked.
func (s *Server) guard(r route, request *http.Request) error {
	if r.open {
		return nil
	}
	if s.config.Token != "" {
		if !s.hasToken(request) {
			return unauthenticated()
		}
	} else if !isThisMachine(request.Host) {
		return refuse(http.StatusForbidden, api.CodeForbidden, "the server is not known as "+quote(request.Host)).
			withHint("Call it by address or as localhost, or set a token.")
	}
	if err := s.origins.Check(request); err != nil {
		return refuse(http.StatusForbidden, api.CodeForbidden, "changes are not taken from web pages of other origins")
	}
	return checkContentType(r, request)
}

// hasToken compares digests, so that neither the time nor the length tells anything of the token.
func (s *Server) hasToken(request *http.Request) bool {
	scheme, given, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	digest := sha256.Sum256([]byte(strings.TrimSpace(given)))
	return subtle.ConstantTimeCompare(digest[:], s.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// isThisMachine tells whether the name in the Host header can only have come from somebody who means this server: a plain
// address, which no resolver can have bent, or localhost.
func isThisMachine(host string) bool {
	name := host
	if split, _, err := net.SplitHostPort(host); err == nil {
		name = split
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// checkContentType asks for JSON wherever a body is taken.
func checkContentType(r route, request *http.Request) error {
	if r.limit == 0 {
		return nil
	}
	given := request.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(given); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, api.CodeMediaType, "the request is not marked as JSON").
			withHint("Send the header Content-Type: application/json.")
	}
	return nil
}
