# A fresh machine needs nothing but python3 (3.11 or newer) and make; a C compiler is used where there is one, else `zig cc`.
# make demo      compile and run a real model, compare it with ONNX Runtime
# make test      run the tests (those whose tool is missing are skipped, by name)
# make lint types notebooks    what CI runs besides
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
TESTFLAGS ?=

.PHONY: venv demo test lint types notebooks wheel clean

venv: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "polyopt needs Python 3.11 or newer; set PYTHON=... (this is %s)" % sys.version.split()[0])'
	@echo "installing packages into $(VENV): this takes some minutes …"
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: venv
	$(PY) -m benchmarks.demo

test: venv
	$(PY) -m pytest -n $(JOBS) --dist worksteal --doctest-glob=README.md $(TESTFLAGS) tests README.md

lint: venv
	$(PY) -m ruff check .

# A wheel in an environment of its own, which borrows the dependencies of .venv through a path file.
wheel: venv
	rm -rf build/wheel build/lib build/bdist* && mkdir -p build/wheel
	$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w build/wheel .
	$(PY) -m venv --without-pip build/wheel/env
	$(PY) -m pip --disable-pip-version-check --python build/wheel/env/bin/python install --quiet --no-deps --no-index build/wheel/polyopt-*.whl
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(build/wheel/env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/deps.pth"

# From outside the checkout, where ./polyopt does not shadow the installed package.
types: wheel
	cd build/wheel && env/bin/python -c 'import polyopt.codegen, polyopt.frontends, polyopt.runtime, polyopt.cli'
	cd build/wheel && ../../$(PY) -m mypy --config-file ../../pyproject.toml --python-executable env/bin/python -p polyopt

notebooks: venv
	$(PY) -m pytest --nbmake -p no:cacheprovider notebooks

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
