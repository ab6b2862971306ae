package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/auth"
)

func newAuth() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Make what a router keeps of its users' passwords",
		Long: `What concerns the users of a cluster: who may log in to the router is in auth.rules of its
configuration, and what it keeps of their passwords in auth.users_file or on the shards.`,
		Example: "  cleave auth verifier",
		Args:    cobra.ArbitraryArgs,
		RunE:    helpOrUnknown,
	}
	cmd.AddCommand(newAuthVerifier())
	return cmd
}

func newAuthVerifier() *cobra.Command {
	var user string
	var iterations int
	cmd := &cobra.Command{
		Use:   "verifier",
		Short: "Make a SCRAM verifier of a password",
		Long: `Read a password and print its SCRAM-SHA-256 verifier: enough to check the password, not enough to
log in with. PostgreSQL takes it as it is: ALTER ROLE alice PASSWORD 'SCRAM-SHA-256$4096:...'. With
--user it is a line for auth.users_file. A router logs in to the shards as the user only if all of
them have the very same verifier, so make one and use it everywhere.

The password is asked for twice on a terminal, without showing it; otherwise it is the first line of
standard input. It is never an argument, which other users of the machine could see.`,
		Example: `  cleave auth verifier
  cleave auth verifier --user alice >> /etc/cleave/users.txt
  cleave auth verifier --iterations 20000 < password-file`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 { // without repeating it
				return wrongInputf("the password is no argument, for others could see it: it is asked for, or read from standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return printVerifier(cmd, user, iterations) },
	}
	cmd.Flags().StringVar(&user, "user", "", "print a line for auth.users_file, for this user")
	cmd.Flags().IntVar(&iterations, "iterations", auth.DefaultIterations, "how often the password is hashed: more makes guessing slower, and every login too")
	return cmd
}

func printVerifier(cmd *cobra.Command, user string, iterations int) error {
	if iterations < 1 {
		return wrongInputf("--iterations %d: use at least 1; %d is PostgreSQL's own", iterations, auth.DefaultIterations)
	}
	if strings.ContainsAny(user, "\r\n\x00") || !utf8.ValidString(user) {
		return wrongInputf("--user %q: a user's name is UTF-8, in one line", user)
	}
	password, err := readPassword(cmd)
	if err != nil {
		return err
	}
	verifier, err := auth.NewVerifier(password, iterations)
	if err != nil {
		return wrongInput(err)
	}
	line := verifier.String()
	if user != "" {
		line = fmt.Sprintf(`"%s" "%s"`, strings.ReplaceAll(user, `"`, `""`), verifier)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), line)
	return err
}

// readPassword asks a person twice, and takes anything else at its word.
func readPassword(cmd *cobra.Command) (string, error) {
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !canSilence(in) {
		return readLine(bufio.NewReader(cmd.InOrStdin()))
	}
	var answers [2]string
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(cmd.ErrOrStderr(), prompt)
		err := withoutEcho(in, func() (err error) {
			answers[i], err = readLine(in)
			return err
		})
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", err
		}
	}
	if answers[0] != answers[1] {
		return "", wrongInputf("the two are not the same")
	}
	return answers[0], nil
}

// longestPassword is far above what anybody types, and what clients send.
const longestPassword = 4096

// readLine reads up to a line break, byte by byte: what follows it is not ours.
func readLine(in io.Reader) (string, error) {
	var line strings.Builder
	for one := make([]byte, 1); line.Len() <= longestPassword; {
		n, err := in.Read(one)
		switch {
		case n == 1 && one[0] == '\n', errors.Is(err, io.EOF):
			return strings.TrimSuffix(line.String(), "\r"), nil
		case n == 1:
			line.WriteByte(one[0])
		case err != nil:
			return "", fmt.Errorf("read the password: %w", err)
		}
	}
	return "", wrongInputf("the password has more than %d bytes", longestPassword)
}
