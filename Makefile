# Cassia: `make run` starts it, `make test` tests it. `make run` needs only Go. `make test` also needs an Alertmanager, Node 20,
# Chromium, and Java 17 with Maven (or a cluster named in CASSANDRA_HOSTS); it names each one that is missing, skips the tests that need
# it, and installs nothing on the system.

GO         ?= go
TESTFLAGS  ?=
PROMETHEUS := bin/prometheus
PROMTOOL   := bin/promtool
EXPORTER   := bin/node_exporter
ALERTS     := bin/alertmanager
GRAFANA    := bin/grafana-datasource
S3SERVER   := bin/s3-server
VICTORIA   := bin/victoria-metrics
UI         := cmd/internal/ui

# The programs that the tests start: Prometheus, promtool, a node exporter, an Alertmanager, the back end of Grafana's data source and an
# S3 server. Set a variable to use another one.
export CASSIA_TEST_PROMETHEUS    ?= $(CURDIR)/$(PROMETHEUS)
export CASSIA_TEST_PROMTOOL      ?= $(CURDIR)/$(PROMTOOL)
export CASSIA_TEST_NODE_EXPORTER ?= $(CURDIR)/$(EXPORTER)
export CASSIA_TEST_ALERTMANAGER  ?= $(CURDIR)/$(ALERTS)
export CASSIA_TEST_GRAFANA_DATASOURCE ?= $(CURDIR)/$(GRAFANA)
export CASSIA_TEST_S3_SERVER     ?= $(CURDIR)/$(S3SERVER)

# Runs a command with a Cassandra node that lives as long as the command. With CASSANDRA_KEEP tests leave their keyspaces there,
# as dropping them is dear: not for a soak, which makes keyspaces without end.
WITH_NODE := docker/cassandra/with-node

# The packages whose tests take longest begin first, so that the others run beside them.
LONGEST  := ./cmd/internal/e2e ./storage/cassandra ./storage ./cmd/cassia ./cmd/internal/ui ./promql

# The folder of the module of the tools, which measure and test Cassia and aren't part of it, and the folder of their programs.
TOOLS    := cmd/tools
TOOL     := bin/tools
# Runs go test, and prints which tests failed, which were skipped and why.
SUITE    := $(TOOL)/suite
# For tests of which nobody keeps the program: no tables for debuggers, and vet is a target of its own.
QUICKLY  := -vet=off -ldflags='-s -w'
SOAK_FOR ?= 10m
# All Go source.
SOURCE   := version.go adapter cmd docker downsample promql storage
# What `make race` tests.
RACE     ?= ./...

.PHONY: all build run test test-short test-cassandra race soak broken-rules bench bench-compare bench-kairos bench-rollups bench-tenants bench-import programs prometheus promtool node-exporter alertmanager grafana-datasource s3-server victoria-metrics ui ui-modules helm examples release vet fmt lint wordings clean

all: build

# Builds a tool, by its path below cmd/tools.
$(TOOL)/%: FORCE
	@$(GO) build -C $(TOOLS) -o ../../$@ ./$*

FORCE:

# Builds bin/cassia, without cgo as releases are.
build:
	CGO_ENABLED=0 $(GO) build -o bin/cassia ./cmd/cassia

# Starts Cassia on :9201 with its data in ./data.
run: build
	./bin/cassia serve

# Runs all tests, including those with a real Prometheus, a real Cassandra and kill -9: nine minutes on two idle cores. Some of the tests
# wait for time to pass or for other programs, so more packages and tests run in parallel than there are cores.
test: programs examples $(SUITE)
	CASSANDRA_KEEP=1 $(WITH_NODE) $(SUITE) $(SUITEFLAGS) -- -timeout 60m -p 3 -parallel 8 $(QUICKLY) $(TESTFLAGS) $(LONGEST) ./...
	cd $(TOOLS) && ../../$(SUITE) $(SUITEFLAGS) -- $(QUICKLY) $(TESTFLAGS) ./...

# The tests that start no other programs.
test-short: $(SUITE)
	$(SUITE) $(SUITEFLAGS) -- -short $(QUICKLY) $(TESTFLAGS) ./...
	cd $(TOOLS) && ../../$(SUITE) $(SUITEFLAGS) -- -short $(QUICKLY) $(TESTFLAGS) ./...

# What only a Cassandra can show.
test-cassandra: $(SUITE)
	CASSANDRA_KEEP=1 $(WITH_NODE) $(SUITE) $(SUITEFLAGS) -- -timeout 30m $(TESTFLAGS) ./storage/cassandra/...

# The quick tests under the race detector (it needs a C compiler), with the costly assertions switched on.
race: $(SUITE)
	$(SUITE) $(SUITEFLAGS) -- -race -tags invariants -short -timeout 60m $(QUICKLY) $(TESTFLAGS) $(RACE)

# The tests that try something else in every run, round after round: make soak SOAK_FOR=1h SEED=7. What fails prints the
# command that repeats it. docker/cassandra/with-node make soak takes what needs a Cassandra, too.
soak: $(TOOL)/soak
	$(TOOL)/soak -for $(SOAK_FOR) $(if $(SEED),-seed $(SEED)) $(SOAKFLAGS)

# Breaks rules of the storage one by one, and says which test noticed and how soon: some ten minutes.
broken-rules: $(TOOL)/broken
	$(TOOL)/broken $(BROKENFLAGS)

bench:
	$(GO) test -run '^$$' -bench . $(TESTFLAGS) ./...

