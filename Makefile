# Cleave. `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOLS         := $(CURDIR)/.tools
POSTGRES      ?= $(TOOLS)/postgres
# The program as the suites below test/ run it: it takes longer to link than many of them take.
BINARIES      := $(TOOLS)/binaries
GOLANGCI_LINT := $(TOOLS)/golangci-lint-v2.14.0
VERSION       := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Tests are linked without tables for debuggers: some fifty binaries, each in half of the time. They are not vetted once more: 'make check' does that.
# There is memory enough, so that the collector need not run all the time, above all beside the race detector.
GO_TEST       := GOGC=400 go test -ldflags=-w -vet=off
# Most tests wait for servers a part of their time, so that one more package runs than there are processors.
PACKAGES      := -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Packages that begin no goroutines, not even in their tests, need no race detector, with which computing takes several times as long. house_test.go makes sure of them.
PURE          := ./internal/compose ./internal/facts ./internal/plan ./internal/rebalance ./internal/sqltext/... ./internal/topology ./placement ./placement/draw ./placement/hash
# Of three packages with many tests, most of which wait for servers to answer one after the other, these are about what happens at the same time:
# the race detector looks at them, and at the rest when 'make thorough' says so.
LARGE         := ./internal/control ./internal/session ./internal/shard
CONCURRENT    := Cancel|Deadlock|Drain|Fanout|FullPools|Leak|Leave|Left|Sleep|Sums|Turns|Wait|Held|Hold|Meanwhile|CopyLoses|CopyOfAClient|CopyRefused|Crash02|Panic|TooMany|Vanish|AtOnce|SideBySide|Automation|Serving|WakesUp|TakesOver|Leader|LosesItsLock|Beside
BENCHTIME     ?= 0.1s
BENCHCOUNT    ?= 3

.PHONY: build dev test test-races test-large thorough soak soak-moves soak-sql versions check bench fmt vet lint golden help clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## build bin/cleave
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/cleave ./cmd/cleave

DEV_FLAGS ?=
dev: ## install what is missing, build, and run a local sharded cluster until Ctrl-C
	@scripts/install.sh
	@$(MAKE) --no-print-directory build
	@exec bin/cleave dev $(DEV_FLAGS)

# Suites below test/, and the scripts of commands, run the binary that users get, so the race detector would look at the clients alone. What takes longest comes first, so that nothing waits for it in the end.
test: ## install what is missing and run every test, some with few of their cases, and with the race detector where things happen at the same time
	scripts/install.sh
	scripts/meanwhile.sh scripts/install-clients.sh $(MAKE) --no-print-directory test-races
	go build -ldflags=-w -o $(BINARIES)/cleave ./cmd/cleave
	go build -ldflags=-w -tags failpoints -o $(BINARIES)/cleave-failpoints ./cmd/cleave
	scripts/meanwhile.sh 'cd test/clients && CLEAVE_REQUIRE_CLIENTS=1 $(GO_TEST) -count=1 -timeout 15m ./...' $(MAKE) --no-print-directory test-large
	$(SUITES) $(GO_TEST) $(PACKAGES) -timeout 20m ./test/moves ./test/cluster ./test/differential ./cmd/cleave ./test/processes ./test/... $(PURE)
	$(GO_TEST) -race -tags failpoints ./internal/failpoint
	GOARCH=386 go test -short ./placement/... ./shardmap/... ./idgen/...
	cd bench && go test -vet=off -run . ./...

SUITES := CLEAVE_BINARIES=$(BINARIES) CLEAVE_REQUIRE_POSTGRES=1

test-races:
	CLEAVE_REQUIRE_POSTGRES=1 $(GO_TEST) $(PACKAGES) -race -timeout 20m $$(go list ./... | grep -v /test/ | grep -vxF "$$(go list ./cmd/cleave $(LARGE) $(PURE))")
	CLEAVE_REQUIRE_POSTGRES=1 $(GO_TEST) $(PACKAGES) -parallel 3 -race -timeout 20m -run '$(CONCURRENT)' $(LARGE)

test-large:
	CLEAVE_REQUIRE_POSTGRES=1 $(GO_TEST) $(PACKAGES) -parallel 3 -timeout 20m -skip '$(CONCURRENT)' $(LARGE)

thorough: ## run every test with all of its cases, and all but the suites with the race detector: a few hours
	scripts/install.sh
	scripts/install-clients.sh
	scripts/install-apps.sh
	CLEAVE_THOROUGH=1 CLEAVE_REQUIRE_POSTGRES=1 go test -count=1 -race -timeout 6h $$(go list ./... | grep -v /test/)
	CLEAVE_THOROUGH=1 CLEAVE_REQUIRE_POSTGRES=1 CLEAVE_REQUIRE_APPS=1 go test -count=1 -timeout 6h ./test/...
	cd test/clients && CLEAVE_REQUIRE_CLIENTS=1 go test -count=1 -timeout 1h ./...

