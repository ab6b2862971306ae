package facts

import (
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// Kind is a kind of statement, by the name that PostgreSQL's grammar has for it.
type Kind string

// Kinds lists every kind of statement that the grammar has, as its description of nodes tells.
func Kinds() []Kind {
	var kinds []Kind
	fields := (&pgquery.Node{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Message().Name()); strings.HasSuffix(name, "Stmt") {
			kinds = append(kinds, Kind(name))
		}
	}
	return kinds
}

// objectWords are PostgreSQL's words for kinds of objects where they are not the grammar's names with blanks.
var objectWords = map[string]string{
	"MATVIEW": "MATERIALIZED VIEW", "FDW": "FOREIGN DATA WRAPPER", "FOREIGN SERVER": "SERVER", "LARGEOBJECT": "LARGE OBJECT", //nolint:misspell // it is SQL
	"OPCLASS": "OPERATOR CLASS", "OPFAMILY": "OPERATOR FAMILY", "STATISTIC EXT": "STATISTICS", "TABCONSTRAINT": "CONSTRAINT",
	"DOMCONSTRAINT": "CONSTRAINT", "TSCONFIGURATION": "TEXT SEARCH CONFIGURATION", "TSDICTIONARY": "TEXT SEARCH DICTIONARY",
	"TSPARSER": "TEXT SEARCH PARSER", "TSTEMPLATE": "TEXT SEARCH TEMPLATE",
}

// objectType is PostgreSQL's word for a kind of object.
func objectType(t pgquery.ObjectType) string {
	word := strings.ReplaceAll(strings.TrimPrefix(t.String(), "OBJECT_"), "_", " ")
	if better, ok := objectWords[word]; ok {
		return better
	}
	return word
}

// irregularTags are command tags that do not follow from the kind's name.
var irregularTags = map[Kind]string{
	"CreateStmt": "CREATE TABLE", "CreatedbStmt": "CREATE DATABASE", "DropdbStmt": "DROP DATABASE", "CreateSeqStmt": "CREATE SEQUENCE",
	"AlterSeqStmt": "ALTER SEQUENCE", "IndexStmt": "CREATE INDEX", "ViewStmt": "CREATE VIEW", "RuleStmt": "CREATE RULE",
	"CreateTrigStmt": "CREATE TRIGGER", "CreateEventTrigStmt": "CREATE EVENT TRIGGER", "AlterEventTrigStmt": "ALTER EVENT TRIGGER",
	"CreatePLangStmt": "CREATE LANGUAGE", "CompositeTypeStmt": "CREATE TYPE", "CreateEnumStmt": "CREATE TYPE",
	"CreateRangeStmt": "CREATE TYPE", "AlterEnumStmt": "ALTER TYPE", "CreateStatsStmt": "CREATE STATISTICS",
	"AlterStatsStmt": "ALTER STATISTICS", "CreateFdwStmt": "CREATE FOREIGN DATA WRAPPER", "AlterFdwStmt": "ALTER FOREIGN DATA WRAPPER",
	"CreateForeignServerStmt": "CREATE SERVER", "AlterForeignServerStmt": "ALTER SERVER", "CreateAmStmt": "CREATE ACCESS METHOD",
	"CreateOpClassStmt": "CREATE OPERATOR CLASS", "CreateOpFamilyStmt": "CREATE OPERATOR FAMILY", "AlterOpFamilyStmt": "ALTER OPERATOR FAMILY",
	"VariableShowStmt": "SHOW", "DeclareCursorStmt": "DECLARE CURSOR", "ClosePortalStmt": "CLOSE CURSOR", "LockStmt": "LOCK TABLE",
	"TruncateStmt": "TRUNCATE TABLE", "RefreshMatViewStmt": "REFRESH MATERIALIZED VIEW", "ConstraintsSetStmt": "SET CONSTRAINTS", //nolint:misspell // it is SQL
	"CheckPointStmt": "CHECKPOINT", "SecLabelStmt": "SECURITY LABEL", "CreateTableSpaceStmt": "CREATE TABLESPACE",
	"DropTableSpaceStmt": "DROP TABLESPACE", "AlterTableSpaceOptionsStmt": "ALTER TABLESPACE", "AlterRoleSetStmt": "ALTER ROLE",
	"AlterDatabaseSetStmt": "ALTER DATABASE", "AlterDatabaseRefreshCollStmt": "ALTER DATABASE", "AlterTableMoveAllStmt": "ALTER TABLE",
	"AlterExtensionContentsStmt": "ALTER EXTENSION", "AlterTSDictionaryStmt": "ALTER TEXT SEARCH DICTIONARY",
	"AlterTSConfigurationStmt": "ALTER TEXT SEARCH CONFIGURATION",
}

// tagOf returns PostgreSQL's command tag for a statement.
func tagOf(message proto.Message) string {
	switch s := message.(type) {
	case *pgquery.SelectStmt:
		if into(s) != nil {
			return "SELECT INTO"
		}
		return "SELECT"
	case *pgquery.TransactionStmt:
		return transactionTag(s.Kind)
	case *pgquery.VariableSetStmt:
		return setTag(s.Kind)
	case *pgquery.DiscardStmt:
		return strings.ReplaceAll(s.Target.String(), "_", " ")
	case *pgquery.VacuumStmt:
		if !s.IsVacuumcmd {
			return "ANALYZE"
		}
	case *pgquery.FetchStmt:
		if s.Ismove {
			return "MOVE"
		}
	case *pgquery.GrantStmt:
		return grantTag(s.IsGrant)
	case *pgquery.GrantRoleStmt:
		return grantTag(s.IsGrant) + " ROLE"
	case *pgquery.CreateFunctionStmt:
		if s.IsProcedure {
			return "CREATE PROCEDURE"
		}
	case *pgquery.CreateTableAsStmt:
		if s.Objtype == pgquery.ObjectType_OBJECT_MATVIEW {
			return "CREATE MATERIALIZED VIEW" //nolint:misspell // it is SQL
		}
	default:
		return definitionTag(message)
	}
	return regularTag(kindOf(message))
}

// definitionTag is for statements whose tag has the kind of object in it.
func definitionTag(message proto.Message) string {
	switch s := message.(type) {
	case *pgquery.DropStmt:
		return "DROP " + objectType(s.RemoveType)
	case *pgquery.DefineStmt:
		return "CREATE " + objectType(s.Kind)
	case *pgquery.AlterTableStmt:
		return "ALTER " + objectType(s.Objtype)
	case *pgquery.RenameStmt:
		if s.Relation != nil && s.RelationType > pgquery.ObjectType_OBJECT_ACCESS_METHOD {
			return "ALTER " + objectType(s.RelationType)
		}
		return "ALTER " + objectType(s.RenameType)
	case *pgquery.AlterObjectSchemaStmt:
		return "ALTER " + objectType(s.ObjectType)
	case *pgquery.AlterOwnerStmt:
		return "ALTER " + objectType(s.ObjectType)
	case *pgquery.AlterObjectDependsStmt:
		return "ALTER " + objectType(s.ObjectType)
	}
	return regularTag(kindOf(message))
}

func transactionTag(kind pgquery.TransactionStmtKind) string {
	words := strings.ReplaceAll(strings.TrimPrefix(kind.String(), "TRANS_STMT_"), "_", " ")
	switch words {
	case "START":
		return "START TRANSACTION"
	case "PREPARE":
		return "PREPARE TRANSACTION"
	case "ROLLBACK TO":
		return "ROLLBACK"
	default:
		return words
	}
}

func setTag(kind pgquery.VariableSetKind) string {
	if kind == pgquery.VariableSetKind_VAR_RESET || kind == pgquery.VariableSetKind_VAR_RESET_ALL {
		return "RESET"
	}
	return "SET"
}

func grantTag(isGrant bool) string {
	if isGrant {
		return "GRANT"
	}
	return "REVOKE"
}

// regularTag takes the words of a kind's name: AlterUserMappingStmt is ALTER USER MAPPING.
func regularTag(kind Kind) string {
	if tag, ok := irregularTags[kind]; ok {
		return tag
	}
	var tag strings.Builder
	for i, letter := range strings.TrimSuffix(string(kind), "Stmt") {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			tag.WriteByte(' ')
		}
		tag.WriteRune(letter)
	}
	return strings.ToUpper(tag.String())
}
