package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/secret"
)

// Field describes one field for people.
type Field struct {
	Path    string // as in etcd.request_timeout
	Env     string // the environment variable that sets it
	Doc     string // its sentence
	Default string // its default as text, or what describes it; empty if there is none
	Example string // a value in YAML, where the default is not one
}

// Fields lists every field, in the order of the file.
func Fields() []Field {
	var fields []Field
	for _, e := range schema {
		if !e.section {
			fields = append(fields, e.Field)
		}
	}
	return fields
}

// entry is a section or a field of the file.
type entry struct {
	Field
	section bool
	depth   int   // how many sections it is in
	index   []int // its way through the structs
}

// name is the last part of the path: its name in the file.
func (e entry) name() string { return e.Path[strings.LastIndexByte(e.Path, '.')+1:] }

// in returns a pointer to the field's value: *string, *[]string, *int, *int64, *time.Duration or *secret.Reference.
func (e entry) in(c *Config) any {
	return reflect.ValueOf(c).Elem().FieldByIndex(e.index).Addr().Interface()
}

// entries are all sections and fields, each section before what is in it.
type entries []entry

// schema is what the tags of Config say.
var schema = collect(Default())

func collect(defaults Config) entries {
	all := collectFrom(reflect.TypeOf(defaults), entry{})
	for i := range all {
		if e := &all[i]; !e.section && e.Default == "" {
			e.Default = textOf(e.in(&defaults))
		}
	}
	return all
}

func collectFrom(section reflect.Type, parent entry) entries {
	var all entries
	for f := range section.Fields() {
		if !f.IsExported() {
			continue
		}
		path := joinPath(parent.Path, f.Tag.Get("yaml"))
		e := entry{
			Field: Field{
				Path: path, Env: variableOf(path),
				Doc: f.Tag.Get("doc"), Default: f.Tag.Get("default"), Example: f.Tag.Get("example"),
			},
			section: isSection(f.Type),
			depth:   strings.Count(path, "."),
			index:   append(parent.index[:len(parent.index):len(parent.index)], f.Index...),
		}
		all = append(all, e)
		if e.section {
			all = append(all, collectFrom(f.Type, e)...)
		}
	}
	return all
}

func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[secret.Reference]()
}

func joinPath(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// find returns what is at the path.
func (all entries) find(path string) (entry, bool) {
	for _, e := range all {
		if e.Path == path {
			return e, true
		}
	}
	return entry{}, false
}

// field returns the field at the path, which is not a section.
func (all entries) field(path string) (entry, bool) {
	e, ok := all.find(path)
	return e, ok && !e.section
}

// variable returns the field that the environment variable sets.
func (all entries) variable(name string) (entry, bool) {
	for _, e := range all {
		if e.Env == name && !e.section {
			return e, true
		}
	}
	return entry{}, false
}

// textOf writes a field's value as the environment would have it.
func textOf(value any) string {
	switch value := value.(type) {
	case *string:
		return *value
	case *[]string:
		return strings.Join(*value, ",")
	case *int:
		return strconv.Itoa(*value)
	case *int64:
		return strconv.FormatInt(*value, 10)
	case *time.Duration:
		return shortDuration(*value)
	case *secret.Reference:
		return value.String()
	}
	panic("config: a field has a type that no text is known for") // a mistake in Config, found by every test
}

// shortDuration leaves out the zeroes: 2m rather than 2m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