CRASHES ?= 1000
soak: ## kill whoever declares tables behind every step, and routers and shards by chance, CRASHES times, and check everything every few of them
	scripts/install.sh
	CLEAVE_REQUIRE_POSTGRES=1 CLEAVE_THOROUGH=1 go test -count=1 -timeout 1h -run Crashes ./internal/control
	CLEAVE_REQUIRE_POSTGRES=1 CLEAVE_SOAK=$(CRASHES) go test -count=1 -timeout 24h -v -run TestSoak ./test/faults

ROUNDS ?= 1
soak-moves: ## kill the leader behind every step of a move, and both servers at many, with writers all the while, ROUNDS times (each takes some ten minutes), then whatever there is by chance, CRASHES times, and then make up statements while rows move for HOW_LONG
	scripts/install.sh
	CLEAVE_REQUIRE_POSTGRES=1 CLEAVE_THOROUGH=1 go test -count=$(ROUNDS) -timeout 24h -v -skip TestMovesBesideRandomFaults ./test/moves
	CLEAVE_REQUIRE_POSTGRES=1 CLEAVE_SOAK=$(CRASHES) go test -count=1 -timeout 24h -v -run TestMovesBesideRandomFaults ./test/moves
	CLEAVE_REQUIRE_POSTGRES=1 go test -count=1 -timeout 24h -v -run TestTheRouterAgreesWhileRowsMove ./test/differential -generate $(HOW_LONG) -seed $$RANDOM$$RANDOM

HOW_LONG ?= 1h
soak-sql: ## run all scripts in all ways, and make up statements for HOW_LONG, by a random seed, and hold the answers of 7, 4, 2 and 1 shards against PostgreSQL's
	scripts/install.sh
	CLEAVE_REQUIRE_POSTGRES=1 CLEAVE_THOROUGH=1 go test -count=1 -timeout 24h -run 'TestTheRouterAgreesWithPostgreSQL|TestTwoPlainServersAgree' ./test/differential
	CLEAVE_REQUIRE_POSTGRES=1 go test -count=1 -timeout 24h -v -run TestTheRouterAgreesOnStatementsMadeUp ./test/differential \
	  -generate $(HOW_LONG) -shards 7,4,2,1 -seed $$RANDOM$$RANDOM

versions: ## hold the hash functions against PostgreSQL 14 to 18, and shards against 15 to 18 (downloads their binaries)
	for version in 14 15 16 17 18; do \
	  echo "PostgreSQL $$version"; \
	  export CLEAVE_PG_BIN=$$(scripts/other-postgres.sh $$version $(POSTGRES)); \
	  go test -count=1 -run EveryServer ./placement/key; \
	  go test -count=1 ./test/hashes; \
	  if [ $$version -ge 15 ]; then go test -count=1 ./internal/shard; fi; \
	done

check: fmt vet lint ## format, vet, lint, fast tests of all but the suites below test/
	$(GO_TEST) -short $$(go list ./... | grep -v /test/)

fmt: ## fail if a file is not formatted
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi

# The linter vets what is built for this machine.
vet:
	@scripts/install.sh
	go mod tidy -diff
	go vet -tags failpoints ./internal/failpoint
	GOARCH=386 go vet ./placement/... ./shardmap/... ./idgen/...
	GOARCH=arm64 go vet ./placement/... ./shardmap/... ./idgen/...

lint: $(GOLANGCI_LINT)
	$(GOLANGCI_LINT) run ./...
	cd bench && $(GOLANGCI_LINT) run --config ../.golangci.yml ./...
	cd test/clients && $(GOLANGCI_LINT) run --config ../../.golangci.yml ./...

$(GOLANGCI_LINT):
	mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.14.0
	mv $(TOOLS)/golangci-lint $@

bench: ## benchmarks, as ratios against peers measured in the same run
	scripts/install-bench.sh
	cd bench && go run ./cmd/ratios -benchtime $(BENCHTIME) -count $(BENCHCOUNT)
	cd bench && go run ./cmd/wire -quick
	cd bench && go run ./cmd/bulk -quick
	cd bench && go run ./cmd/transfers -quick
	cd bench && go run ./cmd/queries -quick
	cd bench && go run ./cmd/moves -quick

golden: ## regenerate the golden hash vectors with a real PostgreSQL
	scripts/install.sh
	placement/key/testdata/generate.sh placement/key/testdata

clean: ## remove what was built
	rm -rf bin $(TOOLS)
