# make demo   train softmax and AS-Softmax on names in 89 languages, which come with a package, and compare them: a few minutes
# make test   lint, types, tests, and the wheel installed into an empty environment
# make lint   ruff and mypy alone
# Each makes its own .venv first where there is none. PYTHON=python3.12 make test picks another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
JOBS ?= 2

.PHONY: demo test lint pytest wheel bench clean

demo: $(VENV)/.lab
	$(BIN)/sparring compare languages --losses softmax,as-softmax --seeds 2 --epochs 6 --jobs $(JOBS) --fresh

test: lint pytest wheel

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS)

# what a user gets: the wheel, with torch and entmax and nothing else
wheel: $(VENV)/.dev
	rm -rf dist build
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt dist/*.whl
	cd build && empty/bin/python ../tests/check_wheel.py

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/skip.py
	$(BIN)/python benchmarks/linear.py

$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(f"Python 3.10 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.12 ..." if sys.version_info < (3, 10) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt torch
	@touch $@

$(VENV)/.lab: $(VENV)/.torch pyproject.toml
	$(PIP) install -q -c constraints.txt -e '.[lab]'
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
