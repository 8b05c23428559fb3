# Everything a newcomer needs, from a fresh clone: `make up` sets up and starts the broker, `make test` checks it.
# Each target does its own set-up, in .venv and nowhere else. Packages come from hashed lists in requirements/.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VENV := .venv
BIN := $(VENV)/bin
RUN_WITH := requirements/spark.txt requirements/build.txt
TEST_WITH := $(RUN_WITH) requirements/dev.txt
UP ?=
BENCH ?=
PEERS ?=
BURSTS ?=
CRASH ?=
FUZZ ?=
CANARIES ?=
ROUNDS ?= 20
SOAK ?= 1

# Tests start hundreds of processes, which are not to compile the same sources again.
unexport PYTHONDONTWRITEBYTECODE

# FAST=1 runs the copy that `make compiled` builds, with `make up` and `make bench`, and builds it first. Without FAST,
# `make up` runs that copy if there is one and no file has changed since; FAST=0 never does.
FIND_SOURCES := find src/penstock -type f -not -name '*.pyc'
SOURCES := $(shell $(FIND_SOURCES))
ifeq ($(FAST),1)
export PYTHONPATH := $(CURDIR)/build/compiled
COMPILED := build/compiled/.ready
else ifeq ($(FAST),)
up: export PYTHONPATH := $(shell newer=$$($(FIND_SOURCES) -newer build/compiled/.ready 2>&1); test "$$newer" || echo $(CURDIR)/build/compiled)
endif

.PHONY: help up setup check test lint types pytest unit bench bench-peers bursts bench-spark crash spark-kills fuzz fuzz-rounds canaries matrix test-kafka kafka-faults bench-kafka test-delta test-s3 reference pictures screenshots console-load console-cost docs soak compiled test-compiled wheel lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/.ready-to-run $(COMPILED) ## set up and start broker, generator and pipeline (flags: make up UP="--durability written")
	@sh scripts/java.sh
	@exec $(BIN)/penstock up $(UP)

setup: $(VENV)/.ready-to-test ## set up .venv for running and testing, start nothing

check: lint build ## lint, types and the tests that start no process, in some two minutes
	@$(call BESIDE_TYPES,$(MAKE) --no-print-directory unit)

test: lint build ## lint, types and all tests
	@$(call BESIDE_TYPES,$(MAKE) --no-print-directory pytest)

lint: $(VENV)/.ready-to-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.ready-to-test
	$(BIN)/mypy

# The tests of a file stay together and in order. More processes than processors, because tests wait a part of the time;
# no more than four: each takes memory, and time to collect all tests.
PYTEST = $(BIN)/pytest --dist loadfile --no-loadscope-reorder --numprocesses

pytest: $(VENV)/.ready-to-test
	@$(MAKE) --no-print-directory --jobs 2 build/spark-classes.jsa build/.tests-rewritten
	@rm -f build/pytest.code
	$(PYTEST) 4 || { code=$$?; echo $$code >build/pytest.code; exit $$code; }

unit: $(VENV)/.ready-to-test build/.tests-rewritten
	$(PYTEST) 4 -m unit --hypothesis-profile quick

# Types are checked while tests run, which now and then wait; what mypy says comes below what they say.
define BESIDE_TYPES
$(BIN)/mypy >build/types.txt 2>&1 & types=$$!; code=0; \
$(1) || code=$$?; \
wait $$types || code=$$?; echo $(BIN)/mypy; cat build/types.txt; exit $$code
endef

build:
	@mkdir -p $@

# Pytest compiles every module of the tests anew in a fresh clone, which one process does instead of all at the same time.
build/.tests-rewritten: requirements/dev.txt | $(VENV)/.ready-to-test build
	@$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true # what is wrong is reported by the run itself
	@touch $@

# Java's own archive of Spark's classes: with it, Spark starts in half the time.
build/spark-classes.jsa: requirements/spark.txt tests/spark/class_archive.py | $(VENV)/.ready-to-test
	@sh scripts/java.sh
	@echo "preparing Spark for tests: half a minute, once"
	$(BIN)/python -m tests.spark.class_archive $@

bench: $(VENV)/.ready-to-test $(COMPILED) ## measure the broker against this machine's own limits
	$(BIN)/python benchmarks/run.py $(BENCH)

