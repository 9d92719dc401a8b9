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
# Neighbours stay together, so that what a file starts is started once; a worker that has nothing left takes from others.
PYTEST ?= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q
# The tests start hundreds of processes: each would compile everything again where bytecode is not to be kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# Makes an environment, says what it does, and if it cannot, what to type: its folder, what for, how much, what of pip.
MAKE_ENVIRONMENT = @TARGET=$(or $(firstword $(MAKECMDGOALS)),setup) PYTHON='$(PYTHON)' sh tools/make_environment.sh
# The versions that were tested.
TESTED := -c requirements/constraints.txt

$(STAMP): pyproject.toml requirements/dev.txt requirements/constraints.txt
	$(MAKE_ENVIRONMENT) $(VENV) 'what the checks and tests need' 'about 200 packages, 860 MB; a minute or two on a quiet machine' $(TESTED) -r requirements/dev.txt

.PHONY: setup
setup: $(STAMP) ## Make .venv with everything the project needs

# What needs neither a server nor another process: the folders of `make quick`, without the tests that look at clocks.
QUICK := core gate adapters/insert retry testing messaging/webhooks \
	house/test_exports.py house/test_layers.py house/test_words.py
# Every tier at full length, in order. A new tier is a target, and a word here.
ALL := test test-cases test-agents test-floors test-ha test-stores test-browser test-docs test-ts racers drill-atomic drills migrate-million schedules faults soak test-loaded

.PHONY: quick
quick: lint ## The checks, and the tests that need neither a server nor a clock: two minutes
	STORES=memory,sqlite $(PYTEST) -m 'not slow and not timing' $(QUICK:%=tests/%)

.PHONY: test
test: said-test lint ## Every check, and every test in a dose: what CI runs (about fifteen minutes)
	@echo 'CASES=some $(PYTEST) tests'; CASES=some $(PYTEST) tests || { code=$$?; test $$code = 1 || exit $$code; $(BIN)/python tools/second_look.py; }

.PHONY: test-cases
test-cases: $(STAMP) ## Every case of the tests of which `make test` draws some, and every slow test (half an hour)
	$(PYTEST) -m 'dose or slow' tests

.PHONY: said-test
said-test:
	@echo "make test: ruff, mypy, then every test on real servers (PostgreSQL, Redis, a browser if there is one): about fifteen minutes on two quiet cores."

.PHONY: test-all
test-all: $(STAMP) ## Every tier at full length, whatever becomes of the others (an hour)
	@$(BIN)/python tools/tiers.py $(ALL)

# Every framework that has an adapter: an environment of its own, because few people need them all.
AGENTS_VENV := .venv-agents
AGENTS_STAMP := $(AGENTS_VENV)/.ready
$(AGENTS_STAMP): pyproject.toml requirements/dev.txt tests/agents/requirements.txt
	$(MAKE_ENVIRONMENT) $(AGENTS_VENV) 'every agent framework and queue, at their newest' 'about 1.2 GB, two minutes' -r requirements/dev.txt -r tests/agents/requirements.txt

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
	@mkdir -p build && $(PYTHON) tools/floors.py $(FLOORS) > build/floors.txt
	$(MAKE_ENVIRONMENT) $(FLOORS_VENV) 'the lowest versions that are allowed' 'about 150 MB, a minute' -c build/floors.txt \
		-e '.[$(subst $(empty) $(empty),$(comma),$(FLOORS))]' -r tests/floors.txt

.PHONY: test-floors
test-floors: $(FLOORS_STAMP) ## The service and its stores on the lowest versions of their libraries (minutes)
	$(FLOORS_VENV)/bin/python -m pytest -n $(JOBS) -q -W default tests/service/test_service_socket.py tests/service/test_service_keys.py \
		tests/service/test_service_hooks.py tests/service/test_service_tls.py tests/service/test_service_connections.py \
		tests/service/test_service_sealed.py tests/service/test_service_replicas.py tests/service/sql/test_sql_keys.py \
		tests/service/sql_postgres/test_postgres_keys.py

.PHONY: test-ha
test-ha: $(STAMP) ## Two services on a PostgreSQL primary that is killed under load, five times; and a control that loses
	FAILOVERS=all $(BIN)/python -m pytest -q -rP -p no:randomly tests/service/failover

.PHONY: failover-data
failover-data: $(STAMP) ## One failover and its control, kept in docs/images/data for the picture (two minutes; then make pictures)
	rm -f docs/images/data/failover.json
	FAILOVERS=all FAILOVER_DATA=$(CURDIR)/docs/images/data/failover.json $(BIN)/python -m pytest -q -rP -p no:randomly \
		"tests/service/failover" -k 'doubled and 0 or lags'

.PHONY: test-browser
test-browser: $(STAMP) ## The dashboard in a real Chromium: each page, both themes, two widths, axe; pictures in build/screenshots
	BROWSER=all $(BIN)/python -m pytest -q -rs -p no:randomly tests/dashboard/test_dashboard_browser.py

.PHONY: test-ts
test-ts: $(STAMP) ## The TypeScript client: its suite against a real service, its types, its docs (a minute; needs Node.js)
	$(BIN)/python -m pytest -q -rs -p no:randomly tests/clients tests/core/keys/test_golden_shared.py
	@command -v node >/dev/null && command -v npm >/dev/null || echo "NOT TESTED: the TypeScript client needs Node.js 20 or later, and this machine has none"

.PHONY: chromium
chromium: $(STAMP) ## Fetch Chromium into build, for the tests with a real browser (Debian only, no root; 220 MB; make test does it by itself)
	@PYTHONPATH=tests $(BIN)/python -m servers.chromium_package

