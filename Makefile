# `make demo` and `make test` need only python3 with pip and venv. `make quick` takes 90 seconds.
VENV := .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/.product
READY := $(VENV)/.ready
# Compiled modules are kept, so that each process of the tests starts faster.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick core lint types layers unit browser clean

demo: $(PRODUCT)
	$(BIN)/altbi demo

test: lint types layers unit

quick: lint types layers
	$(BIN)/python -m pytest -m "not slow" tests src bench/tests

# The product alone, in a new environment: all commands, the size, and no PyTorch.
core:
	python3 tools/check_core_install.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_language.py

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

unit: $(READY) browser
	$(BIN)/python -m pytest

# The report page is tested in a real browser: Debian's chromium, installed once, as root.
browser:
	@command -v chromium > /dev/null || { apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	chromium fonts-dejavu-core > /dev/null; }

# The environment is set up again only when the requirements change. The demo needs the product only.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(PRODUCT): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(PIP_INSTALL) -e .
	touch $(PRODUCT)

$(READY): pyproject.toml bench/pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(PIP_INSTALL) -e '.[dev]' -e ./bench
	touch $(PRODUCT) $(READY)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
