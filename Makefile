# `make help` lists what there is. Every target sets itself up.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
SERVE_VENV := .venv-serve
SERVE_STAMP := $(SERVE_VENV)/.ready
# Workers for the tests: one more than cores, since they also wait; never fewer than three (races need company).
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n < 2 ? 3 : n + 1 )))
PYTEST ?= $(BIN)/python -m pytest -n $(JOBS) -q

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@echo "setting up $(VENV) (once; about half a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -e '.[dev]'
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Make .venv with everything the project needs

# What needs neither a server nor another process: the folders of `make quick`, without the tests that look at clocks.
QUICK := core gate adapters/insert retry testing messaging/webhooks \
	house/test_exports.py house/test_layers.py house/test_words.py
# Every tier at full length, in order. A new tier is a target, and a word here.
ALL := test test-agents test-floors test-ha racers drill-atomic drills migrate-million schedules faults soak test-loaded

.PHONY: quick
quick: lint ## The checks, and the tests that need neither a server nor a clock: two minutes
	STORES=memory,sqlite $(PYTEST) -m 'not slow and not timing' $(QUICK:%=tests/%)

.PHONY: test
test: lint ## Every check, and every test in a dose: what CI runs (at most a quarter of an hour)
	$(PYTEST) tests

.PHONY: test-all
test-all: $(STAMP) ## Every tier at full length, whatever becomes of the others (an hour)
	@$(BIN)/python tools/tiers.py $(ALL)

