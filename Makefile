# Two commands: `make run` serves the shipped atlas at http://127.0.0.1:8050, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 3
# Folders may have spaces in their names: quoted for the shell, escaped where they are a target.
BIN := "$(VENV)"/bin
space := $(subst ,, )
STAMP := $(subst $(space),\ ,$(VENV))/.installed
DEV := $(subst $(space),\ ,$(VENV))/.dev
PROXIES := $(subst $(space),\ ,$(VENV))/.proxies
# A machine without an NVIDIA driver gets the CPU build of torch, by hash, and no CUDA package. With one, uv chooses the
# build for the driver; its hash is the index's own.
TORCH ?= 2.13.0
TORCH_BACKEND ?= $(if $(shell command -v nvidia-smi 2>/dev/null),auto,cpu)

.PHONY: run test suite golden lint bench install browser lock plotly screenshots sbom clean

run: install
	$(BIN)/python app.py

# Types are checked beside the first tests: alone, that takes one core of two.
test: $(PROXIES)
	$(MAKE) --no-print-directory -j 2 lint suite

# Quick tests first, a browser last. One thread a worker, as most tests are too small for more; a worker more than two
# cores, as a third of what slow tests take is waiting. They start many processes: what these import is compiled once.
suite: $(PROXIES)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not golden or slow"

# Before and after code is renamed or moved: is everything computed as it was?
golden: $(PROXIES)
	$(BIN)/python -m pytest -n $(WORKERS) tests/golden

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/typos

bench: $(DEV)
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

# plotly.js with the kinds of traces that figures use, a third of the whole (needs node and npm; the file is committed).
plotly:
	cd assets/plotly && npm install --before=2026-11-20 --no-audit --no-fund --no-package-lock && node build.mjs && sha256sum plotly.min.js

screenshots: $(DEV)
	$(BIN)/python -m jobs screenshots

install: $(STAMP)

# Everything is pinned with its hashes in requirements*.lock and installed without resolving: nothing else gets in.
PIP := $(BIN)/python -m pip install -q --no-deps
$(STAMP): requirements.lock requirements-torch.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(BIN)/python -m pip --version >/dev/null 2>&1 \
	|| $(PYTHON) -m venv $$(test -f "$(VENV)"/pyvenv.cfg && echo --clear) "$(VENV)"
ifeq ($(TORCH_BACKEND),cpu)
	@$(PIP) --require-hashes -r requirements-torch.lock 2>"$(VENV)"/torch.log \
	|| { if grep -q "DO NOT MATCH" "$(VENV)"/torch.log; then cat "$(VENV)"/torch.log >&2; \
		echo "Error: The file of torch $(TORCH) is none of the builds in requirements-torch.lock. Nothing was installed from it. Empty" \
			"pip's cache (python -m pip cache purge), look where pip takes files from (pip config list), and try again." >&2; exit 1; fi; \
	$(PIP) --require-hashes -r requirements-uv.lock && $(BIN)/uv pip install -q --python $(BIN)/python --no-deps --torch-backend=cpu \
		--require-hashes -r requirements-torch.lock \
	|| { echo "Error: No CPU build of torch $(TORCH) could be fetched for this Python and machine; pip and uv say why above and in" \
			"$(VENV)/torch.log. TORCH_BACKEND=auto takes any build." >&2; exit 1; }; }
else
	$(PIP) --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --torch-backend=$(TORCH_BACKEND) "torch==$(TORCH)"
endif
	$(PIP) --require-hashes --only-binary :all: -r requirements.lock
	if test -w .; then $(PIP) --no-build-isolation -e .; else \
		rm -rf "$(VENV)"/source && cp -R . "$(VENV)"/source && chmod -R u+w "$(VENV)"/source \
		&& $(PIP) --no-build-isolation "$(VENV)"/source && rm -rf "$(VENV)"/source; fi
	$(BIN)/python -m jobs proxies install smollm2-135m
	touch "$@"

# What only checks the atlas: tests, types, lint, bill of materials.
$(DEV): $(STAMP) requirements-dev.lock
	$(PIP) --require-hashes --only-binary :all: -r requirements-dev.lock
	touch "$@"

# Two more proxies than the served one, for tests that read with them.
$(PROXIES): $(DEV)
	$(BIN)/python -m jobs proxies install minilm-l6 gemma3-270m
	touch "$@"

# System packages of the tests: Debian's own Chromium, and Redis for web and workers as processes; needs root.
browser:
	command -v chromium >/dev/null && command -v chromedriver >/dev/null && command -v redis-server >/dev/null \
	|| (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		chromium chromium-driver redis-server)

# Writes the locks from the environment as it is now, with the hashes of every platform's files: what runs the atlas, and
# what only checks it.
lock: $(DEV)
	$(PIP) --require-hashes -r requirements-uv.lock
	for kind in runtime dev; do \
		$(BIN)/python -m tests.locked_packages $$kind | $(BIN)/uv pip compile -q - --no-deps --universal --python-version 3.11 \
			--generate-hashes --no-header --no-annotate \
			-o requirements$$(test $$kind = dev && echo -dev).lock || exit 1; \
	done

# What is installed, with versions, licences and what requires what, as CycloneDX JSON; hashes stand in the locks.
SBOM ?= build/sbom.json
sbom: $(DEV)
	mkdir -p "$$(dirname "$(SBOM)")"
	$(BIN)/python -m cyclonedx_py environment --pyproject pyproject.toml --output-reproducible -o "$(SBOM)" $(BIN)/python

clean:
	rm -rf "$(VENV)" build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
