# Two commands to know: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin

.PHONY: demo test lint format setup bench clean

demo: $(VENV)/.installed
	@mkdir -p demo
	$(RUN)/cb-trace profile nanogpt --preset tiny --set batch=4 -o demo/nanogpt.duckdb --force
	$(RUN)/cb-trace compare demo/nanogpt.duckdb --depth 3

# A hundred processes start: each would compile the package anew where no bytecode may be written.
test: $(VENV)/.installed
	env -u PYTHONDONTWRITEBYTECODE $(RUN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.installed
	$(RUN)/ruff format --check .
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/lint-imports

format: $(VENV)/.installed
	$(RUN)/ruff format .
	$(RUN)/ruff check --fix .

setup: $(VENV)/.installed

# pip takes torch for this machine: the CUDA build where the index offers it.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "cb-trace needs Python 3.11 to 3.13; set PYTHON=python3.11, say")'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo build dist
