package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// identity is a certificate and its key.
type identity struct {
	certificate *x509.Certificate
	private     crypto.Signer
}

func newSigner(t testing.TB, algorithm x509.SignatureAlgorithm) crypto.Signer {
	t.Helper()
	switch algorithm {
	case x509.SHA256WithRSA, x509.SHA512WithRSA, x509.SHA384WithRSAPSS:
		return must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	case x509.PureEd25519:
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return must[ed25519.PrivateKey](t)(private, err)
	default:
		return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	}
}

// newIdentity makes a certificate that is signed this way: by the authority, or by itself if there is none.
func newIdentity(t testing.TB, name string, algorithm x509.SignatureAlgorithm, authority *identity) *identity {
	t.Helper()
	private := newSigner(t, algorithm)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: authority == nil, BasicConstraintsValid: true, SignatureAlgorithm: algorithm,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, private
	if authority != nil {
		parent, signer = authority.certificate, authority.private
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, parent, private.Public(), signer))
	return &identity{must[*x509.Certificate](t)(x509.ParseCertificate(der)), private}
}

func (i *identity) pem(t testing.TB) (certificate, private []byte) {
	t.Helper()
	key := must[[]byte](t)(x509.MarshalPKCS8PrivateKey(i.private))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
}

func (i *identity) forTLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{i.certificate.Raw}, PrivateKey: i.private}
}

// files are a certificate and its key in a folder.
type files struct{ certificate, private string }

func newFiles(t *testing.T, i *identity) files {
	t.Helper()
	dir := t.TempDir()
	f := files{filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")}
	f.replace(t, i)
	return f
}

func (f files) replace(t *testing.T, i *identity) {
	t.Helper()
	certificate, private := i.pem(t)
	replaceFile(t, f.certificate, string(certificate))
	replaceFile(t, f.private, string(private))
}

// handshake connects a client and a server, and returns what each sees. It takes a real connection: on a pipe without a
// buffer both may wait for the other to read.
func handshake(t *testing.T, server, client *tls.Config) (atServer, atClient tls.ConnectionState, err error) {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	clientEnd := must[net.Conn](t)(net.Dial("tcp", listener.Addr().String()))
	defer clientEnd.Close()
	serverEnd := must[net.Conn](t)(listener.Accept())
	defer serverEnd.Close()
	accepted, dialled := tls.Server(serverEnd, server), tls.Client(clientEnd, client)
	served := make(chan error, 1)
	go func() { served <- accepted.HandshakeContext(t.Context()) }()
	if err = dialled.HandshakeContext(t.Context()); err != nil {
		clientEnd.Close()
	}
	err = errors.Join(err, <-served)
	return accepted.ConnectionState(), dialled.ConnectionState(), err
}

func trusting(i *identity) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(i.certificate)
	return &tls.Config{RootCAs: roots, ServerName: "localhost"}
}

func TestBindingsFollowTheSignature(t *testing.T) {
	sum256 := func(b []byte) []byte { s := sha256.Sum256(b); return s[:] }
	sum384 := func(b []byte) []byte { s := sha512.Sum384(b); return s[:] }
	sum512 := func(b []byte) []byte { s := sha512.Sum512(b); return s[:] }
	for algorithm, sum := range map[x509.SignatureAlgorithm]func([]byte) []byte{
		x509.ECDSAWithSHA256: sum256, x509.ECDSAWithSHA384: sum384, x509.ECDSAWithSHA512: sum512, x509.SHA256WithRSA: sum256,
		x509.SHA512WithRSA: sum512, x509.SHA384WithRSAPSS: sum384, x509.PureEd25519: func([]byte) []byte { return nil },
	} {
		i := newIdentity(t, "server", algorithm, nil)
		f := newFiles(t, i)
		config, binding := must[*Certificates](t)(NewCertificates(f.certificate, f.private, "", nil)).TLSConfig()
		_, atClient, err := handshake(t, config, trusting(i))
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		if want := sum(i.certificate.Raw); !bytes.Equal(binding, want) || !bytes.Equal(PeerBinding(atClient), want) {
			t.Errorf("%s: bound to %x, and at the client to %x; want %x", algorithm, binding, PeerBinding(atClient), want)
		}
	}
	if PeerBinding(tls.ConnectionState{}) != nil {
		t.Error("a connection without certificates is bound")
	}
}

