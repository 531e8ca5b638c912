# `make test` sets up everything it needs in .venv beside this file; the second time it needs no network.
ROOT := $(shell cd "$(dir $(lastword $(MAKEFILE_LIST)))" && pwd)
PYTHON ?= python3
TORCH ?= 2.13.0
# where there is no NVIDIA card, PyTorch's index of CPU builds; TORCH_INDEX= takes pip's own index
NEEDS_CPU_BUILD := $(shell [ "$$(uname -s)" = Linux ] && [ ! -e /proc/driver/nvidia/version ] && ! command -v nvidia-smi > /dev/null && echo yes)
TORCH_INDEX ?= $(if $(NEEDS_CPU_BUILD),https://download.pytorch.org/whl/cpu)
TORCH_SOURCE := $(if $(TORCH_INDEX),--extra-index-url "$(TORCH_INDEX)")
PURELIB := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
BIN := .venv/bin
SHELL := /bin/bash

# as mtlib/__init__.py has it: threads that wait give their core up soon, unless the user says otherwise
ifeq ($(OMP_WAIT_POLICY)$(KMP_LIBRARY)$(GOMP_SPINCOUNT)$(KMP_BLOCKTIME),)
export GOMP_SPINCOUNT := 1000
export KMP_BLOCKTIME := 1
endif

.PHONY: test faults profiles test-install test-lowest test-newest lint tutorial slides lab site publish playground pages setup \
  setup-notebooks lock clean

# one torch thread for each test process, so that they do not wait for one another
test: setup
	cd "$(ROOT)" && OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# sweeps whose processes are killed, also on Ray clusters: some minutes
faults: setup
	cd "$(ROOT)" && MTLIB_FAULTS=1 $(BIN)/python -m pytest tests/sweeps

# every profile of every notebook, on tiny models from a stand-in for the hub: some minutes
profiles: setup
	cd "$(ROOT)" && MTLIB_PROFILES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 tests/hub/test_profiles.py

# as users install it: wheel, git, Colab, in a new environment
test-install:
	PYTHON="$(PYTHON)" bash "$(ROOT)/tests/install.sh"

# all tests with the lowest versions that pyproject.toml allows, and with the newest: each in an environment of its own
test-lowest: WHAT = -c tests/constraints-lowest.txt
test-newest: WHAT = --upgrade
test-lowest test-newest:
	cd "$(ROOT)" && $(PYTHON) -m venv ".venv-$@" && ".venv-$@/bin/python" -m pip install --quiet $(TORCH_SOURCE) torch==$(TORCH) && \
	  ".venv-$@/bin/python" -m pip install --quiet $(WHAT) --editable ".[notebooks,test]" && \
	  OMP_NUM_THREADS=1 ".venv-$@/bin/python" -m pytest -n auto --maxprocesses 4 --dist worksteal

# all notebooks on the bundled data; then open build/notebooks/*.html
tutorial: setup-notebooks
	cd "$(ROOT)" && $(BIN)/python -m mtlib notebooks && echo "open $$PWD/build/notebooks/01_data.html, and so on"

# slides of notebooks 03 and 08, without code; open build/slides/*.html in a browser
slides: setup-notebooks
	cd "$(ROOT)" && $(BIN)/python -m nbconvert --to slides --no-input --no-prompt --SlidesExporter.reveal_scroll=True \
	  --output-dir build/slides notebooks/03_mask_tuning.ipynb notebooks/08_reproduction.ipynb

# opens the course's index; ARGS for JupyterLab: make lab ARGS="--no-browser --port 9999" (as root it needs no option)
ARGS ?=
ALLOW_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
lab: setup-notebooks
	cd "$(ROOT)" && $(BIN)/python -m jupyterlab $(ALLOW_ROOT) $(ARGS) \
	  --LabApp.default_url=/lab/tree/notebooks/README.md --LabApp.app_settings_dir=notebooks/lab

# one site of all pages, in an environment upon .venv, without a network once that is there
SITE_PACKAGES := sphinx==9.0.4 myst-nb==1.4.0 furo==2025.12.19 sphinx-copybutton==0.5.2
site: setup-notebooks
	cd "$(ROOT)" && { echo "$(SITE_PACKAGES)" | cmp -s - .venv-site/.installed || { \
	  $(BIN)/python -m venv .venv-site && $(BIN)/python $(PURELIB) > "$$(.venv-site/bin/python $(PURELIB))/upon.pth" && \
	  .venv-site/bin/python -m pip install --quiet $(SITE_PACKAGES) && echo "$(SITE_PACKAGES)" > .venv-site/.installed; }; } && \
	  PYTHONPATH="$$PWD" .venv-site/bin/python notebooks/site/build.py

# for maintainers: runs the notebooks, stores their outputs, and writes the project's address into them and the README
publish: setup
	cd "$(ROOT)" && $(BIN)/python -m mtlib notebooks && $(BIN)/python -m notebooks.publish

# for maintainers: figures/playground.html, with newly trained models (two minutes)
playground: setup
	cd "$(ROOT)" && $(BIN)/python notebooks/playground/build.py

# the figures and tables of README.md, data/README.md and the report, from the records
pages: setup
	cd "$(ROOT)" && $(BIN)/python -m figures.make && $(BIN)/python -m data.make_tables

lint: setup
	cd "$(ROOT)" && $(BIN)/python -m ruff check . && $(BIN)/python -m ruff format --check . && \
	  $(BIN)/python -m codespell_lib && $(BIN)/python -m mypy

# $(call install,STAMP,WHAT): .venv with the packages of pip's arguments WHAT. The stamp is a file of our own rather than
# a target: its path may hold blanks, which make's targets may not.
define install
	@cd "$(ROOT)" && for stamp in .venv/.all $(1); do \
	    cat requirements.lock pyproject.toml | cmp -s - "$$stamp" && exit 0; done; \
	  set -e; export PIP_DISABLE_PIP_VERSION_CHECK=1; quiet=--quiet; if [ -t 1 ]; then quiet=; fi; \
	  $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "mtlib needs Python 3.11 to 3.14; set PYTHON=...")'; \
	  $(PYTHON) -m venv .venv; \
	  if [ -n "$(TORCH_INDEX)" ]; then \
	    echo "setting up .venv, once: about 2 GB on disk, some 5 minutes (no NVIDIA card: PyTorch's CPU build)"; \
	    $(BIN)/python -m pip install $$quiet --retries 1 --timeout 10 --no-deps --index-url "$(TORCH_INDEX)" torch==$(TORCH) \
	      || echo "no answer from $(TORCH_INDEX): PyTorch comes from pip's own index, perhaps with 4 GB more for CUDA"; \
	  else echo "setting up .venv, once: with CUDA for an NVIDIA card about 6 GB, some 10 minutes"; fi; \
	  $(BIN)/python -m pip install $$quiet $(2); \
	  $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	  cat requirements.lock pyproject.toml > $(1)
endef
setup:
	$(call install,.venv/.all,-r requirements.lock)

# what the notebooks need: no Ray, no spaCy, no tests
setup-notebooks:
	$(call install,.venv/.notebooks,-c requirements.lock hatchling editables ".[notebooks]")

# exact versions of all that `setup` installs, from the ranges in pyproject.toml
lock:
	set -e -o pipefail; cd "$(ROOT)"; rm -rf .venv-lock; trap 'rm -rf .venv-lock' EXIT; $(PYTHON) -m venv .venv-lock; \
	  .venv-lock/bin/python -m pip install --quiet torch==$(TORCH) hatchling editables ".[notebooks,cluster,policies,test]"; \
	  .venv-lock/bin/python -m pip freeze --exclude mask-tuning | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf "$(ROOT)/.venv" "$(ROOT)"/.venv-*
