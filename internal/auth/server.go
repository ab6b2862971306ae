package auth

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Server is the exchange with one client that logs in: First, then Final, each once.
type Server struct {
	user     string
	verifier *Verifier
	binding  []byte
	nonce    string // ours, which is added to the client's

	stage       stage
	header      string // how the client's first message began
	bothNonces  string
	firstToSign string // the client's first message and our answer
}

// stage is what an exchange waits for.
type stage int

const (
	awaitsFirst stage = iota
	awaitsFinal
	ended
)

// NewServer returns an exchange that ends well for whoever knows the verifier's password. The binding is what
// [Certificates.TLSConfig] gave for the connection, nil without TLS.
func NewServer(user string, v *Verifier, binding []byte) *Server {
	return &Server{user: user, verifier: v, binding: binding, nonce: newNonce()}
}

// Mechanisms returns what to offer to the client, the best first.
func (s *Server) Mechanisms() []string {
	if s.binding == nil {
		return []string{mechanismPlain}
	}
	return []string{mechanismPlus, mechanismPlain}
}

// First takes the mechanism that the client has chosen and its first message. Errors are [pgerr.Error], and the end.
func (s *Server) First(mechanism string, message []byte) (reply []byte, err error) {
	if s.stage != awaitsFirst {
		return nil, malformed("it comes out of turn")
	}
	s.stage = ended
	if !slices.Contains(s.Mechanisms(), mechanism) {
		return nil, pgerr.Fatal(pgerr.ProtocolViolation, "client selected an invalid SASL authentication mechanism")
	}
	first, err := parseClientFirst(message)
	if err != nil {
		return nil, refusal(err)
	}
	if s.header, err = s.checkFlag(mechanism, first.flag); err != nil {
		return nil, err
	}
	s.bothNonces = first.nonce + s.nonce
	answer := fmt.Sprintf("r=%s,s=%s,i=%d", s.bothNonces, encode(s.verifier.Salt), s.verifier.Iterations)
	s.firstToSign = first.bare + "," + answer
	s.stage = awaitsFinal
	return []byte(answer), nil
}

// checkFlag holds what the client says of channel binding against what it was offered, so that nobody in between can
// talk the two out of it, and returns the header that it must repeat at the end.
func (s *Server) checkFlag(mechanism, flag string) (header string, err error) {
	kind, bound := strings.CutPrefix(flag, "p=")
	switch {
	case bound && mechanism != mechanismPlus:
		return "", malformed("the client has chosen a mechanism without channel binding, and its message has one")
	case bound && kind != bindingType:
		return "", pgerr.Fatal(pgerr.ProtocolViolation, "unsupported SCRAM channel-binding type")
	case bound:
		return headerBound, nil
	case flag != "n" && flag != "y":
		return "", malformed("it begins with an unknown flag")
	case mechanism == mechanismPlus:
		return "", malformed("the client has chosen a mechanism with channel binding, and its message has none")
	case flag == "n":
		return headerNone, nil
	case s.binding != nil:
		return "", pgerr.Fatal(pgerr.InvalidAuthorization, "SCRAM channel binding negotiation error").
			WithDetail("The client was told that there is no channel binding, but it was offered: somebody in between may have changed the offer.")
	}
	return headerUnoffered, nil
}

// Final takes the client's proof. If it is right, the reply proves to the client that we know its verifier, and the keys
// let the router log in to shards as this user. Errors are [pgerr.Error], and the end.
func (s *Server) Final(message []byte) (reply []byte, keys *Keys, err error) {
	if s.stage != awaitsFinal {
		return nil, nil, malformed("it comes out of turn")
	}
	s.stage = ended
	final, err := parseClientFinal(message)
	if err != nil {
		return nil, nil, refusal(err)
	}
	if err := s.checkBinding(final.binding); err != nil {
		return nil, nil, err
	}
	if final.nonce != s.bothNonces {
		return nil, nil, pgerr.Fatal(pgerr.ProtocolViolation, "invalid SCRAM response").WithDetail("The nonce is not the one that was agreed on.")
	}
	toSign := s.firstToSign + "," + final.withoutProof
	clientKey := xor(final.proof, mac(s.verifier.StoredKey, toSign))
	right := hmac.Equal(hash(clientKey), s.verifier.StoredKey)
	if !right || s.verifier.mock {
		return nil, nil, PasswordFailed(s.user)
	}
	keys = &Keys{Iterations: s.verifier.Iterations, Salt: s.verifier.Salt, ClientKey: clientKey, ServerKey: s.verifier.ServerKey}
	return []byte("v=" + encode(mac(s.verifier.ServerKey, toSign))), keys, nil
}

// checkBinding asks whether the client sees the certificate that we showed.
func (s *Server) checkBinding(sent string) error {
	if s.header == headerBound {
		if want := encode(append([]byte(headerBound), s.binding...)); !hmac.Equal([]byte(sent), []byte(want)) {
			return pgerr.Fatal(pgerr.InvalidAuthorization, "SCRAM channel binding check failed").
				WithDetail("The client sees another certificate than the one that was shown: somebody in between may be reading along.")
		}
		return nil
	}
	if sent != encode([]byte(s.header)) {
		return pgerr.Fatal(pgerr.ProtocolViolation, "unexpected SCRAM channel-binding attribute in client-final-message")
	}
	return nil
}

func malformed(reason string) *pgerr.Error {
	return pgerr.Fatal(pgerr.ProtocolViolation, "malformed SCRAM message").WithDetail("Of the client's message: %s.", reason)
}

// refusal turns an error of the parser into the client's.
func refusal(err error) *pgerr.Error {
	if errors.Is(err, errExtension) || errors.Is(err, errIdentity) {
		return pgerr.Fatal(pgerr.FeatureNotSupported, "%s", err)
	}
	return malformed(err.Error())
}
