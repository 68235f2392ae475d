"""`fusedplanes train`: from a data set to a run folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from fusedplanes.cli.options import ComputeOptions, choose_device, parse
from fusedplanes.errors import ConfigError

if TYPE_CHECKING:
    from fusedplanes.planes.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Train(ComputeOptions):
    """Train a class of objects: shared parts, and one small record per object."""

    data: Positional[tuple[Path, ...]]
    """Data set folder: as `fusedplanes data` makes it, or of nerfstudio, NeRF-synthetic or SRN objects. Several folders
    are several classes, trained into one run."""
    out: Path | None = None
    """Run folder; runs/<name of the data set> if not given."""
    method: Literal["fused-planes", "ulw", "tri-planes"] = "fused-planes"
    """fused-planes; ulw: no micro planes, an object is its mix of base planes; tri-planes: independent RGB planes."""
    preset: Literal["tiny", "small", "paper"] = "small"
    """tiny: seconds, for tests; small: two CPU cores; paper: published sizes."""
    banks: bool = False
    """With several data sets: base planes of its own for each, instead of one set that all mix."""
    size: int = 0
    """Resample the images to this many pixels along the longer side; 0 keeps them."""
    minutes: float = 0.0
    """Shorten or lengthen every phase so that training takes about so long; 0 keeps the preset's steps."""
    downscale: Literal[0, 2, 4, 8] = 0
    """Image pixels along a side of a latent cell; 0 chooses the preset's, or for small about 32 cells a side."""
    autoencoder: str = ""
    """Published autoencoder to use instead of training one: a folder or hub id of diffusers' AutoencoderKL or -Tiny."""
    accept_licence: bool = False
    """Say that you accept the licence of the weights that --autoencoder names."""
    plan: bool = False
    """Only predict time, disk and memory."""
    resume: bool = False
    """Go on from the last checkpoint of the run folder."""
    overwrite: bool = False
    """Replace what the run folder holds."""
    watch: float = 60.0
    """Seconds between held-out previews (preview.png and a line in log.jsonl); 0 renders none."""
    tensorboard: bool = False
    """Also write TensorBoard event files."""


def main(arguments: list[str]) -> None:
    options = parse(Train, arguments, "train")
    from fusedplanes import datasets
    from fusedplanes.planes.run import make_plan, train
    from fusedplanes.planes.run_folder import has_begun, read_config

    out = options.out or Path("runs") / "-".join(path.resolve().name for path in options.data)
    goes_on = options.resume and has_begun(out)
    if goes_on:
        _refuse_changes(arguments, options, out)
    dataset = datasets.load(options.data, size=options.size or None)
    config = read_config(out) if goes_on else _asked_for(options, dataset.size)
    device = choose_device(options.device)
    if options.plan:
        plan = make_plan(config, dataset, minutes=options.minutes, device=device)
        print(json.dumps(plan.to_json()) if options.json else plan.text())
        return
    summary = train(
        dataset,
        out,
        config=config,
        minutes=options.minutes,
        device=device,
        resume=options.resume,
        overwrite=options.overwrite,
        watch_seconds=options.watch,
        tensorboard=options.tensorboard,
        quiet=options.quiet or options.json,
    )
    if options.json:
        print(json.dumps(summary.to_json()))
    elif not options.quiet:
        print(summary.text())


def _asked_for(options: Train, image_size: int) -> RunConfig:
    """The configuration of a new run on images of ``image_size`` pixels.

    Raises:
        ConfigError: options that exclude each other, or weights whose licence is not accepted.
        DataError: an autoencoder that cannot be read.
    """
    from fusedplanes.autoencoders.weight_files import open_pretrained
    from fusedplanes.planes.config import preset, with_autoencoder, with_banks, with_downscale

    config = preset(options.preset, options.method)
    config = replace(config, training=replace(config.training, seed=options.seed))
    if options.autoencoder:
        if config.model.autoencoder is None:
            raise ConfigError(
                f"--autoencoder {options.autoencoder}: {options.method} has no latent space; leave it out"
            )
        config = with_autoencoder(config, open_pretrained(options.autoencoder, accept_licence=options.accept_licence))
    elif options.accept_licence:
        raise ConfigError("--accept-licence: no weights are named that have one; add --autoencoder, or leave it out")
    if options.banks:
        config = with_banks(config, len(options.data))
    if options.downscale:
        return with_downscale(config, options.downscale)
    if options.preset == "small" and not options.autoencoder:
        return with_downscale(config, 2 if image_size < 128 else 4 if image_size < 256 else 8)
    return config


def _refuse_changes(arguments: list[str], options: Train, out: Path) -> None:
    """A run goes on with the settings it was started with; asking for others is a mistake.

    Raises:
        ConfigError: an option of the command line says something else than the run's config.json.
        DataError: an autoencoder that is neither a folder nor a hub id.
    """
    from fusedplanes.autoencoders.weight_files import resolved_source
    from fusedplanes.planes.run_folder import read_config, resampled_size

    asked = resolved_source(options.autoencoder) if options.autoencoder else ""
    config = read_config(out)
    autoencoder = config.model.autoencoder
    found = {
        "--preset": (options.preset, config.preset),
        "--method": (options.method, config.method),
        "--banks": (options.banks, config.model.banks > 1),
        "--seed": (options.seed, config.training.seed),
        "--downscale": (options.downscale, autoencoder.downscale if autoencoder else 0),
        "--autoencoder": (asked, getattr(autoencoder, "source", "its own")),
        "--size": (options.size, resampled_size(out) or 0),
        "--minutes": (options.minutes, "what it was started with"),
    }
    given = {argument.split("=")[0].replace("_", "-") for argument in arguments}
    for name, (asked, has) in found.items():
        if name in given and asked != has:
            raise ConfigError(f"{name} {asked}: the run in {out} has {has}; leave it out, or start another run")
