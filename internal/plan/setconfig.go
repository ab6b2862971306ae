package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// routersOwn are the parameters whose value the router has to know at any time: they change what a text means, whose rights
// it has, or how its answers are to be read. So are all whose names begin with the router's.
var routersOwn = []string{
	"search_path", "role", "session_authorization", "client_encoding", "timezone", "datestyle", "intervalstyle",
	"standard_conforming_strings", "transform_null_equals", triggersParameter,
}

// mustBeKnown says whether the router has to know the value of a parameter.
func mustBeKnown(parameter string) bool {
	return slices.Contains(routersOwn, parameter) || isRouters(parameter)
}

// isRouters says whether a parameter is the router's, or is between it and the shards.
func isRouters(parameter string) bool { return strings.HasPrefix(parameter, routerSchema+".") }

// setConfig notes what a call of set_config sets, if it surely sets it and the text says what. Otherwise nobody can tell: the
// backend stays with the session, unless the router has to know.
func (v *survey) setConfig(c facts.Call) {
	v.changes = true
	v.p.plan.Uncacheable = true
	if setting, told := settingOf(c); told && v.setsAlone() {
		if isRouters(setting.Name) {
			v.out.refuse("set-config-own", pgerr.New(pgerr.FeatureNotSupported, "set_config of %s is not supported", setting.Name).
				WithDetail("Parameters whose names begin with %s. are the router's, or are between it and the shards.", routerSchema).WithHint("Use SET for the router's own."))
		}
		v.out.Settings = append(v.out.Settings, setting)
		v.p.keepTriggersOn(v.out, setting.Name, setting.Values)
		return
	}
	v.out.Pin = pinSetConfig
	parameter, told := v.p.parameterOf(c)
	if !told {
		parameter, told = v.parameterOfView(c)
	}
	switch {
	case !told:
		v.out.refuse("set-config-name", setConfigRefusal("which parameter set_config sets must be told by a literal",
			"It may be one whose value the router must know, such as search_path or role."))
	case mustBeKnown(parameter):
		v.out.refuse("set-config-place", setConfigRefusal("set_config of "+parameter+" is not supported in this form",
			"The router must know the value of this parameter, and cannot tell whether the statement sets it, when, or to what."))
	}
}

func setConfigRefusal(message, detail string) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "%s", message).WithDetail("%s", detail).
		WithHint("Use SET or SET LOCAL, or SELECT set_config(…) with literals and with nothing else in the statement.")
}

// refuseKeptSetConfig refuses what keeps a call of set_config to run it later, as a view or a default does: nobody would see
// it run. Functions may do so, because whoever calls one reckons with anything.
func refuseKeptSetConfig(s *facts.Statement, out *Statement) {
	keeps := slices.ContainsFunc(s.Calls, func(c facts.Call) bool { return effectOf(c.Name) == setsParameter })
	if keeps && s.Kind != "CreateFunctionStmt" {
		out.refuse("set-config-kept", setConfigRefusal("set_config in a view, default, rule, policy or constraint is not supported",
			"It would set a parameter whenever that is used, and the router could not tell."))
	}
}

// setsAlone says whether the statement does nothing else than to call PostgreSQL's set_config with literals, once in each column.
func (v *survey) setsAlone() bool {
	return !v.p.inside && !slices.ContainsFunc(v.s.Calls, func(c facts.Call) bool {
		_, told := settingOf(c)
		return !told || effectOf(c.Name) != setsParameter || !v.p.isSystem(c)
	})
}

// settingOf returns what a call of set_config that is alone with its like says, if literals say it.
func settingOf(c facts.Call) (Setting, bool) {
	if c.Place != facts.Alone || len(c.Arguments) != 3 {
		return Setting{}, false
	}
	for i := range c.Arguments {
		if c.ArgumentNames[i] != "" || len(c.Arguments[i].Casts) > 0 {
			return Setting{}, false
		}
	}
	name, value, local := c.Arguments[0], c.Arguments[1], c.Arguments[2]
	if name.Kind != facts.Constant || name.Number || value.Kind != facts.Constant || value.Number || local.Kind != facts.True && local.Kind != facts.False {
		return Setting{}, false
	}
	return Setting{
		Name: strings.ToLower(name.Text), Local: local.Kind == facts.True, Values: valuesOf(name.Text, value.Text), SQL: settingSQL(name.Text, value.Text),
	}, true
}

// parameterOf returns the name of the parameter that a call of set_config sets, if a literal says it.
func (p *planner) parameterOf(c facts.Call) (string, bool) {
	for i, argument := range c.Arguments {
		if c.ArgumentNames[i] != "setting_name" && (i > 0 || c.ArgumentNames[i] != "") {
			continue
		}
		plain := !slices.ContainsFunc(argument.Casts, func(t facts.Type) bool { return !p.isText(t) })
		return strings.ToLower(argument.Text), argument.Kind == facts.Constant && !argument.Number && plain
	}
	return "", false
}

// parameterOfView is for set_config(name, …) FROM pg_settings WHERE name = 'x', which sets x if the server has it.
func (v *survey) parameterOfView(c facts.Call) (string, bool) {
	q := v.s.Query
	isView := len(v.tables) == 1 && v.tables[0].class == system && v.tables[0].Name == settingsView
	if !isView || q == nil || c.End > len(v.p.text) || c.Start >= c.End {
		return "", false
	}
	_, arguments, _ := strings.Cut(v.p.text[c.Start:c.End], "(")
	if first, _, _ := strings.Cut(arguments, ","); strings.TrimSpace(first) != "name" {
		return "", false
	}
	where := &q.Where
	is := where.Kind == facts.Compares && where.Operator == "=" && slices.Equal(where.Left.Column, []string{"name"}) && where.Right.Value.Kind == facts.Constant
	return strings.ToLower(where.Right.Value.Text), is
}

// isText says whether a cast to a type leaves a text as it is.
func (p *planner) isText(t facts.Type) bool {
	return t.Name == "text" && !t.Array && !t.HasMods && (t.Schema == "pg_catalog" || t.Schema == "" && p.trustsBuiltins())
}

// settingsView is PostgreSQL's view of all parameters. Writing to it is calling set_config.
const settingsView = "pg_settings"

func settingsViewRefusal() *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "writing to %s is not supported", settingsView).
		WithDetail("It sets parameters, and the router must know which and to what.").WithHint("Use SET or SET LOCAL.")
}
