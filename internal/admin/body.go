package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
)

// decode reads a request's body, all of it, and refuses what it does not know: a misspelt field would otherwise be a
// setting that is silently not made.
func decode[T any](r *http.Request) (T, error) {
	var request T
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return request, badBody(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return request, invalid("something follows the end of the request's JSON")
	}
	return request, nil
}

// badBody says what is wrong with a body in words of the API, not of Go.
func badBody(err error) error {
	var tooLarge *http.MaxBytesError
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, api.CodeTooLarge, fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit))
	case errors.Is(err, io.EOF):
		return invalid("the request has no body: send a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("the request's JSON ends in the middle")
	case errors.As(err, &syntax):
		return invalid(fmt.Sprintf("the request is not JSON, at byte %d: %v", syntax.Offset, err))
	case errors.As(err, &kind):
		return invalid(wrongKind(kind))
	default:
		return invalid(strings.TrimPrefix(err.Error(), "json: "))
	}
}

func wrongKind(err *json.UnmarshalTypeError) string {
	if err.Field == "" {
		return "the request is not a JSON object"
	}
	field := err.Field[strings.LastIndexByte(err.Field, '.')+1:] // what is before it are names of Go
	return fmt.Sprintf("field %q cannot be a %s", field, err.Value)
}

// encode is the JSON of an answer, ended by a newline for people who look at it in a terminal.
func encode(answer any) ([]byte, error) {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return content.Bytes(), nil
}

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, answer any) error {
	content, err := encode(answer)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(content)))
	header.Set("X-Content-Type-Options", "nosniff")
	if header.Get("Cache-Control") == "" {
		header.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(content) // who hung up does not want to hear of it
	return nil
}

// listOf is the list, empty instead of null where there is none.
func listOf[E any](list []E) []E {
	if list == nil {
		return []E{}
	}
	return list
}
