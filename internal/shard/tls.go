package shard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

// secure sets how TLS is used. As with libpq, "require" checks the certificate if there is something to check it against.
func (a Access) secure(config *pgx.ConnConfig) error {
	config.TLSConfig, config.Fallbacks = nil, nil
	if a.SSLMode == "disable" {
		return nil
	}
	var err error
	config.TLSConfig, err = a.tlsConfig(config.Host)
	return err
}

func (a Access) tlsConfig(host string) (*tls.Config, error) {
	secured := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if a.RootCAFile != "" {
		pem, err := os.ReadFile(a.RootCAFile)
		if err != nil {
			return nil, fmt.Errorf("read the root certificates: %w", err)
		}
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the root certificates: %s has none in PEM form", a.RootCAFile)
		}
	}
	switch a.SSLMode {
	case "verify-full":
		return secured, nil
	case "verify-ca":
		secured.VerifyConnection = verifyChain(secured.RootCAs)
	case "require":
		if a.RootCAFile != "" {
			secured.VerifyConnection = verifyChain(secured.RootCAs)
		}
	}
	secured.InsecureSkipVerify = true // the library's own check includes the name, which these modes leave out
	return secured, nil
}

// verifyChain checks who signed the certificate and not whose it is.
func verifyChain(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the server has no certificate")
		}
		intermediates := x509.NewCertPool()
		for _, certificate := range state.PeerCertificates[1:] {
			intermediates.AddCert(certificate)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
		return err
	}
}
