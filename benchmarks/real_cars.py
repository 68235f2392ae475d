"""Forty real cars: Tri-Planes, Fused-Planes and the ultra-lightweight variant at equal seconds on one machine.

Where the README's picture, plot and table come from::

    python benchmarks/real_cars.py CARS_FOLDER --pairs cars_pairs.csv --minutes 8

CARS_FOLDER holds .glb files; the pairs name editions of one model, which stay on one side of the split. Results go to
benchmarks/results/real_cars*.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from pathlib import Path

import torch
from machine import facts_text, machine_facts

from fusedplanes import datasets
from fusedplanes.files import read_json, write_atomically, write_json
from fusedplanes.images import composite_over, save
from fusedplanes.planes.config import preset, with_downscale
from fusedplanes.planes.evaluate import evaluate
from fusedplanes.planes.model import load
from fusedplanes.planes.run import train
from fusedplanes.reports.contact_sheet import contact_sheet
from fusedplanes.reports.line_plot import line_plot
from fusedplanes.training.log import read_log
from fusedplanes.training.metrics import psnr

METHODS = {"tri-planes": "Tri-Planes", "fused-planes": "Fused-Planes", "ulw": "ULW"}
TRAINED, SIZE, VIEWS = 40, 64, 100
SHOWN = ("kenney_taxi", "kenney_tractor-police", "market_ice-cream-truck", "kenney_firetruck")


def choose(names: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """The trained cars: pairs first, whole, then single models in alphabetical order; the rest is left for later."""
    kept: list[str] = []
    partner = dict(pairs) | {b: a for a, b in pairs}
    wanted = [name for pair in pairs[: (TRAINED - 6) // 2] for name in pair]
    wanted += [name for name in SHOWN if name not in partner]
    wanted += [name for name in names if name not in partner]
    for name in wanted:
        if name in names and name not in kept and len(kept) < TRAINED:
            kept.append(name)
    return sorted(kept)


def make_data(folder: Path, pairs_file: Path, work: Path) -> Path:
    names = sorted(path.stem for path in folder.glob("*.glb"))
    with pairs_file.open() as file:
        pairs = [(row["older"], row["newer"]) for row in csv.DictReader(file)]
    meshes = work / "meshes"
    shutil.rmtree(meshes, ignore_errors=True)
    meshes.mkdir(parents=True)
    for name in choose(names, pairs):
        shutil.copy(folder / f"{name}.glb", meshes)
    datasets.from_meshes(meshes, work / "data", views=VIEWS, size=SIZE, licence="CC0-1.0", overwrite=True)
    return work / "data"


def curve(run: Path) -> list[tuple[float, float]]:
    records = [record for record in read_log(run / "log.jsonl") if "held_out_psnr" in record.metrics]
    return [(r.metrics["training_seconds"], r.metrics["held_out_psnr"]) for r in records if r.phase != "autoencoder"]


def picture(dataset, models: dict, rows: dict) -> torch.Tensor:
    shown = [name for name in SHOWN if name in dataset.ids]
    grid, captions = [], []
    for name in shown:
        view = dataset[name].views("test")
        truth = composite_over(view.images[4:5], torch.ones(3))
        pictures, texts = [truth[0]], [""]
        for method, model in models.items():
            rendered = model.render(name, view.cameras[4:5]).color
            pictures.append(rendered[0])
            texts.append(f"{psnr(rendered, truth).item():.1f} dB, {size_text(rows[method]['object_bytes'])}")
        grid.append(pictures)
        captions.append(texts)
    return contact_sheet(grid, columns=["truth", *(METHODS[m] for m in models)], captions=captions, scale=3)


def size_text(count: int) -> str:
    return f"{count} B" if count < 1000 else f"{count / 1000:.0f} kB" if count < 1e6 else f"{count / 1e6:.2f} MB"


def table(rows: dict, facts: dict) -> str:
    """The README's first table: one row per method."""
    lines = [
        "| | seconds per object | bytes per object (fp32) | shared by the class | foreground PSNR | PSNR |",
        "|---|---|---|---|---|---|",
    ]
    for method, row in rows.items():
        lines.append(
            f"| {METHODS[method]} | {row['seconds'] / row['count']:.1f} | {row['object_bytes']:,} | "
            f"{size_text(row['shared_bytes'])} | {row['psnr_foreground']:.2f} dB | {row['psnr']:.2f} dB |"
        )
    count = next(iter(rows.values()))["count"]
    note = facts_text(facts)
    return "\n".join([*lines, "", f"{count} real cars at {SIZE}x{SIZE}, held-out views; {note}.", ""])


def floors_table(rows: dict) -> str:
    """The longer table: methods beside the floors that need no model."""
    lines = ["| | PSNR | foreground PSNR | SSIM |", "|---|---|---|---|"]
    named = [(METHODS[method], row) for method, row in rows.items()]
    named += [(f"floor: {name}", floor) for name, floor in next(iter(rows.values()))["floors"].items()]
    for name, row in named:
        lines.append(f"| {name} | {row['psnr']:.2f} | {row['psnr_foreground']:.2f} | {row['ssim']:.3f} |")
    return "\n".join([*lines, ""])


def write_tables(results: Path, rows: dict, facts: dict) -> None:
    write_atomically(results / "real_cars.md", table(rows, facts).encode())
    write_atomically(results / "real_cars_floors.md", floors_table(rows).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cars", type=Path, nargs="?")
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--tables", action="store_true", help="only write the tables anew from the stored results")
    parser.add_argument("--minutes", type=float, default=8.0, help="training time of each method")
    parser.add_argument("--work", type=Path, default=Path("runs/real-cars"))
    options = parser.parse_args()
    results = Path(__file__).parent / "results"
    if options.tables:
        stored = read_json(results / "real_cars.json")
        write_tables(results, stored["rows"], stored["facts"])
        return
    if options.cars is None or options.pairs is None:
        parser.error("name the folder of cars, and the file of pairs with --pairs")
    dataset = datasets.load(make_data(options.cars, options.pairs, options.work))
    rows, models, curves = {}, {}, {}
    for method, name in METHODS.items():
        config = with_downscale(preset("small", method), 2)
        run = options.work / method
        summary = train(
            dataset,
            run,
            config=config,
            minutes=options.minutes,
            overwrite=True,
            watch_seconds=30,
            watch_first_seconds=5,
        )
        models[method] = load(run)
        evaluation = evaluate(models[method], dataset).to_json()
        evaluation["objects"] = [{k: v for k, v in row.items() if k != "floors"} for row in evaluation["objects"]]
        rows[method] = {
            **evaluation,
            "seconds": summary.seconds,
            "predicted_seconds": summary.predicted_seconds,
            "count": summary.objects,
            "peak_memory_bytes": summary.peak_memory_bytes,
            "disk_bytes": summary.disk_bytes,
        }
        curves[name] = curve(run)
        print(f"{name}: {rows[method]['psnr']:.2f} dB, foreground {rows[method]['psnr_foreground']:.2f} dB", flush=True)
    facts = machine_facts()
    write_json(results / "real_cars.json", {"facts": facts, "rows": rows, "curves": curves})
    write_tables(results, rows, facts)
    save(results / "real_cars.png", picture(dataset, models, rows))
    plot = line_plot(curves, title=f"{len(dataset)} real cars, held-out views", x_label="seconds", y_label="PSNR (dB)")
    write_atomically(results / "real_cars.svg", plot.encode())
    print(json.dumps({METHODS[m]: curves[METHODS[m]][-1] for m in rows}))


if __name__ == "__main__":
    main()
