# What CI runs is what you run. From a bare clone: `make demo`, `make test`.
# The environment is .venv, made by the first target that needs it.

SHELL := bash
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python

# Written by .ci/setup: the environment is made again when the list of packages changes.
STAMP := .venv/.setup-done

# Tests start many processes, which read compiled modules sooner than they compile them.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(PYTHON) -m pytest -n auto --maxprocesses 4

.PHONY: help setup java demo lint types unit check all-tests test test-long test-localstack simulate contention model mutants fuzz soak bench \
    tables docs docs-serve queue bundle build clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml $(wildcard .ci/constraints.txt)
	@.ci/setup

java:
	@.ci/java

setup: java $(STAMP) ## make .venv with everything, and check that Spark finds Java 17+

demo: setup ## see it work, from an empty folder to a queried table
	@.venv/bin/eventlog demo

lint: $(STAMP) ## ruff: rules and format
	@$(PYTHON) -m ruff check . localstack/start-host
	@$(PYTHON) -m ruff format --check . localstack/start-host

types: $(STAMP) ## mypy, strict
	@$(PYTHON) -m mypy

unit: $(STAMP) ## the tests of single modules, and of the shape of the code
	@$(PYTEST) tests/unit tests/tidy

check: $(STAMP) ## lint, types and unit tests: a minute
	@$(MAKE) --no-print-directory -j lint types unit

all-tests: $(STAMP)
	@$(PYTEST)

test: setup ## lint, types, and every test that is quick and needs no server
	@$(MAKE) --no-print-directory -j lint types all-tests

# One state of the code has one outcome; test-long varies what these hold still.
check test: export PYTHONHASHSEED := 0

EXAMPLES ?= 300

test-long: setup ## tests that others stand for in make test, and EXAMPLES=300 fresh examples a property
	@EVENTLOG_EXAMPLES=$(EXAMPLES) $(PYTEST) -m 'not localstack and not bench and not soak'

test-localstack: setup ## the tests against LocalStack, which is started and stopped for them
	@$(PYTHON) localstack/start-host --port 0 --run $(PYTHON) -m pytest -m localstack

# Long runs: their length is given on the command line, and they stop by themselves.
MINUTES ?= 1
SECONDS ?= 60
SEEDS ?= 20000

simulate: $(STAMP) ## the protocol under a scheduler that owns everything: SEEDS=20000 fresh seeds
	@PYTHONPATH=tests $(PYTHON) tests/simulation/run.py $(SEEDS)

contention: $(STAMP) ## 1 to 32 writers of one table in simulated time: SECONDS=60 of it
	@PYTHONPATH=tests $(PYTHON) tests/simulation/contention.py $(SECONDS)

model: $(STAMP) ## every state of a model of the protocol, a million of them
	@PYTHONPATH=tests $(PYTHON) tests/model/run.py

mutants: $(STAMP) ## the protocol with one guard removed at a time: which test notices
	@PYTHONPATH=tests $(PYTHON) tests/mutants/run.py

fuzz: $(STAMP) ## mutated bytes for every parser: SECONDS=60 each
	@PYTHONPATH=tests $(PYTHON) tests/fuzz/run.py $(SECONDS) --save fuzz-crashes

soak: $(STAMP) ## faults and kill -9, then compaction beside appends, twice: MINUTES=1 each, SEED=…
	@PYTHONPATH=tests $(PYTHON) -m soak.run --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))
	@EVENTLOG_SOAK_MINUTES=$(MINUTES) $(PYTHON) -m pytest -m soak tests/integration tests/spark

tables: $(STAMP) ## tests/README.md: which test covers which hazard and scenario, from the marks
	@$(PYTHON) tests/tidy/coverage.py

docs: $(STAMP) ## the documents as a site, with an API reference: build/site
	@$(PYTHON) docs/make_site.py build

docs-serve: $(STAMP) ## the same on localhost:8000, as it changes
	@$(PYTHON) docs/make_site.py serve

bench: setup ## measure, side by side with the peers that pip installs
	@$(PYTHON) tests/bench/run.py

queue: $(STAMP) ## a day of overload, simulated with the real planner and queue: docs/guides/queue.png
	@$(PYTHON) -m eventlog.demo.load --out docs/guides/queue.png

bundle: $(STAMP) ## what the Lambda function runs, in dist/lambda.zip, measured and tried
	@$(PYTHON) -m eventlog.compaction.aws.bundle --out dist/lambda.zip --interpreter "$$(.ci/find-python 3.13)"

build: $(STAMP) ## the wheel, in dist/
	@$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist

clean: ## remove what builds and tests leave; .venv and .localstack stay
	@rm -rf dist build spark-warehouse metastore_db derby.log bench-results fuzz-crashes \
	    .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.venv -prune -o -path ./.localstack -prune -o -name __pycache__ -type d -print0 \
	    | xargs -0 rm -rf
