# make eval   sets everything up and evaluates the scripted expert on Meta-World
# make test   sets everything up and runs all checks and tests
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

LIBERO := .venvs/libero

.PHONY: setup eval env-libero images test test-all lint protos clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints/dev.txt tools/system-libraries
	@tools/system-libraries $(PYTHON)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints/dev.txt -e '.[metaworld,torch,dev]'
	@touch $(STAMP)

eval: setup
	$(BIN)/sparring run --benchmark metaworld --task mt50 --policy expert --episodes 5

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

env-libero: setup
	$(BIN)/sparring env create libero

# All four; LIBERO's worker is in a profile of its own.
images:
	docker compose --profile libero build

# LIBERO has an interpreter of its own, so its tests are a second run, in there.
test: lint env-libero
	$(LIBERO)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints/dev.txt \
		cffi cryptography idna iniconfig packaging pluggy psutil pycparser pygments pytest pytest-timeout trustme
	$(BIN)/python -m pytest --ignore tests/libero
	$(LIBERO)/bin/python -m pytest tests/libero

# Everything that `make test` only samples: all 130 LIBERO tasks.
test-all: test
	SPARRING_TEST_ALL=1 $(LIBERO)/bin/python -m pytest tests/libero

protos: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m protos.generate

clean:
	rm -rf $(VENV) .venvs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
