// Package admin serves Cleave's HTTP API: the state of the cluster and changes to it, health and readiness of the process,
// its metrics, and the description of the API itself.
//
// Every operation is a line in one table ([Server] is made of it, the metrics are labelled by it, and a test holds
// openapi.yaml against it). A handler reads the request, calls [Cluster] and writes what came back; what an operation does,
// and whether it is refused, is decided in package control. The types of requests and answers are in package api.
//
// It guarantees that an answer is JSON, errors included, but for metrics and the description; that bodies, headers and
// times are bounded; that a field which nobody knows is refused, by name; that no answer holds a secret, because what it is
// made of holds only references; and that a web page of somebody else's cannot use the browser of a person on this
// machine to read or change the cluster (guard.go says how).
//
// It does not listen by itself and reads no configuration: who runs it passes a listener and a [Config]. All of [Server] is
// safe for concurrent use.
//
// Start reading at routes.go, then handlers.go, guard.go and errors.go.
package admin
