package virtual

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestTruthIsReadAsPostgreSQLDoes, whatever form a client sends it in.
func TestTruthIsReadAsPostgreSQLDoes(t *testing.T) {
	for text, want := range map[string]bool{
		"true": true, "t": true, "TRUE": true, "tru": true, "yes": true, "y": true, "on": true, "On": true, "1": true, "\ttrue\n": true,
		"false": false, "f": false, "F": false, "no": false, "n": false, "off": false, "of": false, "0": false,
	} {
		if got, ok := parseTruth(text); !ok || got != want {
			t.Errorf("%q is read as %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", " ", "o", "2", "truer", "perhaps", "nein", "-1", "null"} {
		if _, ok := parseTruth(text); ok {
			t.Errorf("%q is taken for true or false", text)
		}
	}
}

// TestArgumentsThatMakeNoSense are refused, with what to write, and nothing is done: never taken for something else.
func TestArgumentsThatMakeNoSense(t *testing.T) {
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Next(topology.AddShard(topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: "localhost:1"}, Weight: 1})); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Map: func() *topology.Map { return m }, Cluster: &control.Cluster{}}) // which would panic if it were asked for anything
	for _, c := range []struct{ call, code, hint string }{
		{"move_start main", pgerr.UndefinedFunction, "the first 2 are needed"},
		{"move_start main s2 manual=perhaps", pgerr.InvalidParameterValue, "true or false"},
		{"move_start main s2 manual=", pgerr.InvalidParameterValue, "true or false"},
		{"move_start main s2 throttle=ja", pgerr.InvalidParameterValue, "true or false"},
		{"move_start main s2 keep_seconds=1_day", pgerr.InvalidParameterValue, "86400"},
		{"move_start main s2 keep_seconds=-1", pgerr.InvalidParameterValue, "86400"},
		{"move_start main s2 keep_seconds=NaN", pgerr.InvalidParameterValue, "86400"},
		{"move_start main s2 keep_seconds=Infinity", pgerr.InvalidParameterValue, "86400"},
		{"move_start main s2 max_lag_seconds=10s", pgerr.InvalidParameterValue, "86400"},
		{"move_start main s2 max_rate=10MB", pgerr.InvalidParameterValue, "digits"},
		{"move_start main s2 max_rate=-5", pgerr.InvalidParameterValue, "digits"},
		{"move_start main s2 max_rate=1.5", pgerr.InvalidParameterValue, "digits"},
		{"move_start main s2 max_wal=99999999999999999999", pgerr.InvalidParameterValue, "digits"},
		{"move_start main s2 max_load=much", pgerr.InvalidParameterValue, "2.5"},
		{"move_start main s2 key=[1", pgerr.InvalidParameterValue, "several columns"},
		{"move_start main s2 lo=[", pgerr.InvalidParameterValue, "several columns"},
		{"move_start main s2 manual=on", pgerr.InvalidParameterValue, "from_shard =>"},
		{"move_start main s2 lo=NULL hi=NULL key=NULL", pgerr.InvalidParameterValue, "from_shard =>"},
		{"split_range main middle=off at=NULL", pgerr.InvalidParameterValue, "by_size =>"},
		{"move_start main s2 slow=true", pgerr.UndefinedFunction, "keep_seconds"},
		{"move_start main s2 to_shard=s3", pgerr.UndefinedFunction, "keep_seconds"},
		{"move_start main NULL", pgerr.NullNotAllowed, "the first 2 are needed"},
		{"move_start main from_shard=s1", pgerr.UndefinedFunction, "the first 2 are needed"},
		{"move_start NULL s2 keyspace=main", pgerr.UndefinedFunction, "the first 2 are needed"},
		{"move_throttle", pgerr.UndefinedFunction, "the first is needed"},
		{"move_throttle NULL max_rate=1", pgerr.NullNotAllowed, "the first is needed"},
		{"move_throttle x throttle=2", pgerr.InvalidParameterValue, "true or false"},
		{"move_pause", pgerr.UndefinedFunction, "It is cleave.move_pause(id)"},
		{"move_cancel x y", pgerr.UndefinedFunction, "It is cleave.move_cancel(id)"},
		{"split_range main middle=half", pgerr.InvalidParameterValue, "true or false"},
		{"split_range main by_size=10GB", pgerr.InvalidParameterValue, "digits"},
		{"split_range main by_size=-1", pgerr.InvalidParameterValue, "digits"},
		{"split_range main at=[", pgerr.InvalidParameterValue, "several columns"},
		{"merge_ranges main hi=[", pgerr.InvalidParameterValue, "several columns"},
		{"tenant_isolate main NULL s2", pgerr.NullNotAllowed, "the first 3 are needed"},
		{"tenant_isolate main [ s2", pgerr.InvalidParameterValue, "several columns"},
		{"rebalance_plan split=2", pgerr.InvalidParameterValue, "true or false"},
		{"rebalance_plan tolerance=a_lot", pgerr.InvalidParameterValue, "2.5"},
		{"rebalance_plan tolerance=-0.1", pgerr.InvalidParameterValue, "2.5"},
		{"rebalance_plan max_moves=-1", pgerr.InvalidParameterValue, "digits"},
		{"rebalance_plan max_moves=few", pgerr.InvalidParameterValue, "digits"},
		{"rebalance_plan max_bytes=1e9", pgerr.InvalidParameterValue, "digits"},
		{"rebalance_plan rate=fast", pgerr.InvalidParameterValue, "digits"},
		{"rebalance_plan rules=events", pgerr.InvalidParameterValue, "KEYSPACE@LO:HI=LABEL:VALUE"},
		{"rebalance_plan rules=[{}", pgerr.InvalidParameterValue, "JSON list"},
		{"move_start main s2 streams=many", pgerr.InvalidParameterValue, "digits"},
		{"move_start main s2 pause_limit_ms=1s", pgerr.InvalidParameterValue, "1000 for a second"},
		{"move_start main s2 dry_run=2", pgerr.InvalidParameterValue, "true or false"},
		{"move_tables public.a s2 skip_verify=2", pgerr.InvalidParameterValue, "true or false"},
		{"move_tables public.a s2 key=2", pgerr.UndefinedFunction, "cleave.move_tables(tables, to_shard"},
		{"verify max_listed=-1", pgerr.InvalidParameterValue, "digits"},
		{"verify max_rate=all", pgerr.InvalidParameterValue, "digits"},
		{"rebalance_plan weight=2", pgerr.UndefinedFunction, "none is needed"},
		{"rebalance_apply NULL", pgerr.NullNotAllowed, "the first is needed"},
		{"verify repair=maybe", pgerr.InvalidParameterValue, "true or false"},
		{"verify tables=orders", pgerr.UndefinedFunction, "table_name"},
		{"repair_reference_table a force=2", pgerr.InvalidParameterValue, "true or false"},
		{"nothing", pgerr.UndefinedFunction, ""},
	} {
		words := strings.Split(c.call, " ")
		call := session.Call{Function: words[0], OnShard: func(_ int, work func(shard.Asker) error) error {
			return work(func(context.Context, string) ([][]string, error) { return [][]string{{"t"}}, nil })
		}}
		for _, word := range words[1:] {
			name, text, named := strings.Cut(strings.ReplaceAll(word, "_day", " day"), "=")
			if !named {
				name, text = "", word
			}
			argument := session.Argument{Name: name, Text: &text}
			if text == "NULL" {
				argument.Text = nil
			}
			call.Arguments = append(call.Arguments, argument)
		}
		result, refused := s.Call(t.Context(), call)
		if refused == nil || refused.Code != c.code || !strings.Contains(refused.Hint, c.hint) {
			t.Errorf("%s: %v, %v", c.call, result, refused)
		}
	}
}
