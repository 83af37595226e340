# CI runs these targets too. From a bare clone: `make demo`, `make test`.
# The environment is .venv, created by the first target that needs it.

SHELL := bash
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python

# Written by .ci/setup: the environment is recreated when the list of packages changes.
STAMP := .venv/.setup-done

# Tests start many processes, which load compiled modules faster than they compile them.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(PYTHON) -m pytest -n auto --maxprocesses 4

.PHONY: help setup java demo demo-spark lint types unit check quick-tests all-tests test verify test-long test-localstack test-spark-matrix test-oldest test-s3a test-engines test-stores test-view test-notebooks test-publishing simulate histories rows columns forks contention model mutants fuzz soak soak-appender bench bench-costs bench-upserts bench-clones bench-changes bench-granularities \
    tables cli-page docs docs-serve queue bundle build clean

# Each part writes its name to FAILED if it fails, so that the last line can say which did.
FAILED := /dev/null
or_note = || { echo "$@" >> "$(FAILED)"; exit 1; }
# The parts $(1) run at the same time, and all of them to their end.
define in_parallel
+@failed=$$(mktemp) && trap 'rm -f "$$failed"' EXIT && \
$(MAKE) --no-print-directory -j --keep-going FAILED="$$failed" $(1) || \
{ sed 's/.*/$@: & failed/' "$$failed" >&2; exit 1; }
endef

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml $(wildcard .ci/constraints.txt)
	@.ci/setup

# Python compiles a module when it is first imported: those that tests import once here, beside lint
# and types, instead of in each of the processes that later start at the same time.
COMPILED := .venv/.compiled
$(COMPILED): $(STAMP)
	@$(PYTHON) -m compileall -q eventlog pyspark_eventlog
	@$(PYTHON) -m pytest --collect-only -q >/dev/null || true
	@touch $@

java:
	@.ci/java

setup: java $(STAMP) ## create .venv with all dependencies, and check that Spark finds Java 17+

demo: $(STAMP) ## many programs append beside compaction, in 15 seconds; then, where Java is, a short form of demo-spark
	@.venv/bin/eventlog demo
	@if .ci/java --check; then \
	    printf '\n== Now with Spark, every 10th day of the year; make demo-spark has all of them: minutes\n'; \
	    .venv/bin/eventlog demo --spark --quick; \
	else \
	    printf '\n== Left out: the demonstration with Spark, since Java 17 or newer was not found (make demo-spark)\n'; \
	fi

demo-spark: setup ## a year of flights appended by Spark jobs, compacted, read by three engines; upserts
	@.venv/bin/eventlog demo --spark

lint: $(STAMP) ## ruff: rules and format
	@$(PYTHON) -m ruff check . localstack/start-host $(or_note)
	@$(PYTHON) -m ruff format --check . localstack/start-host $(or_note)

types: $(STAMP) ## mypy, strict
	@$(PYTHON) -m mypy $(or_note)

unit: $(COMPILED) ## the tests of single modules, and of the code's structure
	@$(PYTEST) tests/unit tests/tidy $(or_note)

check: $(STAMP) ## lint, types and unit tests: about a minute on two cores
	$(call in_parallel,lint types unit)

quick-tests: $(COMPILED)
	@$(PYTEST) $(or_note)

# With those that take half a second or more, kill processes, or use Spark and are not marked
# everyday: in one run, so that tests are collected once and the session of Spark starts once.
all-tests: $(COMPILED)
	@$(PYTEST) -m 'not demo and not localstack and not bench and not soak and not long and not maven' $(or_note)

test: setup ## lint, types, and every quick test: some four minutes on two cores
	$(call in_parallel,lint types quick-tests)

verify: setup ## lint, types, and the slower tests, too: some ten minutes on two cores
	$(call in_parallel,lint types all-tests)

# Deterministic: one state of the code has one outcome. test-long varies the seeds.
check test verify: export PYTHONHASHSEED := 0

EXAMPLES ?= 300

