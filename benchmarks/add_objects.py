"""New objects for a trained class: the cars that real_cars.py left out, added and fitted from few views.

Run after real_cars.py, with the same folder of cars and the same work folder::

    python benchmarks/add_objects.py CARS_FOLDER --pairs cars_pairs.csv

Measured are (1) added objects against those of stage 1, and against more steps; (2) objects fitted from 1, 3, 8 and 24
views, beside plain Tri-Planes trained on the same views. Results go to benchmarks/results/add_objects*.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from machine import facts_text, machine_facts
from real_cars import SIZE, VIEWS, choose

from fusedplanes import datasets
from fusedplanes.files import write_atomically, write_json
from fusedplanes.images import composite_over
from fusedplanes.planes.add import add
from fusedplanes.planes.config import preset
from fusedplanes.planes.evaluate import evaluate, quality
from fusedplanes.planes.model import load
from fusedplanes.planes.run import train

FEW = (1, 3, 8, 24)
TRI_PLANE_SECONDS = 8.0
"""Training time of one Tri-Plane in the comparison from few views, about what real_cars.py gives each of its own."""


def render_left_out(folder: Path, pairs_file: Path, work: Path):
    """A data set of the cars that stage 1 has not seen."""
    names = sorted(path.stem for path in folder.glob("*.glb"))
    with pairs_file.open() as file:
        pairs = [(row["older"], row["newer"]) for row in csv.DictReader(file)]
    seen = set(choose(names, pairs))
    meshes = work / "left-out-meshes"
    shutil.rmtree(meshes, ignore_errors=True)
    meshes.mkdir(parents=True)
    for name in names:
        if name not in seen:
            shutil.copy(folder / f"{name}.glb", meshes)
    datasets.from_meshes(meshes, work / "left-out", views=VIEWS, size=SIZE, licence="CC0-1.0", overwrite=True)
    return datasets.load(work / "left-out")


class FewViews:
    """The objects of a data set with only some of their training views, spread over all; test views stay."""

    def __init__(self, dataset, count: int) -> None:
        self.dataset, self.count, self.ids = dataset, count, dataset.ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, key):
        item = self.dataset[key]
        training = [index for index, name in enumerate(item.split) if name == "train"]
        # From a third down: the first views of the rig look straight down, which shows least of a car.
        places = (torch.arange(self.count) + 0.5) / self.count * 0.6 + 0.15
        chosen = {training[int(place * len(training))] for place in places}
        keep = torch.tensor([i for i, name in enumerate(item.split) if name == "test" or i in chosen])
        split = tuple(item.split[i] for i in keep.tolist())
        return replace(item, images=item.images[keep], cameras=item.cameras[keep], split=split, depth=None)

    def __iter__(self):
        return (self[name] for name in self.ids)


def fitted(model, few: FewViews, mode: str) -> tuple[float, float]:
    """Mean foreground PSNR on held-out views, and seconds per object."""
    scores, spent, background = [], 0.0, torch.ones(3)
    for item in few:
        start = time.perf_counter()
        seen = item.views("train")
        planes = model.fit(seen.images, seen.cameras, mode=mode)
        spent += time.perf_counter() - start
        held_out = item.views("test")
        rendered = model.render(planes, held_out.cameras).color
        truth = composite_over(held_out.images, background)
        scores.append(quality(rendered, truth, held_out.alpha).psnr_foreground)
    return fmean(scores), spent / len(few)


def tri_planes(few: FewViews, work: Path) -> float:
    """Mean foreground PSNR of plain Tri-Planes trained on the same views."""
    run = work / "few-tri-planes"
    minutes = TRI_PLANE_SECONDS * len(few) / 60
    train(few, run, config=preset("small", "tri-planes"), minutes=minutes, watch_seconds=0, overwrite=True, quiet=True)
    return evaluate(load(run), few).average.psnr_foreground


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cars", type=Path)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/real-cars"))
    parser.add_argument("--few-objects", type=int, default=6, help="objects fitted from few views")
    options = parser.parse_args()
    dataset = render_left_out(options.cars, options.pairs, options.work)
    old = datasets.load(options.work / "data")
    result: dict = {"facts": machine_facts(), "add": {}, "few": {}}
    stage_one, ulw = load(options.work / "fused-planes"), load(options.work / "ulw")
    result["stage_one_psnr_foreground"] = evaluate(stage_one, old).average.psnr_foreground
    for share in (0.25, 1.0):
        run = options.work / f"added-{share}"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(options.work / "fused-planes", run)
        summary = add(run, dataset, share=share, quiet=True)
        found = evaluate(load(run), dataset).average
        result["add"][str(share)] = {
            "psnr_foreground": found.psnr_foreground,
            "psnr": found.psnr,
            "seconds_per_object": summary.seconds / len(summary.added),
            "objects": len(summary.added),
        }
        print(share, result["add"][str(share)], "stage 1:", result["stage_one_psnr_foreground"], flush=True)
    for count in FEW:
        few = FewViews(dataset, count)
        few.ids = few.ids[: options.few_objects]
        row = {"tri-planes": tri_planes(few, options.work)}
        for mode in ("weights", "weights+micro"):
            row[mode], row[f"{mode} seconds"] = fitted(stage_one, few, mode)
        row["ulw"], row["ulw seconds"] = fitted(ulw, few, "weights")
        result["few"][str(count)] = row
        print(count, row, flush=True)
    results = Path(__file__).parent / "results"
    write_json(results / "add_objects.json", result)
    write_atomically(results / "add_objects.md", table(result).encode())
    write_atomically(results / "few_views.md", few_table(result, options.few_objects).encode())


def table(result: dict) -> str:
    """Added objects beside those of stage 1."""
    lines = ["| | foreground PSNR | seconds per object |", "|---|---|---|"]
    lines.append(f"| objects of stage 1 | {result['stage_one_psnr_foreground']:.2f} dB | |")
    for share, row in result["add"].items():
        name = f"{row['objects']} added, {100 * float(share):.0f} % of stage 1's steps per object"
        lines.append(f"| {name} | {row['psnr_foreground']:.2f} dB | {row['seconds_per_object']:.1f} |")
    return "\n".join([*lines, "", f"Held-out views at {SIZE}x{SIZE}; {facts_text(result['facts'])}.", ""])


def few_table(result: dict, objects: int) -> str:
    """Objects fitted from few views."""
    lines = ["| views | weights, ULW | weights | weights + micro planes | Tri-Plane |", "|---|---|---|---|---|"]
    for count, row in result["few"].items():
        cells = [f"{row[name]:.2f} dB" for name in ("ulw", "weights", "weights+micro", "tri-planes")]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    note = f"Foreground PSNR on ten held-out views of {objects} cars unseen in stage 1; {facts_text(result['facts'])}."
    return "\n".join([*lines, "", note, ""])


if __name__ == "__main__":
    main()
