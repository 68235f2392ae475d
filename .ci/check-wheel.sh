#!/usr/bin/env bash
# Build the wheel and use it from an empty environment, away from the source tree.
set -euo pipefail

python=$1 torch_arguments=${2:-}
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

.venv/bin/python -m build --wheel --outdir "$work/dist" . > "$work/build.log" 2>&1 || { tail -20 "$work/build.log"; exit 1; }
.venv/bin/python - "$work"/dist/*.whl <<'COMPARE'
import sys, zipfile
from pathlib import Path
homes = {"fusedplanes": "fusedplanes", "fusedplanes/kernels": "kernels", "fusedplanes/datasets": "datasets"}
tree = {f"{to}/{p.relative_to(root)}" for to, root in homes.items() for p in Path(root).rglob("*.py")}
wheel = {name for name in zipfile.ZipFile(sys.argv[1]).namelist() if name.endswith(".py")}
if tree != wheel:
    sys.exit(f"wheel: differs from the tree in {sorted(tree ^ wheel)}")
COMPARE
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
