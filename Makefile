# make demo   set up, then tell the whole story on the bundled sample and leave a page to open
# make test   set up, then run all tests
# make check  style, types and documentation
# make bench  the committed benchmarks (slow; wants a quiet machine)
# make lines  how many lines of code each folder has

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
JOBS ?= 2
NATIVE := CMakeLists.txt $(shell find native/src native/CMakeLists.txt -type f)

.PHONY: demo test check bench lines clean

demo: $(VENV)/base
	$(BIN)/litesmith demo

test: $(VENV)/test
	$(BIN)/pytest -n $(JOBS)

check: $(VENV)/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/docs

bench: $(VENV)/test
	$(BIN)/python -m benchmarks

lines:
	@find src tests native benchmarks -name '*.py' -o -name '*.cc' -o -name '*.h' | xargs wc -l | sort -n | tail -40

clean:
	rm -rf $(VENV) build

# A stamp each: the second run of a command does no set-up again.
$(VENV)/base: pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/test: $(VENV)/base
	$(PIP) install --quiet --constraint constraints.txt --editable '.[metrics,train,test,check]'
	touch $@
