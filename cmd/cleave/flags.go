package main

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// The errors of the flag library, by what they can tell.
type (
	// wrongValue is a flag with a value that cannot be read.
	wrongValue interface {
		error
		GetValue() string
		Unwrap() error
	}
	// unknownShort is a flag of one letter that does not exist, with all that stood behind its dash.
	unknownShort interface {
		error
		GetSpecifiedShortnames() string
	}
)

// flagName finds the name in the message of a wrongValue.
var flagName = regexp.MustCompile(`for "(?:-., )?--([^"]+)" flag: `)

// wrongFlag says in our words what is wrong with a flag.
func wrongFlag(cmd *cobra.Command, err error) error {
	var wrong wrongValue
	if !errors.As(err, &wrong) {
		return wrongInput(err)
	}
	found := flagName.FindStringSubmatch(err.Error())
	if found == nil || cmd.Flag(found[1]) == nil {
		return wrongInput(err)
	}
	var want string
	switch kind := cmd.Flag(found[1]).Value.Type(); {
	case strings.HasPrefix(kind, "int") && errors.Is(wrong.Unwrap(), strconv.ErrRange):
		want = "a number up to " + strconv.Itoa(math.MaxInt)
	case strings.HasPrefix(kind, "int"):
		want = "a whole number"
	case kind == "float64":
		want = "a number"
	default:
		return wrongInput(err)
	}
	return wrongInputf("--%s %q is not %s", found[1], wrong.GetValue(), want)
}

// negative returns the number that was taken for a flag because of its sign, as in -1.
func negative(err error) (text string, is bool) {
	var short unknownShort
	if !errors.As(err, &short) {
		return "", false
	}
	text = "-" + short.GetSpecifiedShortnames()
	_, err = strconv.ParseFloat(text, 64)
	return text, err == nil
}