# The same load into Prometheus, VictoriaMetrics and Cassia, one after the other: prints a table of figures.
bench-compare: build prometheus victoria-metrics $(TOOL)/benchmarks/compare
	$(TOOL)/benchmarks/compare -prometheus $(CASSIA_TEST_PROMETHEUS) -victoriametrics $(VICTORIA) -cassia bin/cassia $(COMPAREFLAGS)

# The same load into KairosDB and Cassia on a real Cassandra, one after the other: prints a table of figures.
bench-kairos: build $(TOOL)/benchmarks/kairos
	$(TOOL)/benchmarks/kairos -cassia bin/cassia $(KAIROSFLAGS)

# Ninety days of samples in Prometheus' blocks and in Cassia, asked the same: prints tables of figures.
bench-rollups: build prometheus $(TOOL)/benchmarks/rollups
	$(TOOL)/benchmarks/rollups -prometheus $(CASSIA_TEST_PROMETHEUS) -cassia bin/cassia $(ROLLUPSFLAGS)

# A hundred tenants of one Cassia, without and with two that misbehave: prints a table of their latencies.
bench-tenants: build $(TOOL)/benchmarks/tenants
	$(TOOL)/benchmarks/tenants -cassia bin/cassia $(TENANTSFLAGS)

# Blocks of history imported, killed three times on the way, and by remote write: prints a table.
bench-import: build $(TOOL)/benchmarks/imports
	$(TOOL)/benchmarks/imports -cassia bin/cassia -kills 3 $(IMPORTFLAGS)

# Builds or finds the programs that the tests start, and names each one that is missing.
programs:
	@for program in prometheus promtool node-exporter alertmanager grafana-datasource s3-server ui-modules; do \
		why=$$($(MAKE) -s --no-print-directory $$program 2>&1 >/dev/null) || \
			echo "!!! TESTS THAT NEED $$program ARE SKIPPED: $$(echo "$$why" | grep -v '^make' | tail -1)" >&2; done
	@command -v chromium >/dev/null || echo "!!! TESTS THAT NEED chromium ARE SKIPPED: it is missing" >&2

prometheus:
ifeq ($(CASSIA_TEST_PROMETHEUS),$(CURDIR)/$(PROMETHEUS))
	cd docker/prometheus && $(GO) build -tags remove_all_sd -o ../../$(PROMETHEUS) github.com/prometheus/prometheus/cmd/prometheus
endif

promtool:
ifeq ($(CASSIA_TEST_PROMTOOL),$(CURDIR)/$(PROMTOOL))
	cd docker/prometheus && $(GO) build -tags remove_all_sd -o ../../$(PROMTOOL) github.com/prometheus/prometheus/cmd/promtool
endif

node-exporter:
ifeq ($(CASSIA_TEST_NODE_EXPORTER),$(CURDIR)/$(EXPORTER))
	GO="$(GO)" docker/node-exporter.sh $(EXPORTER)
endif

alertmanager:
ifeq ($(CASSIA_TEST_ALERTMANAGER),$(CURDIR)/$(ALERTS))
	docker/alertmanager.sh $(ALERTS)
endif

victoria-metrics:
	cd docker/victoriametrics && $(GO) build -o ../../$(VICTORIA) github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics

grafana-datasource:
ifeq ($(CASSIA_TEST_GRAFANA_DATASOURCE),$(CURDIR)/$(GRAFANA))
	cd docker/grafana && $(GO) build -o ../../$(GRAFANA) .
endif

# Renders and lints the Helm chart, in a module of its own; what it renders is held against flags and Kubernetes' types by `make test`.
helm:
	cd docker/helm && $(GO) test $(QUICKLY) $(TESTFLAGS) .

# Reads the examples with the libraries of systemd, Compose and Kubernetes, in a module of its own; the command lines in them are
# held against the program's flags by the tests in cmd/cassia.
examples:
	cd docker/examples && $(GO) test $(QUICKLY) $(TESTFLAGS) .

s3-server:
ifeq ($(CASSIA_TEST_S3_SERVER),$(CURDIR)/$(S3SERVER))
	cd docker/s3 && $(GO) build -ldflags='-s -w' -o ../../$(S3SERVER) .
endif

# Builds the web page anew from its sources, which needs Node. What comes out is committed.
ui: ui-modules
	cd $(UI) && node_modules/.bin/tsc --noEmit && node build.mjs

# Installs the packages that the page is built and tested with into node_modules, from its lock file.
ui-modules:
	@cd $(UI) && if ! command -v npm >/dev/null; then echo "npm is missing: install Node 20" >&2; exit 1; \
	elif ! cmp -s package-lock.json node_modules/.lock-of-last-install; then \
		npm ci --silent && cp package-lock.json node_modules/.lock-of-last-install; fi

# The archives and packages of a release in bin/release, of the version in the file VERSION. make release VERSION=1.2.3 builds another one.
release:
	docker/release $(VERSION)

vet:
	$(GO) vet ./...
	cd $(TOOLS) && $(GO) vet ./...
	$(GO) vet -tags invariants ./storage
	cd docker/grafana && $(GO) vet .
	cd docker/examples && $(GO) vet .
	cd docker/helm && $(GO) vet .
	cd docker/s3 && $(GO) vet .

# Names what gofmt would change.
fmt:
	@test -z "$$(gofmt -l $(SOURCE))" || { gofmt -l $(SOURCE); exit 1; }

# staticcheck, by version, with staticcheck.conf.
lint:
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	cd $(TOOLS) && $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	cd docker/grafana && $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 .
	cd docker/s3 && $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 .

# Prints the stilted wordings in the texts that users read, and their number per 1,000 words by kind of text.
wordings:
	$(GO) run ./cmd/internal/tidy/wordings/count

clean:
	rm -rf bin
