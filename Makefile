# make eval   sets everything up and evaluates the scripted expert on Meta-World
# make test   sets everything up and runs checks and tests, in less than ten minutes on two cores
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs

LIBERO := .venvs/libero
PEERS := .venvs/peers
GYM := .venvs/packages
GYM_LEROBOT := .venvs/packages/lerobot
FOREIGN := .venvs/foreign
RAY := .venvs/ray
TRACKERS := .venvs/trackers
LEROBOTS := 0.6 0.4
LEROBOT := 0.6

# Runs with LIBERO's worker in its environment, and everything else in ours; or that start tests there, which has pytest by then.
LIBERO_RUNS := tests/e2e/test_libero_runs.py tests/e2e/test_libero_preflight.py tests/pages/test_libero_pages.py \
	tests/one_bit/test_libero_one_bit.py
# And those with packages of Gymnasium environments in theirs.
GYM_RUNS := tests/e2e/test_gym_package_runs.py tests/e2e/test_pusht_runs.py tests/e2e/test_aloha_runs.py
# Against LeRobot's own loop, in an interpreter that has both.
GYM_PARITY := tests/lerobot/test_gym_parity.py

# Tests of one file share what is costly to start, so they stay together; tests/longest.py has the order of files. Tests
# that start processes wait for half of their time, so there are more of them at once than a small machine has cores.
PARALLEL := --dist loadfile --no-loadscope-reorder
TEST_JOBS ?= 4
# What CI gives: a test that fails is tried once more, and told as such. Nobody waits for half an hour there to see a race again.
AGAIN ?=

# Tests start hundreds of processes. Where bytecode is not kept, each compiles anew what it imports, for many seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup eval docs env-libero env-lerobot env-peers images lint protos clean
.PHONY: chaos test test-all test-unit test-plain test-docker test-foreign test-gym test-libero test-lerobot test-ray test-trackers test-slurm
.PHONY: $(LEROBOTS:%=env-lerobot-%) $(LEROBOTS:%=test-lerobot-%)

setup: $(STAMP)

$(STAMP): pyproject.toml constraints/dev.txt tools/system-libraries
	@tools/system-libraries $(PYTHON)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints/dev.txt -e '.[metaworld,docker,metrics,compare,view]'
	@touch $(STAMP)

# What tests need beside that: torch is large, and evaluating the experts does without. Not compiled, because most of it
# is never imported.
$(DEV): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints/dev.txt -e '.[metaworld,torch,dev,docs]'
	@touch $(DEV)

# The site needs neither torch nor what tests need.
$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints/dev.txt -e '.[docs]'
	@touch $(DOCS)

# Not --quiet: what is not told is not counted, and --strict would find nothing. Material tells with each build that MkDocs 2
# will not do; pyproject.toml asks for an earlier one.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "the site is in build/site; with the search that needs a server: $(BIN)/python -m http.server -d build/site 8000"

eval: setup
	$(BIN)/sparring run --benchmark metaworld --task mt50 --policy expert --episodes 5

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Not compiled, because most of it is never imported, and what is, is compiled then.
CREATE_LIBERO := PIP_NO_COMPILE=1 $(BIN)/sparring env create libero

env-libero: setup
	$(CREATE_LIBERO)

# All of them; workers other than Meta-World's are in profiles of their own.
images:
	docker compose --profile '*' build

# The LeRobots that the adapter is tested with, each in an environment of its own over ours: what it does not bring (torch,
# Meta-World, pytest, sparring) is found in ours, by a path file, and need not be unpacked again. LeRobot 0.6 says that it is
# for Python 3.12; tests/lerobot/lerobot_on_311.py has more about that. Not compiled, because most of transformers is never
# imported.
env-lerobot: $(LEROBOTS:%=env-lerobot-%)

$(LEROBOTS:%=env-lerobot-%): env-lerobot-%: .venvs/lerobot-%/.installed

.venvs/lerobot-%/.installed: $(DEV) constraints/lerobot.txt constraints/lerobot-%.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/python -c 'import site; print(*site.getsitepackages(), "$(CURDIR)/src", sep="\n")' \
		> $$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/ours.pth
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-compile --no-deps \
		--ignore-requires-python -r constraints/lerobot-$*.txt
	@touch $@

