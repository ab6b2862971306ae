// Package auth decides who a client is, and lets the router log in to shards in the client's name without ever holding a
// password.
//
// A client proves with SCRAM-SHA-256 that it knows a password; what its proof reveals, the [Keys], is enough to log in to
// every shard that has the same verifier for the role, and good for nothing else. [Server] is the exchange with a client,
// [Client] the one with a shard; both are state machines that are given messages and return answers. [Rules] say which
// clients are asked for what, [Users] where verifiers come from ([File], [Cached]), and [Certificates] what TLS shows.
//
// It opens no socket and runs no SQL: package session talks to clients, package pool to shards, and whoever makes a Cached
// says how a shard is asked. It does not say what a user may do; the shards do.
//
// It guarantees that a client learns nothing of a user from a failed login but that it failed: a user that does not exist
// takes the same steps as one with a password ([VerifierFor]), and every wrong proof gives the same error. No error and
// no printed form of Keys or [Secret] holds what they hide. Nothing that a peer sends can make it panic or compute for
// long.
//
// A Server or Client serves one login and one goroutine. Verifiers, Keys, Users' answers and Rules are never changed once
// made; these, File, Cached and Certificates are safe for concurrent use. Nothing here starts a goroutine.
//
// Start reading with server.go, then client.go; the words of both are in message.go.
package auth