func TestCertificatesAreReadAnew(t *testing.T) {
	old, next := newIdentity(t, "old", x509.ECDSAWithSHA256, nil), newIdentity(t, "new", x509.ECDSAWithSHA384, nil)
	f := newFiles(t, old)
	var log bytes.Buffer
	certificates := must[*Certificates](t)(NewCertificates(f.certificate, f.private, "", slog.New(slog.NewTextHandler(&log, nil))))
	clock := newClock()
	certificates.shown.now = clock.now
	expect := func(when string, want *identity, logged int) {
		t.Helper()
		config, binding := certificates.TLSConfig()
		_, atClient, err := handshake(t, config, trusting(want))
		if err != nil || !bytes.Equal(binding, PeerBinding(atClient)) {
			t.Errorf("%s: %v, bound to %x", when, err, binding)
		}
		if lines := strings.Count(log.String(), "\n"); lines != logged {
			t.Errorf("%s: the log has %d lines: %s", when, lines, log.String())
		}
	}
	clock.pass(lookInterval)
	expect("at first", old, 0)
	config, binding := certificates.TLSConfig() // of a connection that came before the change, and shakes hands after it
	certificate, private := next.pem(t)
	replaceFile(t, f.certificate, string(certificate))
	expect("within a second", old, 0)
	clock.pass(lookInterval)
	expect("half of a pair", old, 1)
	clock.pass(lookInterval)
	expect("still half of a pair", old, 1)
	replaceFile(t, f.private, string(private))
	clock.pass(lookInterval)
	expect("both", next, 1)
	_, atClient, err := handshake(t, config, trusting(old))
	if err != nil || !bytes.Equal(binding, PeerBinding(atClient)) {
		t.Errorf("the connection that came before the change: %v", err)
	}
	if strings.Contains(log.String(), "PRIVATE") {
		t.Error("the log holds the key")
	}
}

func TestClientsCertificates(t *testing.T) {
	server, authority := newIdentity(t, "server", x509.ECDSAWithSHA256, nil), newIdentity(t, "authority", x509.ECDSAWithSHA256, nil)
	f := newFiles(t, server)
	authorities := newFiles(t, authority).certificate
	with := must[*Certificates](t)(NewCertificates(f.certificate, f.private, authorities, nil))
	without := must[*Certificates](t)(NewCertificates(f.certificate, f.private, "", nil))
	ours, stranger := newIdentity(t, "alice", x509.ECDSAWithSHA256, authority), newIdentity(t, "alice", x509.ECDSAWithSHA256, nil)
	for name, c := range map[string]struct {
		certificates *Certificates
		shown        *identity
		want         string
		fails        bool
	}{
		"none": {with, nil, "", false}, "ours": {with, ours, "alice", false}, "stranger": {with, stranger, "", true}, "nobody asks": {without, ours, "", false},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			client := trusting(server)
			client.MaxVersion, client.MinVersion = version, version
			if c.shown != nil {
				shown := c.shown.forTLS()
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
			}
			config, _ := c.certificates.TLSConfig()
			state, _, err := handshake(t, config, client)
			if (err != nil) != c.fails || CommonName(state) != c.want {
				t.Errorf("%s: %q, %v", name, CommonName(state), err)
			}
		}
	}
	if name := CommonName(tls.ConnectionState{PeerCertificates: []*x509.Certificate{ours.certificate}}); name != "" {
		t.Errorf("a certificate that nobody has verified names %q", name)
	}
}

func TestWhatTLSRefuses(t *testing.T) {
	server := newIdentity(t, "server", x509.ECDSAWithSHA256, nil)
	f := newFiles(t, server)
	config, _ := must[*Certificates](t)(NewCertificates(f.certificate, f.private, "", nil)).TLSConfig()
	old, misled, right := trusting(server), trusting(server), trusting(server)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	misled.NextProtos, right.NextProtos = []string{"http/1.1"}, []string{protocol}
	for name, client := range map[string]*tls.Config{"TLS 1.1": old, "another protocol": misled} {
		if _, _, err := handshake(t, config, client); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if state, _, err := handshake(t, config, right); err != nil || state.NegotiatedProtocol != protocol {
		t.Errorf("a client that names the protocol: %q, %v", state.NegotiatedProtocol, err)
	}
	other := newFiles(t, newIdentity(t, "other", x509.ECDSAWithSHA256, nil))
	empty := filepath.Join(t.TempDir(), "empty")
	replaceFile(t, empty, "nothing")
	for name, paths := range map[string][3]string{
		"no file": {"/nowhere", f.private, ""}, "another key": {f.certificate, other.private, ""}, "no authorities": {f.certificate, f.private, "/nowhere"},
		"empty authorities": {f.certificate, f.private, empty},
	} {
		if _, err := NewCertificates(paths[0], paths[1], paths[2], nil); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}
