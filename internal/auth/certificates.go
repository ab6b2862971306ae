package auth

import (
	"crypto"
	_ "crypto/sha512" // for the binding of certificates that are signed with it
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
)

// Certificates are what the router shows to clients that ask for TLS, and what it checks theirs against. Files that have
// changed are read anew; if they are broken the old ones stay, and the log says so once.
type Certificates struct{ shown *reloaded[shown] }

// shown is what one reading of the files gave.
type shown struct {
	config  *tls.Config
	binding []byte
}

// NewCertificates reads a certificate with its chain, its key, and the authorities of clients' certificates, all in PEM.
// Without the last, clients are not asked for certificates. The logger may be nil.
func NewCertificates(certFile, keyFile, clientCAFile string, logger *slog.Logger) (*Certificates, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	paths := []string{certFile, keyFile}
	if clientCAFile != "" {
		paths = append(paths, clientCAFile)
	}
	read := func() (shown, error) { return readCertificates(certFile, keyFile, clientCAFile) }
	warn := func(err error) {
		logger.Error("certificates have changed and cannot be used; the old ones stay", "error", err)
	}
	current, err := newReloaded(paths, read, warn)
	if err != nil {
		return nil, err
	}
	return &Certificates{current}, nil
}

// TLSConfig returns what to accept one connection with, and the binding of the certificate that this connection then
// shows, for [NewServer]; it is nil for a certificate that has none. It is for one connection because the next may
// show another certificate. The configuration must not be changed.
func (c *Certificates) TLSConfig() (config *tls.Config, binding []byte) {
	current := c.shown.current()
	return current.config, current.binding
}

// protocol is what a client names that speaks PostgreSQL: one that names other protocols only has been misled to us.
const protocol = "postgresql"

func readCertificates(certFile, keyFile, clientCAFile string) (shown, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return shown{}, fmt.Errorf("read the certificate %s and its key: %w", certFile, err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{protocol},
		// A resumed connection shows no certificate, so it could be bound to one that has been replaced.
		SessionTicketsDisabled: true,
	}
	if clientCAFile != "" {
		config.ClientAuth = tls.VerifyClientCertIfGiven
		if config.ClientCAs, err = readAuthorities(clientCAFile); err != nil {
			return shown{}, err
		}
	}
	return shown{config: config, binding: certificateBinding(pair.Leaf)}, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of clients' certificates: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, errors.New("read the authorities of clients' certificates: " + path + " has none in PEM form")
	}
	return authorities, nil
}

// PeerBinding returns the binding of the certificate that the server at the other end has shown, for [NewClient]; nil if
// it has none.
func PeerBinding(state tls.ConnectionState) []byte {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	return certificateBinding(state.PeerCertificates[0])
}

// certificateBinding hashes a certificate with the hash of its signature, or a better one (RFC 5929). Signatures that
// have no hash of their own, such as Ed25519's, have no binding.
func certificateBinding(certificate *x509.Certificate) []byte {
	var function crypto.Hash
	switch certificate.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.SHA256WithRSA, x509.SHA256WithRSAPSS, x509.ECDSAWithSHA256:
		function = crypto.SHA256
	case x509.SHA384WithRSA, x509.SHA384WithRSAPSS, x509.ECDSAWithSHA384:
		function = crypto.SHA384
	case x509.SHA512WithRSA, x509.SHA512WithRSAPSS, x509.ECDSAWithSHA512:
		function = crypto.SHA512
	default:
		return nil
	}
	h := function.New()
	h.Write(certificate.Raw)
	return h.Sum(nil)
}

// CommonName returns the common name of the client's certificate; "" if it has shown none that an authority of ours has
// signed.
func CommonName(state tls.ConnectionState) string {
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return ""
	}
	return state.PeerCertificates[0].Subject.CommonName
}
