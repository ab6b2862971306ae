package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/secret"
)

// defaultAPI is where a cluster on this machine answers, unless it was told otherwise.
const defaultAPI = api.DefaultAddress

// Environment of the commands that ask a cluster.
const (
	addressVariable = "CLEAVE_API"
	tokenVariable   = "CLEAVE_API_TOKEN"
)

// connection says which cluster a command asks, and how.
type connection struct {
	address   string
	tokenFile string
	caFile    string
}

// flags adds what says where the cluster is, for a command and those below it.
func (c *connection) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.address, "api", "", "where the cluster's HTTP API is (default $"+addressVariable+", else "+defaultAPI+")")
	cmd.PersistentFlags().StringVar(&c.tokenFile, "api-token-file", "", "file with the token to send (default: the token in $"+tokenVariable+")")
	cmd.PersistentFlags().StringVar(&c.caFile, "api-ca", "", "certificates that the API's must be signed by (default: the system's)")
	_ = cmd.MarkPersistentFlagFilename("api-token-file")
	_ = cmd.MarkPersistentFlagFilename("api-ca")
}

// client makes the client that the flags and the environment ask for.
func (c *connection) client() (*api.Client, error) {
	address, err := c.baseURL()
	if err != nil {
		return nil, err
	}
	token, err := c.token()
	if err != nil {
		return nil, err
	}
	if token != "" && inTheClear(address) {
		return nil, wrongInputf("the token would be sent in the clear to %s: use https, as in --api https://host:8432", address)
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	return &api.Client{BaseURL: address, Token: token, HTTP: &http.Client{Transport: transport, CheckRedirect: stayHere}}, nil
}

// inTheClear tells whether others could read what is sent to the address.
func inTheClear(address string) bool {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "http" {
		return false
	}
	host := strings.ToLower(parsed.Hostname())
	ip, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !ip.IsLoopback())
}

// stayHere follows nobody elsewhere: the API never sends anybody away, and the token is for it alone.
func stayHere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *connection) baseURL() (string, error) {
	address, from := c.address, "--api"
	if address == "" {
		address, from = os.Getenv(addressVariable), addressVariable
	}
	if address == "" {
		return defaultAPI, nil
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return "", wrongInputf("%s %q is not an address: write one such as %s", from, address, defaultAPI)
	}
	return address, nil
}

func (c *connection) token() (string, error) {
	if c.tokenFile == "" {
		return os.Getenv(tokenVariable), nil
	}
	path, err := filepath.Abs(c.tokenFile)
	if err != nil {
		return "", wrongInput(err)
	}
	token, err := secret.Reference{File: path}.Resolve()
	if err != nil {
		return "", wrongInput(fmt.Errorf("--api-token-file: %w", err))
	}
	return token, nil
}

// transport keeps no connections: a command asks once or twice, then ends.
func (c *connection) transport() (*http.Transport, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second}
	if c.caFile == "" {
		return transport, nil
	}
	content, err := os.ReadFile(c.caFile)
	if err != nil {
		return nil, wrongInput(fmt.Errorf("--api-ca: %w", err))
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, wrongInputf("--api-ca: %s holds no certificates in PEM form", c.caFile)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// ask runs one call of the API, and says what is being done if that takes long.
func ask[T any](cmd *cobra.Command, c *connection, doing string, call func(context.Context, *api.Client) (T, error)) (T, error) {
	var answer T
	client, err := c.client()
	if err != nil {
		return answer, err
	}
	err = showing(cmd, doing, func() (err error) {
		answer, err = call(cmd.Context(), client)
		return err
	})
	return answer, callFailed(err)
}

// showing runs work and meanwhile tells somebody at a terminal what takes so long.
func showing(cmd *cobra.Command, doing string, work func() error) error {
	shown := newProgress(cmd)
	ended := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		started := time.Now()
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				shown.step("%s … %d s", doing, int(time.Since(started).Seconds()))
			case <-ended:
				shown.done()
				return
			}
		}
	})
	err := work()
	close(ended)
	ticking.Wait()
	return err
}

// callFailed says what a failed call means for who typed the command.
func callFailed(err error) error {
	var unreachable *api.UnreachableError
	var refused *api.RequestError
	switch {
	case errors.As(err, &unreachable) && errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no cluster answers at %s: start one with `cleave dev`, or name it with --api", unreachable.BaseURL)
	case errors.As(err, &refused) && refused.Answer.Code == api.CodeInvalid && len(refused.Answer.Findings) == 0:
		// Wrong input is one line, wherever it was found out.
		return wrongInput(errors.New(sentences(refused.Error(), refused.Answer.Hint)))
	}
	return err
}

// detailedError is a refusal of the command's own with more to say than one line holds.
type detailedError struct {
	error
	lines []string
}

func (e *detailedError) Unwrap() error { return e.error }

// explain prints what an error has to say beyond its one line: what was found, and what to do.
func explain(w io.Writer, err error) {
	var detailed *detailedError
	if errors.As(err, &detailed) {
		for _, line := range detailed.lines {
			fmt.Fprintln(w, " ", flat(line))
		}
	}
	var refused *api.RequestError
	if !errors.As(err, &refused) {
		return
	}
	for _, finding := range refused.Answer.Findings {
		fmt.Fprintln(w, findingLine(finding))
	}
	if refused.Answer.Hint != "" {
		fmt.Fprintln(w, "  hint:", flat(refused.Answer.Hint))
	}
}

// findingLine is a finding and its hint as one line.
func findingLine(f api.Finding) string {
	return fmt.Sprintf("  %s: %s", f.Severity, sentences(f.Message, f.Hint))
}

// sentences puts a message and its hint, if there is one, into one line.
func sentences(message, hint string) string {
	if hint == "" {
		return flat(message)
	}
	return flat(message) + ". " + flat(hint)
}

// flat makes one line of a text, whatever is in it.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// warn prints warnings that came with an answer.
func warn(cmd *cobra.Command, findings []api.Finding) {
	for _, finding := range findings {
		fmt.Fprintln(cmd.ErrOrStderr(), "cleave:"+strings.TrimPrefix(findingLine(finding), " "))
	}
}

// needs asks for arguments, one for each of the words.
func needs(words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(words) {
			return wrongInputf("write '%s %s', not %d arguments", cmd.CommandPath(), strings.Join(words, " "), len(args))
		}
		return nil
	}
}

// nameForm is the form that topology asks of the names of shards and keyspaces.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// checkName refuses what cannot be the name of a shard or keyspace before it becomes a part of an address.
func checkName(kind, name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return wrongInputf("%q is no name of a %s: it has up to 63 lower-case letters, digits, '-', '_' and '.', with a letter or digit at both ends", name, kind)
}

// needsName asks for arguments, the first of which is a name.
func needsName(kind string, words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := needs(words...)(cmd, args); err != nil {
			return err
		}
		return checkName(kind, args[0])
	}
}