# Penstock's compiled package is among them if `make compiled` has built it.
bench-peers: $(VENV)/.ready-to-test ## measure Penstock beside redis-server and nats-server, if they are on PATH (make bench-peers PEERS="--only table")
	$(BIN)/python -m benchmarks.peers $(PEERS)

bench-spark: $(VENV)/.ready-to-test ## measure the Spark side against Spark's own Parquet reader and file stream
	$(BIN)/python benchmarks/spark.py $(BENCH)

crash: $(VENV)/.ready-to-test ## the long crash run: hundreds of kills, tens of thousands of simulated crashes (all doors: CRASH="--all-doors 300")
	$(BIN)/python -m tests.crash.long $(CRASH)

spark-kills: $(VENV)/.ready-to-test ## kill pipelines on Spark and their broker: 30 times into topics, 20 times into tables (a quarter of an hour)
	$(BIN)/python -m tests.crash.long --only-spark $(CRASH)

bursts: $(VENV)/.ready-to-test ## how long bursts of one client make another wait, as a table (make bursts BURSTS="flymq http")
	BURST_BYTES=1000000 $(BIN)/python -m tests.fuzz.bursts $(BURSTS)

fuzz: $(VENV)/.ready-to-fuzz ## fuzzing that coverage guides, half a minute for each target (make fuzz FUZZ="--seconds 600 --only sessions")
	$(BIN)/python -m tests.fuzz.campaign $(FUZZ)

fuzz-rounds: $(VENV)/.ready-to-test ## hours of the random fuzzing tests, with other seeds in each round (make fuzz-rounds ROUNDS=100)
	@for round in $$(seq $(ROUNDS)); do \
	  export PENSTOCK_FUZZ_ROUND=$$(date +%s)-$$round; echo "PENSTOCK_FUZZ_ROUND=$$PENSTOCK_FUZZ_ROUND"; \
	  $(BIN)/pytest -q -x tests/fuzz; \
	done

canaries: $(VENV)/.ready-to-test ## plant bugs, one at a time, and name the tests that notice each (some: make canaries CANARIES="ack-before-sync last-batch-lost")
	$(BIN)/python -m tests.canaries $(CANARIES)

matrix: $(VENV)/.ready-to-test build/spark-classes.jsa ## every way into the log against every way out of it; writes the table of docs/conformance.md
	$(BIN)/python -m tests.matrix $(MATRIX)

# Kafka itself comes from Maven, and needs Java; `make test` leaves these tests out.
build/kafka/.ready: tests/kafka/pom.xml | build
	@command -v mvn >/dev/null || { echo "Kafka's jars come by Maven, and there is no mvn on PATH." >&2; exit 1; }
	@sh scripts/java.sh
	mvn --quiet --batch-mode --file tests/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/build/kafka
	@touch $@

test-kafka: $(VENV)/.ready-to-test build/kafka/.ready ## brokers on a journal on Kafka: three real nodes, killed and stopped; needs mvn, takes some minutes
	PENSTOCK_TEST_KAFKA_JARS=$(CURDIR)/build/kafka $(BIN)/pytest tests/kafka $(KAFKA)

bench-kafka: $(VENV)/.ready-to-test build/kafka/.ready ## a journal on Kafka beside files and beside librdkafka alone: three nodes here, about 4 minutes
	PENSTOCK_TEST_KAFKA_JARS=$(CURDIR)/build/kafka PYTHONPATH=$(CURDIR) $(BIN)/python benchmarks/kafka.py $(BENCH)

# Delta's own connector for Spark; tests that need it are skipped without it. Unity Catalog's one is not in every repository.
DELTA_POM = tests/spark/delta_connector/pom.xml
UNITY_CONNECTOR = io.unitycatalog:unitycatalog-spark_4.2_2.13:0.6.0
build/delta-connector/.ready: $(DELTA_POM) | build
	@command -v mvn >/dev/null || { echo "Delta's connector for Spark comes by Maven, and there is no mvn on PATH." >&2; exit 1; }
	@rm -rf $(@D)
	mvn --quiet --batch-mode --file $(DELTA_POM) dependency:copy-dependencies -DincludeScope=runtime \
	  -DincludeGroupIds=io.delta,io.unitycatalog -DoutputDirectory=$(CURDIR)/$(@D)
	@mvn --quiet --batch-mode --file $(DELTA_POM) dependency:copy -Dartifact=$(UNITY_CONNECTOR) -DoutputDirectory=$(CURDIR)/$(@D) \
	  >/dev/null 2>&1 || echo "Maven has no $(UNITY_CONNECTOR): tests/spark/test_unity_catalog.py uses a stand-in"
	@touch $@

