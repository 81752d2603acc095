# make demo    a real model answers a question        make check      all that CI runs
# make test    the tests, without torch               make sanitize   the tests of the native code under sanitizers
#
# Each makes its own virtual environment when it is missing, and builds again when the native code has changed.

PYTHON ?= python3
PROMPT ?= Write a Python class for a bank account with methods to deposit, withdraw and show the balance.
MODEL := smollm2-135m
FETCH := from soothsay.hub import resolve; resolve('$(MODEL)')
# Folders too: the editable install knows the modules that there were when it was made.
BUILT := pyproject.toml CMakeLists.txt $(shell find native -type f) $(shell find src -type d -not -name __pycache__)

.PHONY: demo test check sanitize clean

demo: .venv/ready
	.venv/bin/soothsay generate --model $(MODEL) "$(PROMPT)"

test: .venv/ready
	.venv/bin/python -c "$(FETCH)"
	.venv/bin/pytest --ignore tests/live

check: .venv-check/ready
	.venv-check/bin/ruff format --check .
	.venv-check/bin/ruff check .
	.venv-check/bin/mypy
	.venv-check/bin/python -c "$(FETCH)"
	.venv-check/bin/pytest

sanitize: .venv-sanitize/ready
	bash scripts/sanitize.sh .venv-sanitize/bin/python

clean:
	rm -rf .venv .venv-check .venv-sanitize build dist .mypy_cache .pytest_cache .ruff_cache

.venv/ready: GROUP := test
.venv-check/ready: GROUP := check
.venv-sanitize/ready: GROUP := test
.venv-sanitize/ready: OPTIONS := -C cmake.define.SOOTHSAY_SANITIZE=ON -C install.strip=false

# Built without isolation and in a folder of its own, so that a change compiles only what it touches.
.venv/ready .venv-check/ready .venv-sanitize/ready: $(BUILT)
	@echo "Setting up $(@D): packages, then the native code (a few minutes the first time)"
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet "pip>=25.1"
	$(@D)/bin/pip install --quiet --group build
	$(@D)/bin/pip install --quiet --group $(GROUP) --no-build-isolation -C build-dir=build/$(@D) $(OPTIONS) --editable .
	@touch $@
