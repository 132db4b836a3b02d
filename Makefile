# The Measured Transformer. `make book` prints the book, `make test` checks everything.
# Each sets up what it needs in .venv first, and stops with an error at the first thing that fails.

PYTHON ?=
VENV ?= .venv
# Where `make publish` pushes to: a remote of this repository, an address or a path.
REMOTE ?= origin
PY := $(VENV)/bin/python
# From which commit on `make check` looks for changes.
SINCE ?= main
# Shapes and types of every call are checked by `make test-all` alone: that takes half of the time.
QUICK := -o addopts=--doctest-modules

.NOTPARALLEL:
.PHONY: help book pdf measure attest parity check test test-all notebooks lab serve publish release lock links audit canary clean distclean
.PHONY: environment printing

help:
	@echo 'make book       print the book into _build/html (sets up .venv first)'
	@echo 'make pdf        print the book as one file, _build/measured-transformer.pdf (needs Chromium)'
	@echo 'make measure    measure what is missing or stale, with all seeds (CHAPTER=norm_placement: one chapter)'
	@echo 'make attest     show that changed code gives the values that are kept'
	@echo 'make parity     measure the GPU'"'"'s own set of results into results-gpu, and what that changes'
	@echo '                (both with MINUTES=9: what fits into so much time; the same command goes on from there)'
	@echo 'make check      check what a change reaches, in minutes (SINCE=<commit>; else main)'
	@echo 'make test       run the checks that protect main: style, types, fingerprints, chapters, book, tests'
	@echo 'make test-all   run everything, each week and before a release'
	@echo 'make notebooks  run every chapter'"'"'s notebook as it is downloaded, outside the repository'
	@echo 'make lab        open the chapters as notebooks in JupyterLab'
	@echo 'make serve      show the printed book on http://localhost:8000'
	@echo 'make publish    print the latest edition and push it to the branches pages and notebooks (REMOTE=...; needs Chromium)'
	@echo 'make release    commit and tag a version (VERSION=0.2); nothing is pushed'
	@echo 'make lock       renew the locks from pyproject.toml (all pins: make lock UPGRADE=1)'
	@echo 'make links      check the addresses that the book links to'
	@echo 'make audit      look for known weaknesses of the pinned packages'
	@echo 'make canary     print with the newest Sphinx and MyST-NB, without Jupyter Book'
	@echo 'make clean      remove what was printed and executed (_build)'
	@echo 'make distclean  remove the environment too (.venv)'
	@echo
	@echo 'PYTHON=python3.12 chooses the interpreter; MEASURED_SEED_OFFSET=1000 another set of seeds.'

environment:
	@tools/environment '$(VENV)' '$(PYTHON)'

printing:
	@tools/environment '$(VENV)' '$(PYTHON)' book

book: printing
	@$(PY) -m bookpress build

# Chromium is driven by a package that printing the book does not need.
pdf: environment book
	@$(PY) -m bookpress.pdf

# MINUTES=9 measures what fits into so much time; ARCHIVE=FILE goes on from what that holds, and leaves in it what is
# done. What runs on a cluster needs nothing of a GPU here.
measure: environment
	@$(if $(CLUSTER),,tools/side-by-side )$(PY) -m measured_book.measuring $(CHAPTER) $(if $(RENEW),--renew) $(if $(CLUSTER),--cluster '$(CLUSTER)') $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(ARCHIVE),--archive '$(ARCHIVE)')

attest: environment
	@$(PY) -m measured_book.measuring $(CHAPTER) --attest

parity: environment
	@$(PY) -m measured_book.measuring --device
	@MINUTES='$(MINUTES)' ARCHIVE='$(ARCHIVE)' tools/renew parity _build/renewed '$(VENV)'
	@cat _build/renewed/changes.md

# A stage of `make test`: its number, its name, its command. The seconds follow when it passed.
define stage
@printf '\n[%s] %s\n' '$(1)' '$(2)'; start=$$(date +%s); \
$(3) || { status=$$?; printf '\n[%s] %s: FAILED\n' '$(1)' '$(2)' >&2; exit $$status; }; \
printf '[%s] %s: passed in %s s\n' '$(1)' '$(2)' "$$(($$(date +%s) - start))"
endef

# Which code each measurement reaches is found out once and kept; the repeat and the print ask for it. The second
# core does so while the first one checks types.
READ = $(PY) -m measured_book.measuring --status >/dev/null 2>&1

