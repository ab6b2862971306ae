package facts

import (
	"strconv"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/sqltext"
)

var transactionKinds = map[pgquery.TransactionStmtKind]TransactionKind{
	pgquery.TransactionStmtKind_TRANS_STMT_BEGIN:             Begin,
	pgquery.TransactionStmtKind_TRANS_STMT_START:             Begin,
	pgquery.TransactionStmtKind_TRANS_STMT_COMMIT:            Commit,
	pgquery.TransactionStmtKind_TRANS_STMT_ROLLBACK:          Rollback,
	pgquery.TransactionStmtKind_TRANS_STMT_SAVEPOINT:         Savepoint,
	pgquery.TransactionStmtKind_TRANS_STMT_RELEASE:           Release,
	pgquery.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:       RollbackTo,
	pgquery.TransactionStmtKind_TRANS_STMT_PREPARE:           PrepareTransaction,
	pgquery.TransactionStmtKind_TRANS_STMT_COMMIT_PREPARED:   CommitPrepared,
	pgquery.TransactionStmtKind_TRANS_STMT_ROLLBACK_PREPARED: RollbackPrepared,
}

func (w *walker) transaction(s *pgquery.TransactionStmt) {
	t := Transaction{Kind: transactionKinds[s.Kind], Savepoint: s.SavepointName, Chain: s.Chain}
	for _, option := range s.Options {
		o := option.GetDefElem()
		if o.GetDefname() == "transaction_isolation" && o.GetArg().GetAConst().GetSval().GetSval() == "serializable" {
			t.Serializable = true
		}
	}
	w.out.Transaction = t
}

// set reads SET and RESET.
func (w *walker) set(s *pgquery.VariableSetStmt) {
	setting := Setting{Name: strings.ToLower(s.Name), Local: s.IsLocal}
	switch s.Kind {
	case pgquery.VariableSetKind_VAR_SET_VALUE:
		setting.read(s.Args)
	case pgquery.VariableSetKind_VAR_SET_DEFAULT, pgquery.VariableSetKind_VAR_RESET:
		setting.Default = true
	case pgquery.VariableSetKind_VAR_RESET_ALL:
		setting.Name, setting.Default = "all", true
	case pgquery.VariableSetKind_VAR_SET_MULTI:
		w.setTransaction(s)
		return
	default:
		setting.Opaque = true
	}
	w.out.Settings = []Setting{setting}
}

// setTransaction reads SET TRANSACTION and SET SESSION CHARACTERISTICS AS TRANSACTION.
func (w *walker) setTransaction(s *pgquery.VariableSetStmt) {
	prefix, local := "", true
	switch s.Name {
	case "TRANSACTION":
	case "SESSION CHARACTERISTICS":
		prefix, local = "default_", false
	default:
		w.out.Settings = []Setting{{Name: strings.ToLower(s.Name), Local: true, Opaque: true}}
		return
	}
	for _, argument := range s.Args {
		o := argument.GetDefElem()
		setting := Setting{Name: prefix + o.GetDefname(), Local: local}
		setting.read([]*pgquery.Node{o.GetArg()})
		w.out.Settings = append(w.out.Settings, setting)
	}
}

// read takes the values of a setting.
func (s *Setting) read(values []*pgquery.Node) {
	written := make([]string, 0, len(values))
	for _, value := range values {
		o := operandOf(value)
		if o.Kind != Constant || len(o.Casts) > 0 {
			s.Opaque = true
			continue
		}
		text := o.Text
		switch s.Name {
		case "transaction_read_only", "default_transaction_read_only", "transaction_deferrable", "default_transaction_deferrable":
			text = onOff(o)
		}
		s.Values = append(s.Values, text)
		written = append(written, Literal(text, o.Number))
	}
	s.SQL = strings.Join(written, ", ")
}

// onOff gives the values of switches the form that PostgreSQL shows them in; the grammar says READ ONLY as 1.
func onOff(o Operand) string {
	switch {
	case !o.Number:
		return o.Text
	case o.Text == "0":
		return "off"
	default:
		return "on"
	}
}

// Literal writes a value as SQL. Numbers stay as they are; texts are right whatever standard_conforming_strings says.
func Literal(text string, number bool) string {
	if _, err := strconv.ParseFloat(text, 64); number && err == nil {
		return text
	}
	return sqltext.QuoteLiteral(text)
}

// prepare finds the parts of PREPARE name (types) AS body.
func (w *walker) prepare(s *pgquery.PrepareStmt) {
	p := Prepared{Name: s.Name, TypeCount: len(s.Argtypes)}
	next := p.readName(w.tokens, pgquery.Token_PREPARE)
	if next < len(w.tokens.all) && len(s.Argtypes) > 0 {
		closing := w.tokens.closing(next)
		if closing < 0 {
			return
		}
		p.TypesStart, p.TypesEnd = int(w.tokens.all[next].Start), int(w.tokens.all[closing].End)
		next = closing + 1
	}
	if as := w.tokens.find(pgquery.Token_AS, next); as >= 0 && as+1 < len(w.tokens.all) {
		p.BodyStart, p.BodyEnd = int(w.tokens.all[as+1].Start), int(w.tokens.all[len(w.tokens.all)-1].End)
	}
	w.out.Prepared = p
}

// execute finds the parts of EXECUTE name (arguments), which may stand in another statement.
func (w *walker) execute(s *pgquery.ExecuteStmt) {
	p := Prepared{Name: s.Name}
	p.readName(w.tokens, pgquery.Token_EXECUTE)
	for _, argument := range s.Params {
		p.Arguments = append(p.Arguments, operandOf(argument))
	}
	w.out.Prepared = p
}

func (w *walker) deallocate(s *pgquery.DeallocateStmt) {
	p := Prepared{Name: s.Name, All: s.Isall}
	if !s.Isall {
		last := w.tokens.all[len(w.tokens.all)-1]
		p.NameStart, p.NameEnd = int(last.Start), int(last.End)
	}
	w.out.Prepared = p
}

// readName finds the name behind a keyword and returns the index of what follows it. The keyword may stand earlier as a name
// of something else.
func (p *Prepared) readName(t tokens, keyword pgquery.Token) int {
	for i := t.find(keyword, 0); i >= 0; i = t.find(keyword, i+1) {
		if t.isName(i+1, p.Name) {
			p.NameStart, p.NameEnd = int(t.all[i+1].Start), int(t.all[i+1].End)
			return i + 2
		}
	}
	return len(t.all)
}
