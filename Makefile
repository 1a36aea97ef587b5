# Each target needs nothing but Python 3.11 or newer: it makes its environment itself.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test bench lint clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/python demo/run.py

test: $(VENV)/installed
	$(BIN)/python -m pytest

bench: $(VENV)/installed
	$(BIN)/python bench/speed.py

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV)
