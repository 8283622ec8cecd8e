# Two commands on a machine that has only python3 (3.10 or newer) and make: `make demo` and `make test`.
# What they need is brought by `make setup` into .venv/ and .tools/, and nowhere else.

PYTHON ?= python3
BIN := .venv/bin

# With it set, every start of Airflow compiles its modules again and takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help python setup demo check test test-deep test-system test-min-versions test-spark test-install test-submitters mutate bench bench-full lint format lock docs ui build clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "Python 3.10 or newer is needed, and $(PYTHON) is none. Next step: the same with PYTHON=python3.12 (or another) behind it." >&2; exit 1; }

setup: python ## Bring all that the other commands need (they call it themselves)
	@$(PYTHON) scripts/setup.py

demo: setup ## Capture, merge and check a small shop's tables, start to end
	@$(BIN)/airflow-cdc demo

check: lint ## Check the code and run the tests that need no Spark (the inner loop)
	$(BIN)/python -m pytest -q --no-spark -n 2

test: lint ## Check the code and run one proof of each rule; a dozen cases with the oldest Spark too
	@$(PYTHON) scripts/spark_minors.py 4.0 few
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test-deep: setup ## Run the other proofs: long properties, captures and stories (hours; PART=3/8 runs the third of eight parts)
	$(BIN)/python -m pytest -m deep -n 2 --dist worksteal --max-worker-restart 0 -o faulthandler_timeout=7200 --part $(or $(PART),1/1)
	@$(PYTHON) scripts/spark_minors.py 4.0 all --part $(or $(PART),1/1)
	@$(PYTHON) scripts/spark_minors.py 4.1 all --part $(or $(PART),1/1)
	@$(PYTHON) scripts/spark_minors.py 4.0 across

test-system: setup ## Run the tests against a live Airflow, an object store and a StatsD exporter (need Go), YARN and HDFS, source databases, a browser (needs npm and Chromium)
	@$(BIN)/python scripts/object_store.py
	@$(BIN)/python scripts/metrics_tools.py
	@$(BIN)/python scripts/source_databases.py
	@$(BIN)/python scripts/yarn_cluster.py
	@$(BIN)/python scripts/browser.py
	@$(BIN)/python scripts/page_requests.py
	$(BIN)/python -m pytest -m system_deep -o faulthandler_timeout=7200

test-min-versions: python ## Run the Airflow layer's tests with the lowest versions that pyproject.toml allows
	@$(PYTHON) scripts/min_versions.py

test-spark: python ## Run the golden cases and stories with another Spark: make test-spark SPARK=4.0 (WHAT="tests/golden -k x02" runs these; JAVA=21)
	@$(PYTHON) scripts/spark_minors.py $(or $(SPARK),4.0) $(WHAT)

test-install: python ## Install the wheel into released Airflows under their constraints (needs python3.12; NAMES="3.3.1-uv 3.2.1-pip" tries these)
	@$(PYTHON) scripts/installs.py $(NAMES)

test-submitters: python ## Run the tests of the Dags in dags/submitters/ with the providers of EMR, Dataproc, Databricks and Kubernetes
	@$(PYTHON) scripts/submitters.py

mutate: setup ## Change single places of the heart's code, and see whether a test fails (an hour on two cores)
	@$(BIN)/python scripts/mutate.py

bench: python ## Measure ours against its rivals, at reduced sizes (a quarter of an hour on two cores, more on slow ones)
	@$(PYTHON) scripts/setup.py bench
	$(BIN)/python -m benchmarks

bench-full: python ## The same at the sizes that the aims are about; keeps figures and plots under benchmarks/results/
	@$(PYTHON) scripts/setup.py bench
	$(BIN)/python -m benchmarks --full

ui: ## Build the page in Airflow's UI from ui/ into airflow_cdc/plugins/ui/ (needs npm; the built page is committed)
	npm --prefix ui ci --no-audit --no-fund
	npm --prefix ui run build

lint: setup ## Check style, types and who imports whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: python ## Renew the lock files from pyproject.toml (remove one first to move every version)
	@$(PYTHON) scripts/setup.py lock
	@$(PYTHON) scripts/docs.py lock

docs: setup ## Build the documentation as a site into build/site (needs Python 3.11 or newer)
	@$(BIN)/python scripts/reference.py
	@$(PYTHON) scripts/docs.py

build: setup ## Build the wheel into dist/
	$(BIN)/python -m hatchling build -t wheel

clean: ## Remove what runs left behind; .venv/ and .tools/ stay
	rm -rf dist build .airflow-cdc .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log .coverage
	find . -path ./.venv -prune -o -path ./.tools -prune -o -name __pycache__ -type d -exec rm -rf {} +
