#!/usr/bin/env bash
# Build the wheel and use it from an empty environment, away from the source tree.
set -euo pipefail

python=$1 torch_arguments=${2:-}
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

.venv/bin/python -m build --wheel --outdir "$work/dist" . > "$work/build.log" 2>&1 || { tail -20 "$work/build.log"; exit 1; }
"$python" -m venv "$work/venv"
# shellcheck disable=SC2086
"$work/venv/bin/python" -m pip install --quiet "$(grep -E '^torch==' constraints.txt)" $torch_arguments
"$work/venv/bin/python" -m pip install --quiet --constraint constraints.txt "$work"/dist/fusedplanes-*.whl
cd "$work"
"$work/venv/bin/fusedplanes" data make cars --objects 4 --views 10 --size 32 --out data --quiet
"$work/venv/bin/fusedplanes" train data --out run --preset tiny --quiet
"$work/venv/bin/fusedplanes" evaluate run --data data --json
"$work/venv/bin/fusedplanes" render run --out orbit.mp4 --frames 4
test -s orbit.mp4
echo "wheel: installed and used outside $(basename "$root")"
echo "1 passed, 0 failed"
