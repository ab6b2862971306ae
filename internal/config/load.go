package config

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/cleavedb/cleave/internal/secret"
)

// Load returns the defaults, changed by the file at path, changed by the environment (as of os.Environ), and checked. An
// empty path means no file. What the user has to mend is returned as [Problems]; any other error is about reading the file.
func Load(path string, environ []string) (Config, error) {
	config := Default()
	config.origins = map[string]Origin{}
	var problems Problems
	if path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return Config{}, fmt.Errorf("read configuration: %w", err)
		}
		document, problem := parse(path, content)
		if problem != nil {
			return Config{}, Problems{*problem}
		}
		reader := fileReader{path: path, config: &config}
		reader.section("", document)
		problems = reader.problems
	}
	problems = append(problems, config.readEnvironment(environ)...)
	problems = append(problems, config.problems().outside(problems)...)
	if err := problems.err(); err != nil {
		return Config{}, err
	}
	return config, nil
}

// parse returns the one document of the file; nil if it is empty.
func parse(path string, content []byte) (ast.Node, *Problem) {
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return nil, syntaxProblem(path, err)
	}
	switch len(file.Docs) {
	case 0:
		return nil, nil
	case 1:
		return file.Docs[0].Body, nil
	}
	return nil, &Problem{Place: path, Message: "there is more than one YAML document in it: remove the lines of three dashes"}
}

// syntaxProblem says where and what, but does not show the line: a password may stand there by mistake.
func syntaxProblem(path string, err error) *Problem {
	var located yaml.Error
	if !errors.As(err, &located) {
		return &Problem{Place: path, Message: "it is not YAML: " + err.Error()}
	}
	place := path
	if token := located.GetToken(); token != nil && token.Position != nil {
		place = placeOf(path, token.Position.Line)
	}
	return &Problem{Place: place, Message: "it is not YAML: " + located.GetMessage()}
}

func placeOf(path string, line int) string { return path + ":" + strconv.Itoa(line) }

// fileReader puts what stands in a file into a Config. It walks the syntax tree rather than have it decoded, because it
// wants every problem and not the first, and the line of every value.
type fileReader struct {
	path     string
	config   *Config
	problems Problems
}

func (r *fileReader) place(node ast.Node) string {
	if token := node.GetToken(); token != nil && token.Position != nil {
		return placeOf(r.path, token.Position.Line)
	}
	return r.path
}

// section reads the fields below a section; the path of the whole file is empty.
func (r *fileReader) section(path string, node ast.Node) {
	if isNothing(node) {
		return
	}
	fields, ok := node.(ast.MapNode)
	if !ok {
		r.problems.add(r.place(node), path, "it is a section: write its fields as name: value, one a line, indented")
		return
	}
	for each := fields.MapRange(); each.Next(); {
		r.entry(path, each.Key(), each.Value())
	}
}

func (r *fileReader) entry(section string, key, value ast.Node) {
	path := joinPath(section, key.GetToken().Value)
	e, ok := schema.find(path)
	switch {
	case !ok:
		meant, suggestion := suggestField(path, section)
		r.problems.addAbout(meant, r.place(key), path, "there is no such field: %s", suggestion)
	case e.section:
		r.section(path, value)
	case !isNothing(value):
		if err := setNode(e.in(r.config), value); err != nil {
			r.problems.add(r.place(key), path, "%v", err)
			return
		}
		r.config.origins[path] = Origin{FromFile, r.place(key)}
	}
}

// suggestField returns the field that was probably meant by one that does not exist, or else the path of that one, and the
// end of a sentence about it.
func suggestField(unknown, section string) (meant, suggestion string) {
	known := schema.paths(section)
	if path, ok := nearest(unknown, known); ok {
		return path, fmt.Sprintf("did you mean %s?", path)
	}
	return unknown, "known here are " + strings.Join(known, ", ")
}

// isNothing tells whether only a name stands there, as of a section whose fields are all commented out.
func isNothing(node ast.Node) bool {
	if node == nil {
		return true
	}
	_, null := node.(*ast.NullNode)
	return null
}

// setNode puts a value of the file into a field.
func setNode(field any, node ast.Node) error {
	switch field := field.(type) {
	case *[]string:
		if list, ok := node.(*ast.SequenceNode); ok {
			return setList(field, list)
		}
	case *secret.Reference:
		if object, ok := node.(ast.MapNode); ok {
			return setSecret(field, object)
		}
	}
	text, err := scalar(node)
	if err != nil {
		return err
	}
	return setText(field, text)
}

func setList(field *[]string, list *ast.SequenceNode) error {
	*field = nil
	for _, item := range list.Values {
		text, err := scalar(item)
		if err != nil {
			return err
		}
		*field = append(*field, text)
	}
	return nil
}

func setSecret(field *secret.Reference, object ast.MapNode) error {
	var r secret.Reference
	for each := object.MapRange(); each.Next(); {
		text, err := scalar(each.Value())
		if err != nil {
			return err
		}
		switch each.Key().GetToken().Value {
		case "file":
			r.File = text
		case "env":
			r.Env = text
		default: // not repeated: it may be a secret
			return errors.New("a secret is {file: /path} or {env: NAME}, and nothing else")
		}
	}
	if err := r.Check(); err != nil {
		return err
	}
	*field = r
	return nil
}

// scalar returns the text of a single value as it was written: 007 stays 007.
func scalar(node ast.Node) (string, error) {
	switch node := node.(type) {
	case *ast.StringNode:
		return node.Value, nil
	case *ast.LiteralNode:
		return node.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, nil
	}
	return "", errors.New("a single value is wanted: write it behind the colon, without lists, fields, tags or anchors")
}

// setText puts a value that is given as text into a field.
func setText(field any, text string) error {
	switch field := field.(type) {
	case *string:
		*field = text
	case *[]string:
		*field = splitList(text)
	case *int:
		number, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*field = number
	case *int64:
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*field = number
	case *time.Duration:
		duration, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration: write one such as 500ms, 5s or 1m30s", text)
		}
		*field = duration
	case *secret.Reference:
		reference, err := secret.Parse(text)
		if err != nil {
			return err
		}
		*field = reference
	}
	return nil
}

func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