test-delta: $(VENV)/.ready-to-test build/spark-classes.jsa build/delta-connector/.ready ## tables as Delta's own connector for Spark reads them, by a catalog too; needs mvn
	$(BIN)/pytest tests/spark/test_delta_connector.py tests/spark/test_unity_catalog.py $(DELTA)

# Hadoop's S3 file system for Spark, some 700 MB, and an object store in Python. Without them tests/spark/test_s3a.py is skipped.
S3_POM = tests/spark/hadoop_aws/pom.xml
build/hadoop-aws/.ready: $(S3_POM) | build
	@command -v mvn >/dev/null || { echo "Hadoop's S3 file system comes by Maven, and there is no mvn on PATH." >&2; exit 1; }
	@rm -rf $(@D)
	mvn --quiet --batch-mode --file $(S3_POM) dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D)
	@touch $@

build/s3-venv/.ready: requirements/s3.txt | $(BIN)/uv build
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/s3-venv
	$(BIN)/uv pip sync --quiet --python build/s3-venv/bin/python --require-hashes requirements/s3.txt
	@touch $@

test-s3: $(VENV)/.ready-to-test build/spark-classes.jsa build/hadoop-aws/.ready build/s3-venv/.ready ## tables in an object store as Spark's executors read them; needs mvn
	$(BIN)/pytest tests/spark/test_s3a.py

kafka-faults: $(VENV)/.ready-to-test build/kafka/.ready ## faults under load over all doors: three brokers, three Kafka nodes (fewer: FAULTS="--faults 10")
	PENSTOCK_TEST_KAFKA_JARS=$(CURDIR)/build/kafka $(BIN)/python -m tests.kafka.faults $(FAULTS)

reference: $(VENV)/.ready-to-test ## write docs/reference/ anew: commands, configuration keys, metrics and errors, from the code
	$(BIN)/python -m scripts.reference

pictures: $(VENV)/.ready-to-test ## draw docs/pictures/ anew
	$(BIN)/python -m scripts.pictures

docs: build/docs-venv/.ready | build ## build the documents as a site, in build/site
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --strict --quiet --site-dir build/site
	@echo "build/site/index.html"

# The site's packages have nothing to do with the broker's: they have an environment of their own.
build/docs-venv/.ready: requirements/docs.txt | $(BIN)/uv build
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/docs-venv
	$(BIN)/uv pip sync --quiet --python build/docs-venv/bin/python --require-hashes requirements/docs.txt
	@touch $@

screenshots: $(VENV)/.ready-to-test ## pictures of the console for docs/console.md, from a broker with demo data (takes chromium)
	$(BIN)/python -m tests.console.screenshots
	$(BIN)/python -m tests.console.walk

console-load: $(VENV)/.ready-to-test ## the console while 1,000 records a second are written: a live tail for a minute, every page (takes chromium)
	CONSOLE_LOAD_SECONDS=60 $(BIN)/pytest tests/console/test_load.py -s

console-cost: $(VENV)/.ready-to-test ## what the console costs the broker, closed and with a page open, in two minutes (takes chromium)
	$(BIN)/python -m tests.console.cost

soak: $(VENV)/.ready-to-test build/spark-classes.jsa ## all tests, in random order, under hard conditions (rounds: make soak SOAK=5)
	@sh scripts/soak.sh $(BIN)/pytest $(SOAK)

compiled: build/compiled/.ready ## compile the hot modules (optional, needs gcc), for make up, and for make bench FAST=1

build/compiled/.ready: scripts/compile.py $(SOURCES) | $(VENV)/.ready-to-test
	$(BIN)/python scripts/compile.py
	@touch $@

