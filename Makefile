# The project's commands. `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAB := $(BIN)/python -m lab

.PHONY: help venv check lab lab-down kubeconfig registry demo test bench clean

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

# Everything goes to stderr, so that `make -s kubeconfig` prints one line only.
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -m venv $(VENV) >&2
	@$(BIN)/pip install --quiet --editable '.[dev]' >&2
	@touch $@

venv: $(VENV)/installed  ## the project's own Python environment

check: venv  ## format, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lab: venv  ## bring the test bed up: a real node, a registry, an HTCondor pool
	@$(LAB) up

lab-down: venv  ## end it and leave nothing behind
	@$(LAB) down

kubeconfig: venv  ## print the path of the admin kubeconfig
	@$(LAB) kubeconfig

registry: venv  ## print host:port of the lab's registry
	@$(LAB) registry

demo: venv  ## bring the lab up, deploy a pilot, run real jobs and show what happens
	@$(LAB) demo

# The lab comes first: it installs what the tests need, too.
test: check lab  ## all tests: unit, the engine on simulator and node, end to end
	$(BIN)/pytest --numprocesses 2 --dist worksteal $(TESTS)

bench: venv  ## the figures, measured in one run; also in build/bench.json
	@$(BIN)/python -m bench

clean: lab-down  ## end the lab, remove what was built in this folder (the lab's cache stays)
	rm -rf $(VENV) build
