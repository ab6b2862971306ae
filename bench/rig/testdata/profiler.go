package main

import (
	"fmt"
	"net/http"
	_ "net/http/pprof"
	"os"
)

// init serves profiles. This file is no part of the program that users get: the benchmarks add it when they are asked for profiles.
func init() {
	if address := os.Getenv("CLEAVE_BENCH_PROFILES"); address != "" {
		go func() { fmt.Fprintln(os.Stderr, "profiles:", http.ListenAndServe(address, nil)) }()
	}
}