test-long: setup $(COMPILED) ## the slow tests that make test leaves out, and EXAMPLES=300 fresh examples per property
	@EVENTLOG_EXAMPLES=$(EXAMPLES) $(PYTEST) -m 'not localstack and not bench and not soak and not maven'

test-localstack: setup ## the tests against LocalStack, which is started and stopped for them
	@$(PYTHON) localstack/start-host --port 0 --run $(PYTHON) -m pytest -m localstack

test-spark-matrix: setup ## the Spark tests on 3.5 to the newest: VERSIONS="3.5 newest"; writes the table of docs/guides/pyspark.md
	@.ci/spark-matrix $(VERSIONS)

test-oldest: ## a selection with the oldest version of each dependency that pyproject.toml allows, without Spark
	@.ci/oldest $(TESTS)

test-s3a: setup ## Spark's own Parquet reader on S3, with the real hadoop-aws from Maven
	@$(PYTHON) -m pytest -m maven tests/spark

test-engines: setup ## the same questions on the same versions in every engine, equal or refused, and what others' writes do; writes the tables of docs/guides/engine-matrix.md
	@.ci/engines
	@PYTHONPATH=.:tests:tests/engines $(PYTHON) -P tests/engines/run.py $(if $(ONLY),--only "$(ONLY)")
	@PYTHONPATH=.:tests:tests/engines:tests/engines/strangers $(PYTHON) -P tests/engines/strangers/tried.py $(if $(ONLY),--only "$(ONLY)")

test-stores: $(STAMP) ## servers that speak S3, each installed and tried by eight writers beside compaction; writes the table of docs/stores.md: some ten minutes
	@PYTHONPATH=.:tests $(PYTHON) -P tests/stores/run.py $(if $(ONLY),--only "$(ONLY)")

COMMITS ?= 10000

test-view: $(STAMP) ## the page of eventlog view in headless Chromium: slider, hover, keys, axe-core, sizes and times; COMMITS=10000 in its large table: some ten minutes
	@.ci/view
	@PYTHONPATH=.:tests build/view/bin/python -P tests/browser/run.py --commits $(COMMITS)

test-notebooks: $(STAMP) ## the notebooks of examples/ in a kernel: each shows what it stores; WRITE=1 stores what they show
	@.ci/notebooks
	@PATH="$(CURDIR)/.venv/bin:$$PATH" PYTHONPATH=.:tests build/notebooks/bin/python -P tests/docs/run_notebooks.py $(if $(WRITE),--write)

VERSIONS_PUBLISHED ?= 1000

test-publishing: $(STAMP) ## VERSIONS_PUBLISHED=1000 beside writers and vacuums by processes that are killed, in a directory and on S3: some ten minutes
	@PYTHONPATH=tests $(PYTHON) -m soak.publications --versions $(VERSIONS_PUBLISHED) $(if $(SEED),--seed $(SEED))

# Long runs: their length is given on the command line.
MINUTES ?= 1
SECONDS ?= 60
SEEDS ?= 20000
HISTORIES ?= 10000

simulate: $(STAMP) ## the protocol under a deterministic scheduler: SEEDS=20000 fresh seeds
	@PYTHONPATH=tests $(PYTHON) tests/simulation/run.py $(SEEDS)

histories: $(STAMP) ## keyed tables against a dictionary: HISTORIES=10000 fresh ones, three a second
	@$(PYTHON) tests/property/histories.py $(HISTORIES)

rows: $(STAMP) ## deletes, updates, overwrites and merges against a dictionary: HISTORIES=10000 fresh ones, three a second
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of rows

columns: $(STAMP) ## chains of 50 changes of columns, read back at every version: HISTORIES=10000 fresh ones, one a second
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of columns
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of keyed-columns

forks: $(STAMP) ## copies and branches that are merged, with a key and without: HISTORIES=10000 fresh ones, two a second
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of forks
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of branches
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of deep
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of held
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of keyed-forks
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of united
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of united-keyed
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of doubled
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of rings
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of unit-rings
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of row-forks
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of row-branches
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of row-deep
	@$(PYTHON) tests/property/histories.py $(HISTORIES) --of row-united

