"""`fusedplanes evaluate`: measure a run on held-out views."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from fusedplanes.cli.options import ComputeOptions, choose_device, parse
from fusedplanes.errors import first_few


@dataclass(frozen=True, kw_only=True)
class Evaluate(ComputeOptions):
    """PSNR, foreground PSNR and SSIM on the views held out of training, beside three floors that need no model."""

    run: Positional[Path]
    """Run folder."""
    data: tuple[Path, ...] = ()
    """Data set, or several; what the run was trained on if not given."""
    size: int = 0
    """Resample the images to this many pixels along the longer side; 0 takes what the run was resampled to."""
    objects: int = 0
    """Evaluate only the first so many objects; 0 takes all."""


def main(arguments: list[str]) -> None:
    options = parse(Evaluate, arguments, "evaluate")
    from fusedplanes import datasets
    from fusedplanes.planes.evaluate import evaluate
    from fusedplanes.planes.model import load
    from fusedplanes.planes.run_folder import data_folders, resampled_size

    model = load(options.run, device=choose_device(options.device))
    data, size = options.data or data_folders(options.run), options.size or resampled_size(options.run)
    dataset = datasets.load(data, size=size)
    result = evaluate(model, dataset, objects=None if options.objects == 0 else options.objects)
    if options.json:
        print(json.dumps(result.to_json()))
        return
    print(result.table())
    missing = sorted(set(model.object_ids) - set(dataset.ids))
    if missing and not options.quiet:
        print(f"not measured, in no data set given: {first_few(missing)}; name theirs with --data")
