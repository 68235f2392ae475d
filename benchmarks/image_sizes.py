"""Memory and time of a step at 128, 256 and 512 pixels: what `train --plan` predicts, and what is measured.

    python benchmarks/image_sizes.py

Four procedural objects of 12 views are made at 512 pixels; `train --size` resamples them. Every command is a process of
its own, whose largest resident size the system tells. Results go to benchmarks/results/image_sizes*.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from killed_runs import Pace
from machine import facts_text, machine_facts

from fusedplanes import datasets
from fusedplanes.files import write_atomically, write_json

SIZES = (128, 256, 512)
OBJECTS, VIEWS = 4, 12
PACE = Pace(share=0.005)
KILLED_RUNS = Path(__file__).with_name("killed_runs.py")


def run(*words: str | Path) -> tuple[dict, int]:
    """What a command says in JSON, and its peak memory in bytes."""
    with tempfile.TemporaryFile("w+") as told:
        child = subprocess.Popen([sys.executable, *map(str, words), "--json"], stdout=told)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(map(str, words))}: ended with {child.returncode}")
        told.seek(0)
        return json.loads(told.read()), usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(data: Path, out: Path, size: int) -> dict:
    """One size, from the plan to pictures."""
    command = ("-m", "fusedplanes")
    plan, _ = run(*command, "train", data, "--size", str(size), "--plan")
    paced = (KILLED_RUNS, json.dumps(asdict(PACE)))
    summary, trained = run(*paced, "train", data, "--size", str(size), "--out", out)
    _, rendered = run(*command, "render", out, "--frames", "4", "--out", out / "views")
    quality, evaluated = run(*command, "evaluate", out)
    return {
        "predicted_bytes": plan["peak_memory_bytes"],
        "train_bytes": trained,
        "render_bytes": rendered,
        "evaluate_bytes": evaluated,
        "step_seconds": {phase["name"]: phase["step_seconds"] for phase in plan["phases"]},
        "object_bytes": summary["object_bytes"],
        "shared_bytes": summary["shared_bytes"],
        "psnr": quality["psnr"],
    }


def main() -> None:
    result = {"facts": machine_facts(), "objects": OBJECTS, "views": VIEWS, "sizes": {}}
    with tempfile.TemporaryDirectory(prefix="fusedplanes-sizes-") as folder:
        data = Path(folder) / "data"
        datasets.make_class("mugs", objects=OBJECTS, views=VIEWS, size=max(SIZES), out=data, quiet=True)
        for size in SIZES:
            result["sizes"][str(size)] = row = measure(data, Path(folder) / f"run-{size}", size)
            print(size, row, flush=True)
    results = Path(__file__).parent / "results"
    write_json(results / "image_sizes.json", result)
    write_atomically(results / "image_sizes.md", table(result).encode())


def table(result: dict) -> str:
    """Predicted beside measured, per size."""
    lines = [
        "| images | predicted memory | `train` | `render` | `evaluate` | warm-up, joint step | bytes: object, shared |",
        "|---|---|---|---|---|---|---|",
    ]
    for size, row in result["sizes"].items():
        memory = [f"{row[name] / 1e9:.2f} GB" for name in ("predicted_bytes", "train_bytes", "render_bytes")]
        steps = ", ".join(f"{row['step_seconds'][name]:.2f} s" for name in ("warm-up", "joint"))
        lines.append(
            f"| {size}x{size} | {' | '.join(memory)} | {row['evaluate_bytes'] / 1e9:.2f} GB | {steps} | "
            f"{row['object_bytes']:,}, {row['shared_bytes']:,} |"
        )
    note = facts_text(result["facts"])
    text = f"Preset small, {result['objects']} objects of {result['views']} views; {note}."
    return "\n".join([*lines, "", text, ""])


if __name__ == "__main__":
    main()