contention: $(STAMP) ## 1 to 32 writers of one table for SECONDS=60 of simulated time
	@PYTHONPATH=tests $(PYTHON) tests/simulation/contention.py $(SECONDS)

model: $(STAMP) ## every state of a model of the protocol, a million of them
	@PYTHONPATH=tests $(PYTHON) tests/model/run.py

mutants: $(STAMP) ## the protocol with one guard removed at a time: which test fails
	@PYTHONPATH=tests $(PYTHON) tests/mutants/run.py

fuzz: $(STAMP) ## mutated bytes for every parser: SECONDS=60 each
	@PYTHONPATH=tests $(PYTHON) tests/fuzz/run.py $(SECONDS) --save fuzz-crashes

soak: $(STAMP) ## faults and kill -9, then changes of rows and compaction beside appends: MINUTES=1 each, SEED=…
	@PYTHONPATH=tests $(PYTHON) -m soak.run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))
	@EVENTLOG_SOAK_MINUTES=$(MINUTES) $(PYTHON) -m pytest -m soak tests/soak/test_changed_rows.py tests/integration tests/spark

KILLS ?= 200

soak-appender: $(STAMP) ## KILLS=200 kill -9 of processes with an appender, in a directory and on an S3 server, SEED=…: half an hour
	@PYTHONPATH=tests $(PYTHON) -m soak.run_appenders --kills $(KILLS) $(if $(SEED),--seed $(SEED))

tables: $(STAMP) ## update the tables of hazards and scenarios in tests/README.md from the marks
	@$(PYTHON) tests/tidy/coverage.py

cli-page: $(STAMP) ## write docs/cli.md, the page of the program's verbs, from the program
	@$(PYTHON) docs/make_cli.py

docs: $(STAMP) ## the documentation site with an API reference: build/site
	@$(PYTHON) docs/make_site.py build

docs-serve: $(STAMP) ## the same on localhost:8000, rebuilt on changes
	@$(PYTHON) docs/make_site.py serve

bench: setup ## benchmarks, beside other table formats that pip installs
	@$(PYTHON) tests/bench/run.py

bench-costs: $(STAMP) ## the requests of each operation beside deltalake and pyiceberg; writes the tables of docs/cost.md: some ten minutes
	@PYTHONPATH=.:tests $(PYTHON) -P tests/bench/costs.py

bench-upserts: setup ## upserts from Spark beside Delta Lake, Iceberg and Hudi (jars from Maven), ONLY=…: an hour
	@.ci/spark-matrix --install 3.5
	@$(PYTHON) tests/bench/upserts.py $(if $(ONLY),--only "$(ONLY)")

bench-clones: setup ## branches beside Delta Lake's shallow clones, from Spark (jars from Maven)
	@.ci/spark-matrix --install 3.5
	@$(PYTHON) tests/bench/clones.py

bench-changes: setup ## deletes and updates from Spark beside Delta Lake and Iceberg (jars from Maven)
	@.ci/spark-matrix --install 3.5
	@$(PYTHON) tests/bench/spark_changes.py

bench-granularities: setup ## five shapes of data in tables of each granularity, and in one that follows its data: half an hour
	@$(PYTHON) tests/bench/granularities.py

queue: $(STAMP) ## a day of overload, simulated with the real planner and queue: docs/guides/queue.png
	@$(PYTHON) tests/bench/queue_load.py --out docs/guides/queue.png

bundle: $(STAMP) ## the Lambda function's bundle, dist/lambda.zip, measured and tested
	@$(PYTHON) -m eventlog.compaction.aws.bundle --out dist/lambda.zip --interpreter "$$(.ci/find-python 3.13)"

build: $(STAMP) ## the wheel, in dist/
	@$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist

clean: ## remove files left by builds and tests; keep .venv, .spark and .localstack
	@rm -rf dist build spark-warehouse metastore_db derby.log bench-results fuzz-crashes \
	    .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.venv -prune -o -path ./.spark -prune -o -path ./.localstack -prune -o -name __pycache__ -type d -print0 \
	    | xargs -0 rm -rf