define checks
$(call stage,1/9,style (ruff check),$(PY) -m ruff check .)
$(call stage,2/9,format (ruff format),$(PY) -m ruff format --check .)
$(call stage,3/9,types (mypy strict on lib/),{ $(READ) & $(PY) -m mypy; })
$(call stage,4/9,imports (import-linter),$(VENV)/bin/lint-imports --no-logo)
$(call stage,5/9,prose (no bare measured numbers),$(PY) -m bookpress.prose)
$(call stage,6/9,repeat (what is not attested, and a share of the rest),$(PY) -m measured_book.measuring --repeat $(1))
$(call stage,7/9,chapters (every cell executed again),$(PY) -m bookpress execute --force)
$(call stage,8/9,book (warnings are errors),$(PY) -m bookpress build)
endef

# A contributor's loop, three minutes: what a change reaches since the commit SINCE (main, if it is there), the
# nearest first where it reaches more.
check: environment
	$(call stage,1/7,style (ruff check),$(PY) -m ruff check .)
	$(call stage,2/7,format (ruff format),$(PY) -m ruff format --check .)
	$(call stage,3/7,imports (import-linter),$(VENV)/bin/lint-imports --no-logo)
	$(call stage,4/7,prose (no bare measured numbers),$(PY) -m bookpress.prose)
	$(call stage,5/7,types (mypy strict on lib/),$(PY) -m mypy)
	$(call stage,6/7,pages that the change reaches,$(PY) -m bookpress.reached pages --since '$(SINCE)' --at-most 8 | xargs -r $(PY) -m bookpress execute)
	@printf '\n[7/7] tests that the change reaches (pytest, two processes)\n'
	@$(PY) -m bookpress.reached tests --since '$(SINCE)' --at-most 400 | MEASURED_TIER=check MEASURED_SECONDS=60 OMP_NUM_THREADS=1 xargs -r $(PY) -m pytest -n 2 --dist loadfile $(QUICK)

# What protects main: every digest, a share of all repeats, every cell, a strict print, the library's tests.
test: environment
	$(call checks,--share due)
	@printf '\n[9/9] unit tests and printed pages (pytest, two processes)\n'
	@MEASURED_TIER=test MEASURED_BUILT=_build/html OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile $(QUICK)

# Everything there is, each week and before a release: all repeats in full, every page at every width, all tests.
test-all: environment
	$(call checks,)
	@printf '\n[9/9] unit tests and printed pages (pytest, two processes)\n'
	@MEASURED_BUILT=_build/html OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

# Each of them as a reader has it: from the pages, in a folder of its own; on a GPU where there is one.
notebooks: environment
	@$(PY) -m bookpress build
	@MEASURED_BUILT=_build/html MEASURED_NOTEBOOKS=all OMP_NUM_THREADS=1 $(PY) -m pytest tests/book/test_pages.py -k notebook

lab: printing
	@$(PY) -m jupyter lab book

serve:
	@test -f _build/html/index.html || { echo 'error: nothing printed yet; run: make book' >&2; exit 1; }
	@echo 'http://localhost:8000 (stop with Ctrl-C)'
	@$(PY) -m http.server 8000 --bind 127.0.0.1 --directory _build/html

# The commit that is checked out, as the edition that its tag names, or else as the latest; its pages and its PDF,
# which each page's foot links and which lies among them.
publish: environment
	@test -z "$$(git status --porcelain)" || { echo 'error: commit first; what is published has a commit' >&2; exit 1; }
	@MEASURED_COMMIT=$$(git rev-parse HEAD) MEASURED_EDITION=$$(git describe --tags --exact-match 2>/dev/null || echo latest) \
	  $(PY) -m bookpress build
	@$(PY) -m bookpress.pdf --into _build/html/measured-transformer.pdf
	@$(PY) -m bookpress.publish --remote '$(REMOTE)'

release: environment
	@$(PY) -m bookpress.publish --release '$(VERSION)'

lock: environment
	@$(PY) -m pip install --quiet --disable-pip-version-check uv
	@tools/lock '$(PY)' $(if $(UPGRADE),--upgrade)

links: printing
	@PRESS=1 $(PY) -m sphinx -q -b linkcheck -c tools/plain . _build/links

# Everything pinned, torch included, which has no hashes and so is asked about by itself; a tool of its own, which
# is no part of the environment. A package that nothing is known of fails too: else all would pass without a network.
audit:
	@$(or $(PYTHON),python3) -m venv _build/audit
	@_build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	@_build/audit/bin/pip-audit --strict --disable-pip --no-deps -r requirements-torch.txt
	@_build/audit/bin/pip-audit --strict --disable-pip -r requirements.txt

canary:
	@tools/canary _build/canary '$(or $(PYTHON),python3)'

clean:
	rm -rf _build

distclean: clean
	rm -rf $(VENV)
