"""`fusedplanes add`: new objects for a run, against its trained shared parts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from fusedplanes.cli.options import ComputeOptions, choose_device, parse


@dataclass(frozen=True, kw_only=True)
class Add(ComputeOptions):
    """Add the objects of a data set to a finished run; objects that are stored already are passed over."""

    run: Positional[Path]
    """Run folder."""
    data: Positional[tuple[Path, ...]]
    """Data set with the new objects, of the run's image size; or several."""
    mode: Literal["weights", "weights+micro"] = "weights+micro"
    """weights: fit only the mix of base planes, micro planes stay zero; best from a single view and for ULW runs."""
    share: float = 0.25
    """Steps of each new object, as a share of those that training gave each of its own."""
    size: int = 0
    """Resample the images to this many pixels along the longer side; 0 takes what the run was resampled to."""
    finetune_base: bool = False
    """Train base planes and decoders on, as published; old objects are measured before and after."""


def main(arguments: list[str]) -> None:
    options = parse(Add, arguments, "add")
    from fusedplanes import datasets
    from fusedplanes.planes.add import add
    from fusedplanes.planes.run_folder import data_folders, resampled_size

    trained_at = resampled_size(options.run)
    check_on = datasets.load(data_folders(options.run), size=trained_at) if options.finetune_base else None
    summary = add(
        options.run,
        datasets.load(options.data, size=options.size or trained_at),
        mode=options.mode,
        share=options.share,
        finetune_base=options.finetune_base,
        check_on=check_on,
        device=choose_device(options.device),
        seed=options.seed,
        quiet=options.quiet or options.json,
    )
    if options.json:
        print(json.dumps(summary.to_json()))
    elif not options.quiet:
        print(summary.text())
