// Package config is the configuration of one Cleave process in production: what it is called, where etcd and the shards
// are, where it listens, how it logs.
//
// # What it does
//
// [Load] starts from [Default], applies a YAML file and then the environment, and checks the result. [Config.Origin] tells
// where each value came from, [Config.Warnings] what is allowed and yet unwise. [Fields] lists every field with its
// sentence, default and environment variable, all derived from the structs; [Template] is a first file made of them, and
// docs/configuration.md has the same table.
//
// # What it does not do
//
// It opens no connection and reads no secret into a Config: passwords and tokens are references of package secret, which
// whoever needs one resolves. Which shards and tables there are is not configuration but the shard map, in package
// topology. Flags of single commands belong to cmd/cleave.
//
// # Guarantees
//
//   - A Config that Load returned without an error has passed [Config.Check].
//   - Load finds all problems in one go, each with its place (file and line, or variable), field, and what to do. Only a
//     file that is not YAML at all ends at the first.
//   - Nothing is ignored in silence: an unknown field is a problem, an unknown CLEAVE_ variable a warning.
//   - No error, warning or printed value contains a secret, also not one that was written into the file by mistake.
//
// # Concurrency
//
// A Config is a value; once loaded it is only read, and then safe for concurrent use. Nothing here starts a goroutine.
//
// # Where to start reading
//
// config.go has the fields and their defaults, check.go the rules, load.go how a value gets into a field.
package config
