package binding

import (
	"fmt"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/placement/key"
)

func refuse(err *pgerr.Error) (key.Value, Outcome, *pgerr.Error) { return key.Value{}, Refused, err }

func unknowable(part *plan.KeyPart) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "the value of shard key column %q is an expression", part.Column).
		WithDetail("The row's shard is found by the key's value, which must be a literal or a parameter.").
		WithHint("Evaluate the expression first, and give its value as a parameter.")
}

func misplaced(part *plan.KeyPart) *pgerr.Error {
	return pgerr.New(pgerr.InternalError, "the plan does not fit the statement: no literal %d for shard key column %q", part.Operand.Literal, part.Column)
}

func varying(part *plan.KeyPart) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "a value that means the current time is not supported for shard key column %q", part.Column).
		WithDetail("The shard is found by the key's value, and the shard itself would read it at another moment.").
		WithHint("Give the time itself.")
}

func otherType(part *plan.KeyPart, oid uint32) *pgerr.Error {
	name, ok := typeNames[oid]
	if !ok {
		name = fmt.Sprintf("the type with OID %d", oid)
	}
	if part.Store {
		return pgerr.New(pgerr.FeatureNotSupported, "shard key column %q is given a value of another type", part.Column).
			WithDetail("The column is of type %s and the value of type %s, which the router cannot convert.", part.Type, name).
			WithHint("Give a value of type %s.", part.Type)
	}
	return pgerr.New(pgerr.FeatureNotSupported, "shard key column %q is compared with a value of another type", part.Column).
		WithDetail("The column is of type %s and the value of type %s; such a comparison may hold for several keys, which live on different shards.", part.Type, name).
		WithHint("Cast the value to %s.", part.Type)
}
