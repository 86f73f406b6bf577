# The project's commands. `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
VENV := .venv
BIN := $(VENV)/bin
TOOLS := build/tools
# The version of the image's Python, which tests run on, too. PYTHON= names one that is not on PATH.
PYTHON_VERSION := 3.14
PYTHON ?=
LAB := $(BIN)/python -m lab

.PHONY: help venv check docs site lab lab-down kubeconfig registry demo demo-factory demo-recording test test-quick test-nightly test-many test-times attacks bench bench-quick soak fuzz lock sbom reproducible matrix vm vm-down test-vm test-vm-quick clean

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

# The environment is made anew if its Python has been removed.
ifeq ($(shell test -x $(BIN)/python || echo gone),gone)
.PHONY: $(VENV)/installed
endif

# Everything goes to stderr, so that `make -s kubeconfig` prints one line only.
$(VENV)/installed: pyproject.toml tools/image-python.sh
	@python3 -m venv $(TOOLS) >&2
	@$(TOOLS)/bin/pip install --quiet uv >&2
	@python="$(PYTHON)" && : "$${python:=$$(tools/image-python.sh $(TOOLS)/bin/uv $(PYTHON_VERSION))}" \
		&& $(TOOLS)/bin/uv venv --quiet --seed --clear --python "$$python" $(VENV) >&2 \
		|| { echo "no Python $(PYTHON_VERSION) is available: install one, or name its path (make venv PYTHON=...)" >&2; exit 1; }
	@$(TOOLS)/bin/uv pip install --quiet --python $(BIN)/python --editable '.[dev]' >&2
	@touch $@

venv: $(VENV)/installed  ## the project's own Python environment

