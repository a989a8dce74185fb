# Whatever a target needs, it makes first: .venv is built when missing or out of date.
PY := .venv/bin/python
SEED ?= 20110311
COMPILE := .venv/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --exclude-newer '1 week' \
	--generate-hashes --no-emit-index-url --custom-compile-command 'make lock'

.PHONY: help setup demo test lint bench bench-full soak resolve conformance docs lock clean

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
	.venv/bin/deptry --no-ansi src

bench: .venv/.ready ## run the short benchmark
	$(PY) -m bench

bench-full: .venv/.ready ## run the whole benchmark
	$(PY) -m bench --full

soak: .venv/.packages ## run the tests long, in timed parts (SEED=, PARTS="kills damages", any count)
	SEED=$(SEED) $(PY) scripts/soak $(PARTS)

resolve: .venv/.ready ## resolve every extra for every Python and platform, and beside other frameworks
	$(PY) scripts/resolve

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