# LeRobot and LIBERO in one environment, with other evaluators, for benchmarks/against_peers.py: packages of LeRobot's come
# before LIBERO's, and LIBERO's, with another MuJoCo, before ours.
env-peers: $(PEERS)/.installed

$(PEERS)/.installed: .venvs/lerobot-$(LEROBOT)/.installed constraints/peers.txt | env-libero
	test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	for venv in .venvs/lerobot-$(LEROBOT) $(LIBERO) $(VENV); do \
		$$venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; done \
		> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth
	echo $(CURDIR)/src >> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-compile --no-deps \
		-r constraints/peers.txt
	@touch $@

# Other people's clients and servers, over our environment, for tests of bridges: openpi-client asks for numpy 1, and runs
# on numpy 2.
$(FOREIGN)/.installed: $(DEV) constraints/foreign.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-compile --no-deps \
		-r constraints/foreign.txt
	@touch $@

# LIBERO and LeRobot have interpreters of their own, so their tests are runs of their own, in there. Most tests wait for
# half of their time, so several go at once, while the other environments are made; the output of each comes when it has
# ended. `test` has a sample of the tasks and episodes, one LeRobot and no containers; `test-all` has everything, and
# containers, which wait most, beside all the rest.
AT_ONCE := --no-print-directory --keep-going --output-sync=target

test: $(DEV)
	@echo "running the tests, two runs at once; each tells at its end, the first in some minutes"
	@$(MAKE) $(AT_ONCE) --jobs 2 test-plain lint test-libero test-lerobot-$(LEROBOT)

test-all: export SPARRING_TEST_ALL := 1
test-all: $(DEV)
	@echo "running all tests, three runs at once; each tells at its end, the first in about ten minutes"
	@$(MAKE) $(AT_ONCE) --jobs 3 test-docker test-plain lint test-slurm test-lerobot test-libero test-foreign test-ray test-gym test-trackers

# What needs no simulator, no server and no other process: the answer while you work. Without whole runs in a test's own
# process, simulated runs, fuzzing and the pages, which need none either, but time.
test-unit: $(DEV)
	$(BIN)/python -m pytest $(AGAIN) -n $(TEST_JOBS) $(PARALLEL) -m 'not processes and not runs' --ignore tests/foreign --ignore tests/gym --ignore tests/lerobot \
		--ignore tests/libero --ignore tests/ray_cluster --ignore tests/trackers --ignore tests/simulation --ignore tests/fuzz --ignore tests/pages

test-plain: $(DEV)
	$(BIN)/python -m pytest $(AGAIN) -n $(TEST_JOBS) $(PARALLEL) --ignore tests/docker --ignore tests/libero --ignore tests/lerobot \
		--ignore tests/gym --ignore tests/foreign --ignore tests/ray_cluster --ignore tests/slurm \
		--ignore tests/trackers $(GYM_RUNS:%=--ignore %) $(LIBERO_RUNS:%=--ignore %)

# While one of the two waits for images to be built, the other has those of the toy benchmark. One test compares a container
# with LIBERO in its environment here, which must not be half-made by then: made in here, because make would come back to a
# target that waits for another when all the rest has begun, and this one takes longest.
test-docker: $(DEV)
	$(CREATE_LIBERO)
	$(BIN)/python -m pytest $(AGAIN) -n 2 $(PARALLEL) tests/docker

# One after the other: they share a cluster, and do harm to its nodes.
test-slurm: export SPARRING_TEST_ALL := 1
test-slurm: $(DEV)
	$(BIN)/python -m pytest $(AGAIN) tests/slurm

# What tests need in an environment of a benchmark. Without dependencies, so that no version of the benchmark's moves.
INSTALL_TESTS := install --quiet --disable-pip-version-check --no-deps -c constraints/dev.txt \
	cffi cryptography execnet idna iniconfig packaging pluggy psutil pycparser pygments pytest pytest-timeout \
	pytest-rerunfailures pytest-xdist trustme

test-libero: env-libero
	$(BIN)/python -m pip --python $(LIBERO)/bin/python $(INSTALL_TESTS)
	$(LIBERO)/bin/python -m pytest $(AGAIN) -n 2 --dist load tests/libero
	$(BIN)/python -m pytest $(AGAIN) -n 2 $(PARALLEL) $(LIBERO_RUNS)

