package control

import (
	"fmt"

	"github.com/cleavedb/cleave/internal/api"
)

// InvalidError says that what was asked makes no sense, whatever the state of the cluster.
type InvalidError struct{ Message, Hint string }

func (e *InvalidError) Error() string { return e.Message }

func invalidf(format string, args ...any) error {
	return &InvalidError{Message: fmt.Sprintf(format, args...)}
}

// RefusedError says that something was looked at and cannot be used as it is.
type RefusedError struct {
	Message  string
	Findings []api.Finding
}

func (e *RefusedError) Error() string { return e.Message }

// problems returns the findings that stand in the way.
func problems(findings []api.Finding) []api.Finding {
	var found []api.Finding
	for _, f := range findings {
		if f.Severity == api.Problem {
			found = append(found, f)
		}
	}
	return found
}

// refuse returns an error if one of the findings stands in the way.
func refuse(findings []api.Finding, format string, args ...any) error {
	if len(problems(findings)) == 0 {
		return nil
	}
	return &RefusedError{Message: fmt.Sprintf(format, args...), Findings: findings}
}
