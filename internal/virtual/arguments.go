package virtual

import (
	"math"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// form is what an argument must look like.
type form[T any] struct {
	read func(text string) (T, bool)
	// is says what a text is that does not, and hint what to write.
	is, hint string
}

var (
	aTruth  = form[bool]{parseTruth, "neither true nor false", "Write true or false."}
	aNumber = form[float64]{parseNumber, "no number from 0 on", "Write a number, such as 2.5."}
	aWhole  = form[int64]{parseWhole, "no whole number from 0 on", "Write digits alone: 10000000000 for ten thousand millions."}
	aCount  = form[int]{parseCount, "no whole number from 0 on", "Write digits alone."}
	aPeriod = form[float64]{parseNumber, "no number of seconds", "Write seconds: 86400 for a day."}
	aMoment = form[int64]{parseWhole, "no whole number of milliseconds", "Write milliseconds: 1000 for a second."}
)

// parseTruth reads what PostgreSQL takes for true or false.
func parseTruth(text string) (value, ok bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	switch text {
	case "t", "tr", "tru", "true", "y", "ye", "yes", "on", "1":
		return true, true
	case "f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0":
		return false, true
	default:
		return false, false
	}
}

func parseNumber(text string) (float64, bool) {
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil && value >= 0 && !math.IsInf(value, 0)
}

func parseWhole(text string) (int64, bool) {
	value, err := strconv.ParseInt(text, 10, 64)
	return value, err == nil && value >= 0
}

func parseCount(text string) (int, bool) {
	value, err := strconv.Atoi(text)
	return value, err == nil && value >= 0
}

func text(arguments map[string]*string, name string) string {
	if v := arguments[name]; v != nil {
		return *v
	}
	return ""
}

// optional reads an argument; there is none if it is not given, or null.
func optional[T any](arguments map[string]*string, name string, like form[T]) (*T, error) {
	if arguments[name] == nil {
		return nil, nil
	}
	value, ok := like.read(*arguments[name])
	if !ok {
		return nil, pgerr.New(pgerr.InvalidParameterValue, "%s => '%s' is %s", name, *arguments[name], like.is).WithHint("%s", like.hint)
	}
	return &value, nil
}

// given reads an argument into a place, and leaves that as it is if there is none.
func given[T any](arguments map[string]*string, name string, like form[T], into *T) error {
	value, err := optional(arguments, name, like)
	if value != nil {
		*into = *value
	}
	return err
}

// truth is an argument that is true or false; it is false if it is not given.
func truth(arguments map[string]*string, name string) (value bool, err error) {
	return value, given(arguments, name, aTruth, &value)
}

// point reads a key, or where a range begins. It is nil if it is not given.
func point(arguments map[string]*string, name string) ([]string, error) {
	values, err := api.ParsePoint(text(arguments, name))
	if err != nil {
		return nil, pgerr.New(pgerr.InvalidParameterValue, "%s => %v", name, err).WithHint(`A key of several columns is written '["eu", 17]'.`)
	}
	return values, nil
}

// rangeOf reads lo and hi.
func rangeOf(arguments map[string]*string) (r api.MoveRange, err error) {
	if r.From, err = point(arguments, "lo"); err == nil {
		r.To, err = point(arguments, "hi")
	}
	return r, err
}
