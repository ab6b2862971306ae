package shard

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/internal/topology"
)

// Login is all that a connection to one instance needs, for those who hold the conversation themselves.
type Login struct {
	User, Database string
	// Password is where the password of the user is; it may refer to nothing.
	Password secret.Reference
	// TLS is nil if the connection is to be plain.
	TLS *tls.Config
}

// LoginTo returns how [Access.ConnectTo] would log in to the shard's instance at this address. It reads the root
// certificates anew, so that replaced ones are found by the next login.
func (a Access) LoginTo(spec topology.ShardSpec, address string) (Login, error) {
	access := a.to(spec)
	login := Login{User: access.User, Database: access.Database, Password: access.Password}
	if err := access.check(); err != nil {
		return Login{}, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return Login{}, fmt.Errorf("address %q: write host:port", address)
	}
	if access.SSLMode == "disable" {
		return login, nil
	}
	login.TLS, err = access.tlsConfig(host)
	return login, err
}

// UserOf returns the role that [Access.Connect] logs in to the shard as.
func (a Access) UserOf(spec topology.ShardSpec) string { return a.to(spec).User }
