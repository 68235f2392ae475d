"""One model for cars, chairs and food against a model for each, and a class that none of them has seen.

Run with the folder that holds the folders of meshes ``cars``, ``chairs`` and ``food``::

    python benchmarks/several_classes.py CLASSES_FOLDER

Every object gets the same number of steps in every model. Results go to benchmarks/results/several_classes*.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from machine import facts_text, machine_facts
from real_cars import size_text

from fusedplanes import datasets
from fusedplanes.files import write_atomically, write_json
from fusedplanes.planes.add import add
from fusedplanes.planes.config import RunConfig, preset, with_banks, with_downscale
from fusedplanes.planes.evaluate import Quality, evaluate
from fusedplanes.planes.model import PlanesModel, load
from fusedplanes.planes.run import train

CLASSES, UNSEEN = ("cars", "chairs", "food"), "lamps"
OBJECTS, UNSEEN_OBJECTS, SIZE, VIEWS = 12, 6, 64, 60
AUTOENCODER_STEPS, WARM_UP_VISITS, JOINT_VISITS = 100, 25, 150
"""Steps of a model's autoencoder, and how often each object is in a batch of the other two phases."""


def make_data(meshes: Path, work: Path) -> dict[str, Path]:
    """A data set of each class: models spread over the alphabet, which keeps editions of one model apart."""
    folders = {}
    for name in CLASSES:
        chosen = work / "meshes" / name
        shutil.rmtree(chosen, ignore_errors=True)
        chosen.mkdir(parents=True)
        everything = sorted((meshes / name).glob("*.glb"))
        for place in range(OBJECTS):
            shutil.copy(everything[place * len(everything) // OBJECTS], chosen)
        folders[name] = work / "data" / name
        datasets.from_meshes(chosen, folders[name], views=VIEWS, size=SIZE, licence="CC0-1.0", overwrite=True)
    folders[UNSEEN] = work / "data" / UNSEEN
    datasets.make_class(UNSEEN, objects=UNSEEN_OBJECTS, views=VIEWS, size=SIZE, out=folders[UNSEEN], overwrite=True)
    return folders


def configuration(objects: int) -> RunConfig:
    """Preset small with steps that follow the number of objects."""
    config = with_downscale(preset("small"), 2)
    training = config.training
    batches = objects / min(objects, training.joint.objects_per_batch)
    training = replace(
        training,
        autoencoder_steps=AUTOENCODER_STEPS,
        warm_up=replace(training.warm_up, steps=round(batches * WARM_UP_VISITS)),
        joint=replace(training.joint, steps=round(batches * JOINT_VISITS)),
    )
    return replace(config, training=training)


def trained(folders: list[Path], out: Path, change=lambda config: config) -> tuple[PlanesModel, dict[str, Quality]]:
    """A model of the data sets in the folders, and its quality by class."""
    dataset = datasets.load(folders)
    train(dataset, out, config=change(configuration(len(dataset))), watch_seconds=0, overwrite=True)
    model = load(out)
    found = evaluate(model, dataset)
    return model, dict(found.classes) or {folders[0].name: found.average}


def row(models: list[PlanesModel], qualities: dict[str, Quality], unseen: Quality | None) -> dict:
    """What is told of one arrangement of models."""
    return {
        "psnr_foreground": {name: quality.psnr_foreground for name, quality in qualities.items()},
        "psnr": {name: quality.psnr for name, quality in qualities.items()},
        "unseen_psnr_foreground": None if unseen is None else unseen.psnr_foreground,
        "shared_bytes": sum(model.shared_bytes() for model in models),
        "object_bytes": models[0].object_bytes(),
    }


def added(run: Path, folder: Path) -> Quality:
    """Quality of the objects in a folder once they are added to a copy of a run."""
    copy = run.with_name(f"{run.name}-added")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    dataset = datasets.load(folder)
    add(copy, dataset, quiet=True)
    return evaluate(load(copy), dataset).average


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("meshes", type=Path, help="folder with the folders cars, chairs and food")
    parser.add_argument("--work", type=Path, default=Path("runs/several-classes"))
    options = parser.parse_args()
    folders = make_data(options.meshes, options.work)
    seen, unseen = [folders[name] for name in CLASSES], folders[UNSEEN]
    rows: dict[str, dict] = {}

    def note(name: str, value: dict) -> None:
        rows[name] = value
        print(name, value, flush=True)

    models, qualities = [], {}
    for folder in seen:
        model, quality = trained([folder], options.work / folder.name)
        models.append(model)
        qualities |= quality
    note("a model for each class", row(models, qualities, added(options.work / CLASSES[0], unseen)))
    per_class = configuration(1).model.base_planes
    many = len(CLASSES) * per_class
    for name, run, change in (
        (f"one model, {per_class} base planes", "one", lambda config: config),
        (
            f"one model, {many} base planes",
            "one-larger",
            lambda config: replace(config, model=replace(config.model, base_planes=many)),
        ),
        (
            f"one model, a bank of {per_class} for each class",
            "banks",
            lambda config: with_banks(config, len(CLASSES)),
        ),
    ):
        model, quality = trained(seen, options.work / run, change)
        note(name, row([model], quality, added(options.work / run, unseen)))
    model, quality = trained([unseen], options.work / UNSEEN)
    result = {"facts": machine_facts(), "rows": rows, "unseen_alone": quality[UNSEEN].psnr_foreground}
    results = Path(__file__).parent / "results"
    write_json(results / "several_classes.json", result)
    write_atomically(results / "several_classes.md", table(result).encode())


def table(result: dict) -> str:
    """One row for each arrangement of models."""
    lines = [
        f"| foreground PSNR | {' | '.join(CLASSES)} | {UNSEEN}, never seen, added | shared bytes | bytes per object |",
        "|" + "---|" * (len(CLASSES) + 4),
    ]
    for name, found in result["rows"].items():
        cells = [f"{found['psnr_foreground'][item]:.2f} dB" for item in CLASSES]
        cells.append(f"{found['unseen_psnr_foreground']:.2f} dB")
        cells += [size_text(found["shared_bytes"]), f"{found['object_bytes']:,}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    note = (
        f"{OBJECTS} objects a class at {SIZE}x{SIZE}, held-out views. In the first row {UNSEEN} were added to cars; "
        f"trained as a class they reach {result['unseen_alone']:.2f} dB; {facts_text(result['facts'])}."
    )
    return "\n".join([*lines, "", note, ""])


if __name__ == "__main__":
    main()
