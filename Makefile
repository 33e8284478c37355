# Two commands: `make run` serves the shipped atlas at http://127.0.0.1:8050, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
# A machine without an NVIDIA driver gets the CPU build of torch and no CUDA package.
TORCH ?= 2.13.0
TORCH_BACKEND ?= $(if $(shell command -v nvidia-smi 2>/dev/null),auto,cpu)

.PHONY: run test golden lint bench install browser lock screenshots clean

run: install
	$(BIN)/python app.py

# Quick tests first, a browser last. A worker a core with one thread each: most tests are too small for more threads.
test: install lint $(VENV)/.proxies
	for part in "not slow and not browser and not golden" "slow and not browser" browser; do \
		OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "$$part" || exit 1; \
	done

# Before and after code is renamed or moved: is everything computed as it was?
golden: install $(VENV)/.proxies
	$(BIN)/python -m pytest -n $(WORKERS) tests/golden

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/typos

bench: install
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

screenshots: install
	$(BIN)/python -m jobs screenshots

install: $(VENV)/.installed

# Everything is pinned in requirements.lock and installed without resolving, so nothing else can be pulled in.
$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(BIN)/python -m pip --version >/dev/null 2>&1 \
	|| $(PYTHON) -m venv $$(test -f $(VENV)/pyvenv.cfg && echo --clear) $(VENV)
ifeq ($(TORCH_BACKEND),cpu)
	$(BIN)/pip install -q --no-deps "torch==$(TORCH)+cpu" 2>/dev/null \
	|| ($(BIN)/pip install -q uv && $(BIN)/uv pip install -q --python $(BIN)/python --no-deps --torch-backend=cpu "torch==$(TORCH)")
else
	$(BIN)/pip install -q uv && $(BIN)/uv pip install -q --python $(BIN)/python --torch-backend=$(TORCH_BACKEND) "torch==$(TORCH)"
endif
	$(BIN)/pip install -q --no-deps -r requirements.lock
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	$(BIN)/python -m jobs proxies install smollm2-135m
	touch $@

# Two more proxies than the served one, for tests that read with them.
$(VENV)/.proxies: $(VENV)/.installed
	$(BIN)/python -m jobs proxies install minilm-l6 gemma3-270m
	touch $@

# System packages of the browser tests (Debian's own Chromium); needs root.
browser:
	command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver)

# Writes requirements.lock from the environment as it is now.
lock:
	$(BIN)/pip freeze --all --exclude-editable --exclude torch --exclude pip --exclude uv > requirements.lock
	sed -i.old 's/^backports.zstd==.*/&; python_version < "3.14"/' requirements.lock && rm requirements.lock.old

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
