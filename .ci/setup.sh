#!/usr/bin/env bash
# Build the environment: a virtual environment, torch, then the package in editable mode. Compiles nothing.
set -euo pipefail

python=${PYTHON:-python3} venv=${VENV:-.venv} extras=${EXTRAS:-meshes,test}

"$python" - <<'CHECK' || exit 2
import sys
if sys.version_info < (3, 11):
    sys.exit(f"setup: Python {sys.version.split()[0]} is too old; point PYTHON at 3.11 or newer")
try:
    import ensurepip, venv
except ImportError as missing:
    version = "%d.%d" % sys.version_info[:2]
    sys.exit(f"setup: Python's '{missing.name}' module is missing; install the package python{version}-venv")
CHECK

suitable='
import sys
try:
    import torch
except ImportError:
    sys.exit(1)
sys.exit(0 if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 6) else 1)
'
constraints=(--constraint constraints.txt)
if [ -x "$venv/bin/python" ]; then
    :
elif "$python" -c "$suitable" 2>/dev/null; then
    echo "setup: using the torch that $python already has"
    "$python" -m venv --system-site-packages "$venv"
else
    "$python" -m venv "$venv"
fi
if "$venv/bin/python" -c "$suitable" 2>/dev/null; then
    # A torch that is already here may be another release than the pinned one: it stays, so its pin goes.
    unpinned=$(mktemp)
    trap 'rm -f "$unpinned"' EXIT
    grep -v -E '^(torch|triton)==' constraints.txt > "$unpinned"
    constraints=(--constraint "$unpinned")
else
    pin=$(grep -E '^torch==' constraints.txt)
    echo "setup: installing $pin: about 200 MB to download for a CPU-only wheel, 2 to 3 GB for the default CUDA wheel"
    # shellcheck disable=SC2086  # the arguments are meant to be split
    "$venv/bin/python" -m pip install --quiet "$pin" ${TORCH_PIP_ARGS:-}
fi
echo "setup: installing fusedplanes[$extras] and its dependencies: about 400 MB to download"
"$venv/bin/python" -m pip install --quiet "${constraints[@]}" --editable ".[$extras]"
echo "setup: done; the command is $venv/bin/fusedplanes"