.PHONY: test-stores
test-stores: $(STAMP) ## The whole suite of stores on PostgreSQL 15 and on a divided table as well (two minutes)
	SUITES=all $(PYTEST) tests/stores/postgres/test_postgres_15.py tests/stores/postgres/test_postgres_partitions.py

.PHONY: test-loaded
test-loaded: $(STAMP) ## Tests that look at clocks, wait or have threads, three times beside a load of three times the cores
	$(BIN)/python tools/loaded.py $(LOADED)

.PHONY: schedules
schedules: $(STAMP) ## 3,000 of the explorer's schedules on PostgreSQL and Redis (SCHEDULES=, SEED=)
	SCHEDULES=$(or $(SCHEDULES),3000) $(BIN)/python -m pytest -q -rP tests/stores/schedules

.PHONY: drills
drills: $(STAMP) ## Writers, engines and the Reconciler, killed far more often than `make test` does
	SQL_KILLS=600 $(BIN)/python -m pytest -q tests/service/sql/test_sql_kills.py
	MONEY_KILLS=all $(BIN)/python -m pytest -q tests/service/test_service_money.py -k killed
	$(BIN)/python -m pytest -q -s examples/reconciler --runs 300

# Prometheus' own checker, from Debian's package; nothing is installed. A machine that has no lists of packages yet gets
# them into a folder that is deleted again, so that this needs no root and changes nothing.
PROMTOOL := build/promtool
$(PROMTOOL):
	@rm -rf build/prometheus && mkdir -p build/prometheus/lists/partial build/prometheus/cache/archives/partial
	cd build/prometheus && { apt-get -q -o APT::Sandbox::User=root download prometheus || { \
		ours="-q -o APT::Sandbox::User=root -o Dir::State::Lists=$$PWD/lists -o Dir::Cache=$$PWD/cache" && \
		apt-get $$ours update && apt-get $$ours download prometheus; }; } && dpkg -x prometheus_*.deb .
	@mv build/prometheus/usr/bin/promtool $@ && rm -rf build/prometheus

.PHONY: promtool
promtool: $(PROMTOOL) ## Fetch Prometheus' own checker into build, for the tests of ops/ (Debian only; 80 MB)

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
$(SERVE_STAMP): pyproject.toml requirements/constraints.txt
	$(MAKE_ENVIRONMENT) $(SERVE_VENV) 'what serving needs' 'three packages and what they need, about 30 MB; some seconds' $(TESTED) -e '.[serve]'
$(SERVE_STAMP): export VARIABLE = SERVE_VENV

# A setting that was refused is typed differently here: exit code 2.
.PHONY: serve
serve: $(SERVE_STAMP) ## Serve SQL over HTTP with keys and plans, on this machine (SERVE='--port 8080 ...')
	@$(SERVE_VENV)/bin/onceward serve $(SERVE) || { code=$$?; test $$code != 2 || \
		echo "Settings are typed like this: make serve SERVE='--port 8601'   (all of them: $(SERVE_VENV)/bin/onceward serve --help)" >&2; exit $$code; }

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

.PHONY: bench-page
bench-page: $(STAMP) ## Write docs/reference/benchmarks.md and the README's table from what was measured and kept (BENCH="--save docs/reference/benchmarks.json")
	$(BIN)/python tools/benchmarks_page.py
	$(BIN)/python tools/readme_speed.py

.PHONY: compare
compare: $(STAMP) ## Ask us and our peers the same questions, and write docs/explanation/compared-with-peers.md (COMPARE='--list', 'killed-after dbos')
	@echo "asking the peers in an environment of their own, .venv-bench (the first time about 400 MB; a quarter of an hour)"
	$(BIN)/python -m compare $(COMPARE)

.PHONY: pictures
pictures: $(STAMP) ## Draw docs/images anew: from the rules, simulations, killed processes and what was kept of a failover
	$(BIN)/python tools/pictures.py

# The site's generator has an environment of its own: nobody needs it to use, test or change the library.
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.ready
$(DOCS_STAMP): tools/site_builder/requirements.txt
	@echo "making $(DOCS_VENV) with the generator of the site (once; about 130 MB, some seconds)"
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -r $<
	@touch $@

.PHONY: docs
docs: $(DOCS_STAMP) ## Build the documentation as a site, with a reference made from the code: build/site (half a minute)
	$(DOCS_VENV)/bin/python tools/docs_site.py

.PHONY: docs-serve
docs-serve: docs ## Build the site and look at it on this machine (PORT=8700)
	$(DOCS_VENV)/bin/python tools/docs_site.py --serve --port $(or $(PORT),8700)

.PHONY: test-docs
test-docs: docs $(STAMP) ## The built site in a real Chromium: search from files, both themes, nothing from other hosts
	$(BIN)/python -m pytest -q -rs -p no:randomly tests/house/test_built_site.py

.PHONY: dashboard-pictures
dashboard-pictures: test-browser ## Take the pictures of docs/images that show the dashboard from its tests
	cp build/screenshots/now-1280-light.png docs/images/dashboard-now.png
	cp build/screenshots/record-in-doubt-390-dark.png docs/images/dashboard-phone.png

.PHONY: build
build: $(STAMP) ## Build the wheel and the source archive into dist/, and check them as they would be uploaded
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

.PHONY: constraints
constraints: ## Write requirements/constraints.txt anew, with the newest versions; then run the tests with them
	@rm -rf .venv-newest
	$(MAKE_ENVIRONMENT) .venv-newest 'the newest versions' 'about 200 packages, 860 MB; a minute or two' -r requirements/dev.txt
	@.venv-newest/bin/python tools/constraints.py > requirements/constraints.txt

.PHONY: clean
clean: ## Remove what the targets made
	rm -rf $(VENV) .venv-* .node clients/typescript/node_modules clients/typescript/dist build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .spec
