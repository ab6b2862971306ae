package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/secret"
)

// variablePrefix begins the names of all environment variables of Cleave.
const variablePrefix = "CLEAVE_"

// otherVariables are read elsewhere and are no fields.
var otherVariables = []string{
	"CLEAVE_API", "CLEAVE_API_TOKEN", // the client commands: where the HTTP API is
	"CLEAVE_PG_BIN",           // where the PostgreSQL binaries of a local cluster are
	"CLEAVE_REQUIRE_POSTGRES", // tests
}

// serviceVariable matches what Kubernetes puts into every container for a service that is called cleave or cleave-….
var serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// variableOf derives the name of a field's variable from its path.
func variableOf(path string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// readEnvironment applies the variables that are fields. An empty one counts as not set.
func (c *Config) readEnvironment(environ []string) Problems {
	var problems Problems
	var unknown []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, variablePrefix) || value == "" {
			continue
		}
		e, ok := schema.variable(name)
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		if err := setVariable(e.in(c), name, value); err != nil {
			problems.add(name, e.Path, "%v", err)
			continue
		}
		c.origins[e.Path] = Origin{FromEnvironment, name}
	}
	c.warnOfVariables(unknown)
	return problems
}

// setVariable puts a variable's value into a field. The variable of a secret may hold the secret itself, as people expect
// of a variable called PASSWORD: then the reference is to that very variable.
func setVariable(field any, name, value string) error {
	reference, isSecret := field.(*secret.Reference)
	if isSecret && !strings.HasPrefix(value, "file:") && !strings.HasPrefix(value, "env:") {
		*reference = secret.Reference{Env: name}
		return nil
	}
	return setText(field, value)
}

// warnOfVariables notes the variables that look as if they should do something and do nothing.
func (c *Config) warnOfVariables(unknown []string) {
	slices.Sort(unknown)
	secrets := c.secretVariables()
	for _, name := range unknown {
		if slices.Contains(otherVariables, name) || slices.Contains(secrets, name) || serviceVariable.MatchString(name) {
			continue
		}
		c.warnings = append(c.warnings, fmt.Sprintf("environment variable %s sets nothing%s", name, suggestVariable(name)))
	}
}

// secretVariables are those that hold a secret which the configuration refers to.
func (c *Config) secretVariables() []string {
	var names []string
	for _, reference := range c.secrets() {
		names = append(names, reference.Env)
	}
	return names
}

// suggestVariable is the end of a sentence about a variable that is none of ours.
func suggestVariable(unknown string) string {
	var names []string
	for _, f := range Fields() {
		names = append(names, f.Env)
	}
	if name, ok := nearest(unknown, names); ok {
		return fmt.Sprintf(": did you mean %s?", name)
	}
	return ": docs/configuration.md lists those that do"
}
