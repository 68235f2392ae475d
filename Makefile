# The whole project through four targets: `make setup`, `make demo`, `make test`, `make check`.
#
#   PYTHON          interpreter to build the environment with (3.11 or newer)
#   TORCH_PIP_ARGS  handed to `pip install torch`, e.g. --index-url with the CPU wheel index from pytorch.org
#   EXTRAS          optional parts to install

PYTHON ?= python3
TORCH_PIP_ARGS ?=
EXTRAS ?= meshes,test
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test check clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt .ci/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" EXTRAS="$(EXTRAS)" TORCH_PIP_ARGS="$(TORCH_PIP_ARGS)" bash .ci/setup.sh
	@touch $@

demo: setup
	$(BIN)/fusedplanes demo

test: setup
	$(BIN)/pytest -n 2 --dist loadfile

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	bash .ci/check-wheel.sh "$(PYTHON)" "$(TORCH_PIP_ARGS)"

clean:
	rm -rf $(VENV) build dist *.egg-info