SCRIPTS := .ci/run tools/*.sh lab/*/*.sh lab/vm/guest/init bench/scripts/*.sh soak/*.sh src/k8spilot/condor/scripts/*.sh
check: venv site  ## format, lint, types, import layers, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck $(SCRIPTS)

docs: venv  ## write the generated pages of docs/, and build the documentation's site in build/site
	@$(BIN)/python -m docs.generate
	@$(MAKE) --no-print-directory site

# MkDocs' own advertisement is left out of the output.
site: venv  ## build the site, and check its links and that the generated pages are up to date
	@$(BIN)/python -m docs.generate --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

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

demo-factory: venv  ## bring the lab up, and show how pilots follow a hundred jobs; the picture is build/demo-factory.svg
	@$(LAB) demo-factory

# A real run of `make demo`: recorded by asciinema, rendered by termtosvg. Pauses longer than 2 s are cut.
RECORDING := docs/images/demo
demo-recording: lab  ## record `make demo` in docs/images/demo.cast and render it in docs/images/demo.svg
	@mkdir -p build
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[recording]'
	$(BIN)/asciinema rec --quiet --overwrite --cols 100 --rows 39 --idle-time-limit 2 --env TERM \
		--title "k8spilot: make demo" build/demo.cast </dev/null \
		--command 'echo "$$ make demo"; TERM=xterm-256color $(MAKE) --no-print-directory demo; sleep 2'
	@grep --quiet 'outputs and files are as expected' build/demo.cast || { echo "the demo has failed; the old recording is kept" >&2; exit 1; }
	$(BIN)/termtosvg render build/demo.cast build/demo.svg --template window_frame --theme docs/images/terminal.json \
		--min-frame-duration 100 --max-frame-duration 2000 --loop-delay 6000
	cp build/demo.cast $(RECORDING).cast
	cp build/demo.svg $(RECORDING).svg

# One session of pytest for all parts: the lab comes up beside the tests that need none, tests of jobs run several at a
# time since they wait for most of theirs, and tests that stop parts of the node come last and alone (tests/runner).
# TESTS= chooses files or options of pytest, PART= a marker expression, WORKERS= how many run at a time.
PART ?=
RUNNER = $(BIN)/python -m tests.runner
ALL ?=
CHOSEN = $(if $(ALL),--everything) $(if $(WORKERS),--workers $(WORKERS)) $(if $(PART),--part "$(PART)") -- $(TESTS)
test: check  ## all kinds of tests: unit, the engine on simulator and node, end to end, attacks; ALL=1: what CI runs
	@$(RUNNER) all $(CHOSEN)

test-quick: check  ## what to run before each commit, in three minutes: checks, unit and simulator tests that are not slow, eleven stories
	@$(RUNNER) quick $(CHOSEN)

test-nightly: check  ## all tests, those that only show more of the same included
	@$(RUNNER) all $(if $(WORKERS),--workers $(WORKERS)) --seconds 18000 --part "nightly or not nightly" -- $(TESTS)

N ?= 10
test-many: venv  ## all tests N times, or a PART of them, with a table of failures (N=20 PART=disruptive)
	@$(RUNNER) many --times $(N) $(CHOSEN)

test-times: venv  ## where the time of the last `make test` went (FILE=build/test-part-times.json: of a part of it)
	@$(RUNNER) times $(FILE)

attacks: venv  ## jobs that try to break out of the payload container, as ordinary users; a part of `make test ALL=1`
	@$(RUNNER) all --part attack $(if $(WORKERS),--workers $(WORKERS)) -- $(TESTS)

bench: venv  ## the figures, measured in one run, in build/bench.json and build/bench/*.svg (BENCH="--only bind --add")
	@$(BIN)/python -m bench $(BENCH)

bench-quick: venv  ## those that change most, in three minutes, in build/bench-quick.json
	@$(BIN)/python -m bench --quick $(BENCH)

soak: venv  ## hundreds of jobs and a hundred faults; also in build/soak.json (SOAK="--seed 7 --minutes 10", "--slots 8")
	@$(BIN)/python -m soak $(SOAK)

SECONDS_OF_FUZZING ?= 300
fuzz: venv  ## inputs drawn at random, other ones each time (SECONDS_OF_FUZZING=3600)
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS_OF_FUZZING)

# For the image's own Python. What is locked stays as it is where it still fits; UPGRADE= keeps all that does.
UPGRADE ?= --upgrade
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-header --python-version $(PYTHON_VERSION) $(UPGRADE)
lock: venv  ## renew requirements*.txt: versions and hashes of what the images have from PyPI
	$(LOCK) pyproject.toml --extra pilot --output-file requirements.txt
	$(LOCK) pyproject.toml --extra provisioner --constraint requirements.txt --output-file requirements-provisioner.txt
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | $(LOCK) - --output-file requirements-build.txt

matrix: venv  ## demo, engine, jobs, attacks and GPUs on each kind of cluster (VERSIONS="1.34 1.36+23.9"); ends the lab
	@$(BIN)/python -m lab.matrix $(VERSIONS)

vm: venv  ## start an emulated machine with cgroup v2 and systemd, with this checkout in it
	@$(BIN)/python -m lab.vm up

vm-down: venv  ## end it
	@$(BIN)/python -m lab.vm down

test-vm: venv  ## the demo and some tests in such a machine; the report is in build/vm (TESTS="-k ssh": these tests alone)
	@$(BIN)/python -m lab.vm test -- $(TESTS)

# The smallest useful part of it: the engine's tests whose results depend on the version of cgroups.
test-vm-quick: venv  ## in such a machine: usage, memory limit and out of memory of a job, as CI does after `make test ALL=1`
	@$(BIN)/python -m lab.vm test -- tests/engine/test_stats.py tests/engine/test_faults.py -m node

sbom: venv  ## what the project's image is made of, as CycloneDX, in build/sbom.cdx.json
	@$(BIN)/python -m lab.supply sbom

reproducible: venv  ## build the project's image twice without a cache, and say which files differ
	@$(BIN)/python -m lab.supply reproducible

clean: lab-down  ## end the lab, remove what was built in this folder (the lab's cache stays)
	rm -rf $(VENV) build
