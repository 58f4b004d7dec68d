# Two commands: `make lab` runs the lab, `make test` passes the tests. Both make what they need.
PYTHON ?= python3
# TORCH=system keeps the torch that is already installed for $(PYTHON), e.g. a CUDA build; it has an environment of its own.
TORCH ?= pinned
ARGS ?=

ifeq ($(TORCH),system)
VENV ?= .venv-system
VENV_FLAGS := --system-site-packages
CONSTRAINTS = $(VENV)/constraints.txt
else
VENV ?= .venv
VENV_FLAGS :=
CONSTRAINTS = constraints.txt
endif
BIN = $(VENV)/bin

.PHONY: lab test check test-fast test-model test-browser gpu bench recording api clean

lab: $(VENV)/.installed
	@$(BIN)/lab up $(ARGS)

# Tests of tiny models share the cores, one process each. Two processes share the files with the real model and the
# browser: while one waits for a page, the other computes. A Ray cluster has the machine to itself.
FAST = -m "not model and not browser and not cluster" -n logical --maxprocesses 4 --dist loadfile
REST = -m "(model or browser) and not cluster" -n 2 --dist loadfile
CLUSTER = -m cluster

test: $(VENV)/.installed-test
	@$(BIN)/python -m tests.chromium
	@$(BIN)/python -m tests.nginx
	@$(MAKE) --no-print-directory check
ifeq ($(ARGS),)
	$(BIN)/python -m pytest $(FAST)
	$(BIN)/python -m pytest $(REST)
	$(BIN)/python -m pytest $(CLUSTER)
else
	$(BIN)/python -m pytest $(ARGS)
endif

# The tiers can run alone.
check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-fast: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(FAST) $(ARGS)

test-model: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "model and not browser" $(ARGS)

test-browser: $(VENV)/.installed-test
	@$(BIN)/python -m tests.chromium
	@$(BIN)/python -m tests.nginx
	$(BIN)/python -m pytest -m browser $(ARGS)

gpu: $(VENV)/.installed
	$(BIN)/python -m benchmarks.gpu $(ARGS)

bench: $(VENV)/.installed
	$(BIN)/lab bench decode --json $(ARGS)

# Record the runs that the pages show first, from the real model, and draw their posters.
recording: $(VENV)/.installed
	@for name in kv_cache beam_search speculative quantization pruning lora; do $(BIN)/python -m widgets.make_recording $$name || exit 1; done

# The docstrings as pages, by pdoc.
api: $(VENV)/.installed-api
	$(BIN)/python -m pdoc --docformat google --no-show-source --output-directory build/api lab widgets
	@echo "open build/api/index.html"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "The lab needs Python 3.11 or newer; name one with PYTHON=..."; exit 1; }
ifeq ($(TORCH),system)
	@$(PYTHON) -c 'import torch' 2>/dev/null || \
		{ echo "TORCH=system needs a torch that $(PYTHON) can import; install one, or leave TORCH=system out."; exit 1; }
endif
	$(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/constraints.txt: constraints.txt $(VENV)/bin/python
	@grep -vE '^(torch|nvidia-|triton)' constraints.txt > $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/bin/python $(filter $(VENV)/%,$(CONSTRAINTS))
	@echo "installing the lab into $(VENV)"
	@$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing the test tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e ".[test]"
	@touch $@

$(VENV)/.installed-api: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e ".[api]"
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
