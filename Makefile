# `make help` lists what there is. The extension is built from the files under sql/, each statement once.

EXTENSION := memfold
VERSION   := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(EXTENSION).control)
SCRIPT    := $(EXTENSION)--$(VERSION).sql
# make sorts by bytes, as the migrations do.
SQL       := sql/extension/head.sql $(sort $(wildcard sql/schema/*.sql)) $(sort $(wildcard sql/functions/*.sql)) \
             sql/extension/tail.sql

PG_CONFIG ?= pg_config
PYTHON    ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11, \
                 $(shell $(name) -c 'import sys; sys.version_info >= (3, 11) and print("$(name)")' 2>/dev/null)))
VENV      := .venv
PY        := $(VENV)/bin/python
# Named after where the work tree is: a virtual environment cannot be moved.
STAMP     := $(VENV)/.made-for-$(firstword $(shell printf '%s' '$(CURDIR)' | cksum))

.DEFAULT_GOAL := all
.PHONY: all help install uninstall install-to setup server demo test lint bench clean

# --- the extension ----------------------------------------------------------------------------------------------

all: $(SCRIPT) ## build the extension's script; `make help` has the rest

$(SCRIPT): $(SQL) $(EXTENSION).control Makefile
	cat $(SQL) >$@.new && mv $@.new $@

# PGXS where the server brings it; its files are read only for these goals, so that nothing else needs pg_config.
PGXS := $(if $(filter install uninstall installcheck,$(MAKECMDGOALS)),$(shell $(PG_CONFIG) --pgxs 2>/dev/null))
ifneq ($(wildcard $(PGXS)),)

DATA_built = $(SCRIPT)
include $(PGXS)
install: ## install the extension into a server (PG_CONFIG=/path/to/pg_config), as the owner of its files
uninstall: ## take the extension out of that server

else

SHAREDIR = $(or $(shell $(PG_CONFIG) --sharedir),$(error no pg_config at PG_CONFIG=$(PG_CONFIG)))

install: $(SCRIPT)
	install -d '$(DESTDIR)$(SHAREDIR)/extension'
	install -m 644 $(EXTENSION).control $(SCRIPT) '$(DESTDIR)$(SHAREDIR)/extension/'

uninstall:
	rm -f '$(DESTDIR)$(SHAREDIR)/extension/$(EXTENSION).control' '$(DESTDIR)$(SHAREDIR)/extension/$(SCRIPT)'

clean: ## remove what make made
	rm -rf $(VENV) $(EXTENSION)--*.sql .pytest_cache .mypy_cache .ruff_cache .hypothesis python_client/dist

endif

install-to: $(SCRIPT) ## install into DIR, for PostgreSQL 18's extension_control_path = 'DIR:$system'
	@test -n '$(DIR)' || { echo 'say where: make install-to DIR=/some/dir' >&2; exit 2; }
	install -d '$(DIR)/extension'
	install -m 644 $(EXTENSION).control $(SCRIPT) '$(DIR)/extension/'

# --- working on memfold -----------------------------------------------------------------------------------------

help: ## list the goals
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | sort -u | awk -F'|' '{ printf "  %-12s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make the virtual environment .venv with everything that demo, test and lint need

$(STAMP): python_client/pyproject.toml
	@test -n '$(PYTHON)' || { echo 'memfold needs Python 3.11 or newer; say which with PYTHON=...' >&2; exit 1; }
	@test -e $@ && $(PY) -m pip --version >/dev/null 2>&1 || bash tools/make_venv.sh '$(PYTHON)' $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check -e 'python_client[test,lint]'
	@touch $@

server: ## set up the full server (PL/Python, pgvector), where this can be done
	@PYTHON='$(PYTHON)' bash tools/full_server.sh

demo: setup ## see about 60 memories being folded, on the embedded server
	@$(PY) demo/run.py

# Without a full server the tests run on the embedded one and say at their end what that leaves out.
test: setup ## everything that has to hold: lint, then the tests on each server that is to be had
	@PYTHON='$(PYTHON)' bash tools/full_server.sh || echo 'make: going on without a full server'
	@$(MAKE) --no-print-directory lint
	$(PY) -m pytest

lint: setup ## check the sources
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict python_client/memfold
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" bash tools/lint_sql.sh

bench: setup ## measure, on the embedded server
	@$(PY) bench/run.py
