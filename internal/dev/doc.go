// Package dev runs the parts of a cluster on one machine: an etcd in this process and PostgreSQL servers as its children, all
// in one folder.
//
// It makes servers and keeps them running; the cluster itself is made by the same operations as any other (package control).
// What the folder holds is written down before it is made, so that a start that was cut short, by whatever means, is
// finished by the next one, and a folder that was in use when everything was killed is opened as it was. Two processes cannot
// use one folder. The servers ask for a password, which lies in the folder, readable by its owner only.
//
// The data are durable; that everything is on one machine makes it unfit for production. Start reading at machine.go.
package dev