# Real packages of Gymnasium environments, as a user gets them; in a place of its own, so that other runs do without.
test-gym: $(GYM)/.installed $(GYM_LEROBOT)/.installed
	$(GYM)/gym/bin/python -m pytest $(AGAIN) tests/gym
	SPARRING_VENVS=$(CURDIR)/$(GYM) $(BIN)/python -m pytest $(AGAIN) $(GYM_RUNS)
	SPARRING_REQUIRE=gym-packages,lerobot $(GYM_LEROBOT)/bin/python -m pytest $(AGAIN) $(GYM_PARITY)

GYM_RECIPES := $(wildcard env_worker/environments/gym/*.txt env_worker/environments/pusht/*.txt env_worker/environments/aloha/*.txt)

$(GYM)/.installed: $(DEV) constraints/gym.txt $(GYM_RECIPES)
	SPARRING_VENVS=$(CURDIR)/$(GYM) PIP_CONSTRAINT=$(CURDIR)/constraints/gym.txt \
		$(BIN)/sparring env create gym --force --with gym-aloha==0.1.5 --with gym-pusht==0.1.8
	$(BIN)/python -m pip --python $(GYM)/gym/bin/python $(INSTALL_TESTS)
	for name in pusht aloha; do SPARRING_VENVS=$(CURDIR)/$(GYM) $(BIN)/sparring env create $$name || exit 1; done
	@touch $@

# LeRobot's packages come first (it wants another av), then those of the benchmarks' environments, then ours.
$(GYM_LEROBOT)/.installed: $(GYM)/.installed .venvs/lerobot-$(LEROBOT)/.installed
	test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	for venv in .venvs/lerobot-$(LEROBOT) $(GYM)/aloha $(GYM)/pusht $(VENV); do \
		$$venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; done \
		> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth
	echo $(CURDIR)/src >> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth
	@touch $@

test-foreign: $(FOREIGN)/.installed | env-libero
	PYTHONPATH=src $(FOREIGN)/bin/python -m pytest $(AGAIN) tests/foreign

# A real Ray cluster of several nodes on this machine; Ray is large, so it has an environment of its own over ours.
test-ray: $(RAY)/.installed
	$(RAY)/bin/python -m pytest $(AGAIN) tests/ray_cluster

$(RAY)/.installed: $(DEV) constraints/ray.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/python -c 'import site; print(*site.getsitepackages(), "$(CURDIR)/src", sep="\n")' \
		> $$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/ours.pth
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-compile --no-deps \
		-r constraints/ray.txt
	@touch $@

# Trackers with their real libraries, offline. They want a newer protobuf than our stubs are made with, and much else: in an
# environment of their own over ours, as LeRobot's.
test-trackers: $(TRACKERS)/.installed
	$(TRACKERS)/bin/python -m pytest $(AGAIN) tests/trackers

$(TRACKERS)/.installed: $(DEV) constraints/trackers.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	$(BIN)/python -c 'import site; print(*site.getsitepackages(), "$(CURDIR)/src", sep="\n")' \
		> $$($(@D)/bin/python -c 'import site; print(site.getsitepackages()[0])')/ours.pth
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-compile --no-deps \
		-r constraints/trackers.txt
	@touch $@

test-lerobot: $(LEROBOTS:%=test-lerobot-%)

# X-VLA is evaluated on LIBERO, too.
# The newest LeRobot has all tests in test-all, earlier ones the sample: two whole lanes of it took a third of CI's time.
$(patsubst %,test-lerobot-%,$(filter-out $(LEROBOT),$(LEROBOTS))): export SPARRING_TEST_ALL :=

$(LEROBOTS:%=test-lerobot-%): test-lerobot-%: .venvs/lerobot-%/.installed env-libero
	.venvs/lerobot-$*/bin/python -m pytest $(AGAIN) -n 2 $(PARALLEL) tests/lerobot --ignore $(GYM_PARITY)

# Real runs that are killed, stopped and cut off, twenty of them, for half an hour; one that fails is named by its seed.
chaos: $(DEV)
	$(BIN)/python -m tests.chaos --seeds 20

protos: $(DEV)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m sparring.protos.generate

clean:
	rm -rf $(VENV) .venvs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