# Every framework that has an adapter: an environment of its own, because few people need them all.
AGENTS_VENV := .venv-agents
AGENTS_STAMP := $(AGENTS_VENV)/.ready
$(AGENTS_STAMP): pyproject.toml tests/agents/requirements.txt
	@echo "making $(AGENTS_VENV) with every agent framework and queue (once; about 1.2 GB, two minutes)"
	@test -x $(AGENTS_VENV)/bin/python || $(PYTHON) -m venv $(AGENTS_VENV)
	@$(AGENTS_VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -e '.[dev]' -r tests/agents/requirements.txt
	@touch $@

.PHONY: test-agents
test-agents: $(AGENTS_STAMP) ## Every framework and queue, killed at every point; writes the table of the docs (an hour)
	@mkdir -p build && rm -f build/crashes.jsonl
	CRASHES=all CRASH_TABLE=$(CURDIR)/build/crashes.jsonl $(AGENTS_VENV)/bin/python -m pytest -n $(JOBS) -q tests/agents tests/queues tests/examples/test_examples.py tests/testing/test_plugin_fixtures.py
	$(AGENTS_VENV)/bin/python tools/crash_table.py build/crashes.jsonl
	$(AGENTS_VENV)/bin/python tools/faults.py --frameworks

# The lowest versions of what the service needs that pyproject.toml allows, in an environment of their own.
FLOORS := serve postgres redis sealed sql-postgres
FLOORS_VENV := .venv-floors
FLOORS_STAMP := $(FLOORS_VENV)/.ready
comma := ,
empty :=
$(FLOORS_STAMP): pyproject.toml tools/floors.py tests/floors.txt
	@echo "making $(FLOORS_VENV) with the lowest versions that are allowed (once; about 150 MB, a minute)"
	@test -x $(FLOORS_VENV)/bin/python || $(PYTHON) -m venv $(FLOORS_VENV)
	@$(PYTHON) tools/floors.py $(FLOORS) > $(FLOORS_VENV)/constraints.txt
	@$(FLOORS_VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(FLOORS_VENV)/constraints.txt \
		-e '.[$(subst $(empty) $(empty),$(comma),$(FLOORS))]' -r tests/floors.txt
	@touch $@

.PHONY: test-floors
test-floors: $(FLOORS_STAMP) ## The service and its stores on the lowest versions of their libraries (minutes)
	$(FLOORS_VENV)/bin/python -m pytest -n $(JOBS) -q -W default tests/service/test_service_socket.py tests/service/test_service_keys.py \
		tests/service/test_service_hooks.py tests/service/test_service_tls.py tests/service/test_service_connections.py \
		tests/service/test_service_sealed.py tests/service/test_service_replicas.py tests/service/sql/test_sql_keys.py \
		tests/service/sql_postgres/test_postgres_keys.py

.PHONY: test-ha
test-ha: $(STAMP) ## Two services on a PostgreSQL primary that is killed under load, five times; and a control that loses
	FAILOVERS=all $(BIN)/python -m pytest -q -rP -p no:randomly tests/service/failover

.PHONY: test-loaded
test-loaded: $(STAMP) ## Tests that look at clocks, wait or have threads, three times beside a load of three times the cores
	$(BIN)/python tools/loaded.py $(LOADED)

.PHONY: schedules
schedules: $(STAMP) ## 3,000 of the explorer's schedules on PostgreSQL and Redis (SCHEDULES=, SEED=)
	SCHEDULES=$(or $(SCHEDULES),3000) $(BIN)/python -m pytest -q -rP tests/stores/schedules

.PHONY: drills
drills: $(STAMP) ## Writers, engines and the Reconciler, killed far more often than `make test` does
	SQL_KILLS=600 $(BIN)/python -m pytest -q tests/service/sql/test_sql_kills.py
	$(BIN)/python -m pytest -q -s examples/reconciler --runs 300

.PHONY: racers
racers: $(STAMP) ## 32 processes, 64 threads, 1,000 tasks for one key and for a handful, on every store (minutes)
	RACERS=all $(BIN)/python -m pytest -q -rP tests/stores/racers

.PHONY: check
check: lint ## ruff, mypy --strict and pyright, import layering, README and docs examples
	$(PYTEST) tests/house

.PHONY: lint
lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: halves
halves: $(STAMP) ## Write the blocking half of every pair from its awaiting half
	$(BIN)/python tools/halves.py

.PHONY: spec
spec: $(STAMP) ## Which of the 273 requirements a passing test proves
	$(BIN)/python tools/spec.py

.PHONY: faults
faults: $(STAMP) ## Plant every fault of tests/faults in a scratch copy: its tests must go red (FAULTS='name ...')
	$(BIN)/python tools/faults.py $(FAULTS)

.PHONY: demo
demo: $(STAMP) ## Senders and a worker, killed with kill -9: one effect each (GATE=off shows the duplicates)
	$(BIN)/python examples/demo.py --gate $(or $(GATE),on)

# Serving needs three packages, not the hundred that developing does: an environment of its own.
$(SERVE_STAMP): pyproject.toml
	@echo "making $(SERVE_VENV) with what serving needs (once; about 30 MB, some seconds)"
	@test -x $(SERVE_VENV)/bin/python || $(PYTHON) -m venv $(SERVE_VENV)
	@$(SERVE_VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -e '.[serve]'
	@touch $@

.PHONY: serve
serve: $(SERVE_STAMP) ## Serve SQL over HTTP with keys and plans, on this machine (SERVE='--port 8080 ...')
	$(SERVE_VENV)/bin/onceward serve $(SERVE)

.PHONY: drill-atomic
drill-atomic: $(STAMP) ## Kill clients in atomic mode a thousand times, at every step: both rows or neither
	DRILL_ROUNDS=$(or $(ROUNDS),10) $(BIN)/python -m pytest -q -s -p no:randomly tests/adapters/atomic/test_kill_drill.py tests/adapters/settle_inside/test_inside_kill_drill.py

.PHONY: migrate-million
migrate-million: $(STAMP) ## A million rows get keys beside writers, killed at every statement and run again (MIGRATE_ROWS=1000000)
	MIGRATE_ROWS=$(or $(MIGRATE_ROWS),1000000) MIGRATE_EVERY=1 $(BIN)/python -m pytest -q -rP -p no:randomly tests/migrate/test_migrate_kills.py

.PHONY: soak
soak: $(STAMP) ## Clients retry while the service is killed: lost=0 doubled=0; then attackers beside honest tenants (SOAK_SECONDS=180)
	$(BIN)/python -m soak --seconds $(or $(SOAK_SECONDS),180) $(or $(SOAK),--scenario all)

.PHONY: bench
bench: $(STAMP) ## Ratios against the raw store and against peers (peers in an environment of their own)
	$(BIN)/python -m bench $(BENCH)

.PHONY: pictures
pictures: $(STAMP) ## Draw docs/images anew from the simulations
	$(BIN)/python tools/pictures.py

.PHONY: build
build: $(STAMP) ## Build the wheel and the source archive into dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist .

.PHONY: clean
clean: ## Remove what the targets made
	rm -rf $(VENV) .venv-* .node build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .spec