# Left out: tests that replace methods of classes or inherit from them, which compiled ones do not allow.
test-compiled: build/compiled/.ready ## the tests of log, queues, sessions, crashes and whole processes, on what `make compiled` built
	PYTHONPATH=$(CURDIR)/build/compiled $(PYTEST) 4 tests/log tests/crash tests/e2e tests/broker/test_broker.py \
	  --ignore tests/crash/test_schedules.py --ignore tests/crash/test_kafka_schedules.py \
	  tests/broker/queues/test_queues.py tests/broker/transactions/test_transactions.py tests/wire/flymq/test_frames.py \
	  tests/wire/flymq/test_messages.py tests/wire/flymq/test_coalesced_produce.py tests/wire/flymq/test_single_produce.py \
	  tests/wire/rustlog/test_single_produce.py tests/wire/blipmq/test_frames.py tests/doors/*/test_session.py

$(BIN)/uv: requirements/bootstrap.txt
	@python=$$(PYTHON="$(PYTHON)" sh scripts/python.sh) || exit 1; \
	if ! test -x $(BIN)/python || ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  echo "creating $(VENV) with $$python"; \
	  "$$python" -m venv $(VENV) || { \
	    echo "Python's venv module does not work here. On Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

# A list that changes makes its stamp old, and the next run installs exactly what the lists say. The test stamp implies
# the other; installing for running alone removes what only tests need, so that stamp goes.
# PySpark comes as a source archive only, so what it is built with comes first, from a list of its own.
$(VENV)/.ready-to-run: $(BIN)/uv $(RUN_WITH) pyproject.toml
	@$(TELL_SPARK)
	$(INSTALL) --require-hashes -r requirements/build.txt
	@echo "installing packages into $(VENV)"
	@$(BIN)/uv pip sync --python $(BIN)/python --no-build-isolation --require-hashes $(RUN_WITH)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline --editable .
	@rm -f $(VENV)/.ready-to-test $(VENV)/.ready-to-fuzz
	@touch $@

$(VENV)/.ready-to-test: $(BIN)/uv $(TEST_WITH) pyproject.toml
	@$(TELL_SPARK)
	$(INSTALL) --require-hashes -r requirements/build.txt
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --no-build-isolation --require-hashes $(TEST_WITH)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline --editable .
	@rm -f $(VENV)/.ready-to-fuzz
	@touch $(VENV)/.ready-to-run $@

# Beside what tests need, and not in their list: it is for few machines, and nobody else is to wait for it.
$(VENV)/.ready-to-fuzz: $(VENV)/.ready-to-test requirements/fuzz.txt
	$(INSTALL) --no-deps --require-hashes -r requirements/fuzz.txt
	@touch $@

INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python
TELL_SPARK = test -d $(VENV)/lib/python3*/site-packages/pyspark || \
	echo "installing Spark for Python: 435 MB, a minute or two with a quick line"

COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links

# The original's published clients that tests run, each in an environment of its own (tests/released_clients.py).
KIMBERLITE = 0.6.1 0.7.0 0.8.0 0.9.1

wheel: $(VENV)/.ready-to-test ## wheels in dist/: one for everywhere and, with a C compiler, one with compiled modules
	$(BIN)/python scripts/wheel.py

lock: $(BIN)/uv ## write requirements/*.txt anew from pyproject.toml (LOCK=--upgrade for newer versions)
	$(COMPILE) $(LOCK) pyproject.toml --output-file requirements/base.txt
	$(COMPILE) $(LOCK) pyproject.toml --extra spark --constraints requirements/base.txt --output-file requirements/spark.txt
	$(COMPILE) $(LOCK) --group build --constraints requirements/base.txt --output-file requirements/build.txt
	$(COMPILE) $(LOCK) --group dev --constraints requirements/spark.txt --constraints requirements/build.txt \
	  --output-file requirements/dev.txt
	$(COMPILE) $(LOCK) pyproject.toml --extra kafka --constraints requirements/base.txt --constraints requirements/dev.txt --output-file requirements/kafka.txt
	$(COMPILE) $(LOCK) --group fuzz --constraints requirements/dev.txt --output-file requirements/fuzz.txt
	$(COMPILE) $(LOCK) --group s3 --output-file requirements/s3.txt
	$(COMPILE) $(LOCK) --group docs --output-file requirements/docs.txt
	$(COMPILE) $(LOCK) requirements/bootstrap.in --output-file requirements/bootstrap.txt
	for version in $(KIMBERLITE); do \
	  echo "kimberlite==$$version" | $(COMPILE) --no-annotate - --output-file requirements/kimberlite-$$version.txt || exit 1; \
	done
	@if grep -n '://' requirements/*.txt; then echo "an address of a package index is in a lock file" >&2; exit 1; fi

clean: ## remove .venv and all caches; data/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
