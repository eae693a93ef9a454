# Two commands for a newcomer: `make demo` and `make test`. Both do all set-up on Debian 12 or 13 as root.
SHELL := /bin/bash
PY := .venv/bin/python
JUNEAU := .venv/bin/juneau

.PHONY: help setup setup-test demo test fuzz foreign compile test-compiled check format bench e2e soak clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## setup   .venv and the Debian packages to run juneau
setup:
	@scripts/setup run

setup-test:
	@scripts/setup test

## demo    two VPCs with the same addresses on this machine, one handler, real curl and dig
demo: setup
	@$(JUNEAU) lab run -f examples/demo --service examples/hello.py:Hello -- examples/demo/check.sh

## test    all tests; as root with real packets, else what can run (and it says what it left out)
test: setup-test
	@$(PY) -m pytest

## fuzz    Hypothesis for longer: every property test with many times the examples
fuzz: setup-test
	@HYPOTHESIS_PROFILE=long $(PY) -m pytest --timeout 3600 tests/testing tests/netstack

## foreign  others' test suites on the network in a process (see docs/network-in-a-process.md)
foreign: setup-test
	@$(PY) tests/foreign/cpython.py
	@$(PY) tests/foreign/libraries.py

## compile  a wheel in dist/ with the stack compiled ahead of time (see docs/operations.md)
compile:
	@scripts/setup compile
	@scripts/compile dist

## test-compiled  the stack's tests and the lab's traffic against such a wheel
test-compiled:
	@scripts/setup test compile
	@rm -rf build/compiled && mkdir -p build/compiled
	@$(PY) -m zipfile -e $$(scripts/compile build/wheels) build/compiled
	@PYTHONPATH=$(CURDIR)/build/compiled JUNEAU_COMPILED=1 $(PY) -P -m pytest \
	  tests/netstack tests/testing tests/packetplane tests/services tests/lab/test_traffic.py

## check   format, lint, types, import contracts
check: setup-test
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo 2>/dev/null || .venv/bin/lint-imports

format: setup-test
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

## bench   peers side by side in one run, options in ARGS (see docs/benchmarks.md)
bench:
	@bench/prepare
	@$(PY) -m bench $(ARGS)

## e2e     on Kubernetes
e2e:
	@echo "make e2e: nothing to run on Kubernetes yet (see e2e/README.md); the lab's tests are in make test" >&2; exit 2

## soak    a lab under load for JUNEAU_SOAK_S seconds (300), and what else takes minutes
soak: setup-test
	@$(PY) -m pytest -m soak

## clean   remove what setup and the tools made
clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
