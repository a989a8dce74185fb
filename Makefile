# Whatever a target needs, it makes first: .venv is built when missing or out of date.
PY := .venv/bin/python
SEED ?= 20110311
COMPILE := .venv/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --exclude-newer '1 week' \
	--generate-hashes --no-emit-index-url --custom-compile-command 'make lock'

.PHONY: help setup demo test lint bench bench-full soak conformance docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## make .venv with everything pinned
.venv/.ready: pyproject.toml requirements/dev.txt
	scripts/setup
	@touch $@

.venv/.packages: scripts/packages .venv/.ready
	scripts/packages
	@touch $@

demo: .venv/.ready ## run the demo
	$(PY) examples/demo.py

test: .venv/.packages ## run the tests
	$(PY) -m pytest -q -n auto --dist worksteal

lint: .venv/.ready ## check style, types and layers
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

bench: .venv/.ready ## run the short benchmark
	$(PY) -m bench

bench-full: .venv/.ready ## run the whole benchmark
	$(PY) -m bench --full

soak: export OMOIDE_EXAMPLES ?= 2000
soak: export OMOIDE_KILLS ?= 200
soak: export OMOIDE_DAMAGES ?= 1000
soak: export OMOIDE_SECONDS ?= 60
soak: export OMOIDE_WORKERS ?= 8x4
soak: export OMOIDE_TURNS ?= 2000
soak: export OMOIDE_MCP_SERVERS ?= 8
soak: export OMOIDE_MCP_CALLS ?= 1000
soak: export OMOIDE_SCHEMA_EXAMPLES ?= 500
soak: export OMOIDE_WEB_SECONDS ?= 600
soak: .venv/.packages ## run the tests long (SEED=, and any of the counts above)
	$(PY) -m pytest -n auto --dist worksteal --timeout=0 --hypothesis-seed=$(SEED)
	$(PY) scripts/conformance

conformance: .venv/.ready ## try the MCP server with the Inspector and the protocol's own scenarios
	$(PY) scripts/conformance

docs: .venv/.docs ## build the site into site/
	.venv/bin/zensical build --clean --strict
.venv/.docs: requirements/docs.txt .venv/.ready
	$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

lock: .venv/.ready ## renew the pins, a week behind the newest releases
	$(COMPILE) pyproject.toml -o requirements/core.txt
	$(COMPILE) --all-extras pyproject.toml requirements/dev.in -c requirements/core.txt -o requirements/dev.txt
	$(COMPILE) requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt

clean: ## remove what the other targets made
	rm -rf .venv site dist .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples -name __pycache__ -prune -exec rm -rf {} +
