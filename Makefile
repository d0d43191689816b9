# Everything runs in .venv, made with uv when it is there and with venv + pip when it is not.
VENV   := .venv
PY     := $(VENV)/bin/python
UV     := $(shell command -v uv 2>/dev/null)
PYTHON ?= python3
# A file stays with one worker, and files begin in the order of tests/conftest.py: the longest.
PYTEST := $(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder

ifdef UV
  MAKE_VENV := uv venv --quiet --allow-existing --python '>=3.11' $(VENV)
  INSTALL   := uv pip install --quiet --compile-bytecode --python $(PY) -c constraints.txt
else
  MAKE_VENV := $(PYTHON) -m venv $(VENV)
  INSTALL   := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
endif

.PHONY: demo test test-all lint bench campaign bench-peers docs docs-figures notebooks clean

demo: $(VENV)/.installed
	$(VENV)/bin/fedgranger demo

test: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.installed-dev
	XLA_FLAGS= $(PYTEST)

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/pyright

bench: $(VENV)/.installed-dev
	$(PY) -m benchmarks.training_speed
	$(PY) -m benchmarks.memory
	$(PY) -m benchmarks.uncertainty
	$(PY) -m benchmarks.federation
	$(PY) -m benchmarks.federation_memory --clients 8

# Kills processes of a real federation on this machine; takes half an hour.
campaign: $(VENV)/.installed-dev
	$(PY) -m benchmarks.campaign

# The site, in site/: open site/index.html; no server and no network are needed.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Runs docs/notebooks and keeps their outputs; FEDGRANGER_TEP is the folder with TEP's files.
notebooks: $(VENV)/.installed-dev
	$(INSTALL) -e '.[notebooks]'
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) docs/run_notebooks.py

docs-figures: $(VENV)/.installed-dev
	$(PY) docs/make_figures.py

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || test -n "$(UV)" || \
	  { echo "fedgranger needs Python 3.11 or newer; set PYTHON=python3.x"; exit 1; }
	$(MAKE_VENV)
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory $(VENV)/.installed
	$(INSTALL) -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) fedgranger-demo site .pytest_cache .ruff_cache .hypothesis \
	  "$${XDG_CACHE_HOME:-$$HOME/.cache}/fedgranger-tests"

# Peers live in an environment of their own: tigramite is GPL and must not mix with the package.
PEERS := var,granger-pairs,var-lingam,granger-lasso,pcmci
bench-peers: .venv-peers/.installed
	.venv-peers/bin/fedgranger benchmark --add benchmarks/pcmci_method.py \
	  --methods debiased,$(PEERS) --data-sets 20 --out .venv-peers/benchmark

.venv-peers/.installed: pyproject.toml constraints.txt
	$(subst $(VENV),.venv-peers,$(MAKE_VENV))
	$(subst $(VENV),.venv-peers,$(INSTALL)) -e '.[research,peers]' tigramite
	@touch $@
