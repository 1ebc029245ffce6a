# make demo   softmax, AS-Softmax and the speed preset on names in 89 languages: a table, a verdict, report.html; under 5 minutes
# make test   lint, types, tests, and the wheel installed into an empty environment
# make lint   ruff and mypy alone
# make docs   the documentation site in site/, built strictly; open site/index.html
# make integrations TRANSFORMERS=4.57.6   the tests of SparringTrainer and the examples on another release of transformers
# make chromium   install Debian's Chromium for the report's browser test, where that is possible; without it the test is skipped
# Each makes its own .venv first where there is none. PYTHON=python3.12 make test picks another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what is imported when it is first imported, and keeps that; compiling everything here would
# double the time of the set-up. Where the environment forbids to keep it, each process would compile torch anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(BIN)/python tests/install.py -c constraints.txt
JOBS ?= 2

TRANSFORMERS ?= 4.57.6

.PHONY: demo test lint docs pytest integrations chromium wheel bench clean

demo: $(VENV)/.demo
	$(BIN)/sparring compare languages --losses softmax,as-softmax,as-softmax:speed=fast --seeds 2 --epochs 8 --n-train 6500 --jobs $(JOBS) --out runs/demo --fresh
	$(BIN)/sparring report runs/demo/languages -o report.html --title "Names in 89 languages" > /dev/null
	@echo "$(CURDIR)/report.html"

# the wheel is made beside the types: it needs one core, and mypy not always two
test: $(VENV)/.dev
	$(MAKE) -j 2 lint wheel
	$(MAKE) pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers $(JOBS)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder  # a file's tests share what they train

# in an environment of its own: other packages follow the release; those that need a newer one are left out
integrations: OTHER := build/transformers-$(TRANSFORMERS)
integrations:
	mkdir -p build && grep -v -E '^(transformers|datasets)=' constraints.txt > build/constraints.txt
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python tests/install.py -c build/constraints.txt torch
	$(OTHER)/bin/python tests/install.py -c build/constraints.txt -e '.[hf,hub,lab,lightning,report]' hypothesis pytest pytest-xdist skorch transformers==$(TRANSFORMERS)
	$(OTHER)/bin/python -m pytest -n $(JOBS) tests/integrations

# never fails: a machine without root, apt-get or network goes without
chromium:
	@for name in chromium chromium-browser google-chrome; do command -v $$name > /dev/null && exit 0; done; \
	test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq > /dev/null 2>&1; \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null 2>&1 \
	|| echo "no Chromium here and none to be installed: the report's browser test will be skipped"

# what a user gets: the wheel, with torch and entmax and nothing else
wheel: $(VENV)/.dev
	rm -rf dist build
	$(BIN)/python -m hatchling build -t wheel -d dist
	$(BIN)/python -m venv --without-pip build/empty
	$(PIP) --python build/empty/bin/python install -q --no-deps --no-index dist/*.whl
	$(BIN)/python tests/link_requirements.py build/empty
	$(PIP) --python build/empty/bin/python check
	cd build && empty/bin/python ../tests/check_wheel.py

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/skip.py
	$(BIN)/python benchmarks/linear.py

$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(f"Python 3.10 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.12 ..." if sys.version_info < (3, 10) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(INSTALL) -e '.[lab,report]'
	@touch $@

# the reference is read from the sources, so the site needs neither torch nor the package
$(VENV)/.docs: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) mkdocs-material 'mkdocstrings[python]' ruff
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(INSTALL) -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
