"""`fusedplanes demo`: from nothing to novel views in minutes, without any download."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from fusedplanes.cli.options import ComputeOptions, choose_device, parse
from fusedplanes.errors import ConfigError

OBJECTS, VIEWS, SIZE = 16, 80, 128


@dataclass(frozen=True, kw_only=True)
class Demo(ComputeOptions):
    """Make a class of cars, train Fused-Planes on it, and leave a model, a video, a contact sheet and a report."""

    out: Path = Path("runs/demo")
    """Run folder; an earlier demo there is replaced."""
    minutes: float = 6.0
    """Training time; making the data and the pictures takes about one minute more on two cores."""


def main(arguments: list[str]) -> None:
    options = parse(Demo, arguments, "demo")
    from fusedplanes import datasets
    from fusedplanes.planes.config import preset, with_downscale
    from fusedplanes.planes.evaluate import evaluate
    from fusedplanes.planes.model import load
    from fusedplanes.planes.report import write_report
    from fusedplanes.planes.run import train
    from fusedplanes.rendering.video import save_orbit

    if options.minutes <= 0:
        raise ConfigError(f"--minutes {options.minutes:g}: training needs some time; 6 is the default")
    start = time.perf_counter()
    quiet = options.quiet or options.json

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    data = options.out.parent / f"{options.out.name}-data"
    say(f"demo: rendering {OBJECTS} cars from {VIEWS} sides at {SIZE}x{SIZE} into {data}")
    datasets.make_class("cars", objects=OBJECTS, views=VIEWS, size=SIZE, out=data, seed=options.seed, quiet=True)
    dataset = datasets.load(data)
    config = with_downscale(preset("small"), 8)
    config = replace(config, training=replace(config.training, seed=options.seed))
    say(f"demo: training; {options.out / 'preview.png'} is refreshed as it goes")
    summary = train(
        dataset,
        options.out,
        config=config,
        minutes=options.minutes,
        device=choose_device(options.device),
        overwrite=True,
        watch_seconds=30.0,
        watch_first_seconds=8.0,
        quiet=quiet,
    )
    say("demo: measuring held-out views and rendering the orbit video")
    model = load(options.out, device=choose_device(options.device))
    result = evaluate(model, dataset)
    save_orbit(model, model.object_ids[:8], options.out / "orbit.mp4", size=SIZE)
    write_report(model, dataset, result, summary, options.out)
    seconds = time.perf_counter() - start
    if options.json:
        print(json.dumps({"run": str(options.out), "total_seconds": seconds, **result.to_json()}))
    elif not options.quiet:
        print(result.table())
        print(f"{options.out}: orbit.mp4, contact_sheet.png, report.md ({seconds:.0f} s in all)")
