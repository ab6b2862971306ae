package sqltext

// FirstWord is the keyword that a statement begins with.
type FirstWord uint8

// The keywords that statements begin with, in the order of the alphabet. NoWord is for everything else: an empty text, a
// parenthesis, a word that no statement begins with.
const (
	NoWord FirstWord = iota
	Abort
	Alter
	Analyze
	Begin
	Call
	Checkpoint
	Close
	Cluster
	Comment
	Commit
	Copy
	Create
	Deallocate
	Declare
	Delete
	Discard
	Do
	Drop
	End
	Execute
	Explain
	Fetch
	Grant
	Import
	Insert
	Listen
	Load
	Lock
	Merge
	Move
	Notify
	Prepare
	Reassign
	Refresh
	Reindex
	Release
	Reset
	Revoke
	Rollback
	Savepoint
	Security
	Select
	Set
	Show
	Start
	Table
	Truncate
	Unlisten
	Update
	Vacuum
	Values
	With
)

// longestFirstWord is the length of CHECKPOINT and DEALLOCATE.
const longestFirstWord = 10

// firstWordOf takes a word without quotes, in upper or lower case.
func firstWordOf(word []byte) FirstWord {
	if len(word) > longestFirstWord {
		return NoWord
	}
	var upper [longestFirstWord]byte
	for i, c := range word {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	return lookUp(string(upper[:len(word)]))
}

// lookUp is a switch rather than a map because it is called for every statement, and takes a third of the time.
func lookUp(word string) FirstWord {
	switch word {
	case "ABORT":
		return Abort
	case "ALTER":
		return Alter
	case "ANALYSE", "ANALYZE":
		return Analyze
	case "BEGIN":
		return Begin
	case "CALL":
		return Call
	case "CHECKPOINT":
		return Checkpoint
	case "CLOSE":
		return Close
	case "CLUSTER":
		return Cluster
	case "COMMENT":
		return Comment
	case "COMMIT":
		return Commit
	case "COPY":
		return Copy
	case "CREATE":
		return Create
	case "DEALLOCATE":
		return Deallocate
	case "DECLARE":
		return Declare
	case "DELETE":
		return Delete
	case "DISCARD":
		return Discard
	case "DO":
		return Do
	case "DROP":
		return Drop
	case "END":
		return End
	case "EXECUTE":
		return Execute
	case "EXPLAIN":
		return Explain
	case "FETCH":
		return Fetch
	case "GRANT":
		return Grant
	case "IMPORT":
		return Import
	case "INSERT":
		return Insert
	case "LISTEN":
		return Listen
	case "LOAD":
		return Load
	case "LOCK":
		return Lock
	case "MERGE":
		return Merge
	case "MOVE":
		return Move
	case "NOTIFY":
		return Notify
	case "PREPARE":
		return Prepare
	case "REASSIGN":
		return Reassign
	case "REFRESH":
		return Refresh
	case "REINDEX":
		return Reindex
	case "RELEASE":
		return Release
	case "RESET":
		return Reset
	case "REVOKE":
		return Revoke
	case "ROLLBACK":
		return Rollback
	case "SAVEPOINT":
		return Savepoint
	case "SECURITY":
		return Security
	case "SELECT":
		return Select
	case "SET":
		return Set
	case "SHOW":
		return Show
	case "START":
		return Start
	case "TABLE":
		return Table
	case "TRUNCATE":
		return Truncate
	case "UNLISTEN":
		return Unlisten
	case "UPDATE":
		return Update
	case "VACUUM":
		return Vacuum
	case "VALUES":
		return Values
	case "WITH":
		return With
	default:
		return NoWord
	}
}
