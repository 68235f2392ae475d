"""`fusedplanes render`: an orbit video, or still views, of trained objects."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from fusedplanes.cli.options import ComputeOptions, choose_device, parse
from fusedplanes.errors import ConfigError

LARGEST_SIZE = 8192


@dataclass(frozen=True, kw_only=True)
class Render(ComputeOptions):
    """Render one turn round trained objects, as a video (.mp4, .webm, .gif) or as a folder of PNG files."""

    run: Positional[Path]
    """Run folder."""
    out: Path = Path("orbit.mp4")
    """A video file, or a folder for one PNG per view and object."""
    objects: tuple[str, ...] = ()
    """Object ids; the first four if none is given."""
    frames: int = 72
    """Views on the full circle."""
    size: int = 0
    """Side of the pictures in pixels; 0 takes the training images' size."""
    elevation: float = 25.0
    """Degrees above the horizon."""
    radius: float = 2.7
    """Distance of the camera to the object's centre, in world units (the field's box has side 2)."""


def main(arguments: list[str]) -> None:
    options = parse(Render, arguments, "render")
    from fusedplanes.cameras import Cameras
    from fusedplanes.images import save
    from fusedplanes.planes.model import load
    from fusedplanes.planes.run_folder import image_size
    from fusedplanes.rendering.video import FORMATS, save_orbit

    if options.frames < 1:
        raise ConfigError(f"--frames {options.frames}: at least one view is needed")
    device = choose_device(options.device)
    size = options.size or image_size(options.run)
    if not 1 <= size <= LARGEST_SIZE:
        raise ConfigError(f"--size {size}: choose 1 to {LARGEST_SIZE} pixels, or 0 for the training size")
    if not (math.isfinite(options.radius) and options.radius > 0):
        raise ConfigError(f"--radius {options.radius}: choose a distance above 0")
    if not math.isfinite(options.elevation):
        raise ConfigError(f"--elevation {options.elevation}: choose degrees above the horizon")
    model = load(options.run, device=device)
    ids = list(options.objects) or model.object_ids[:4]
    if options.out.suffix.lower() in FORMATS:
        save_orbit(
            model,
            ids,
            options.out,
            frames=options.frames,
            size=size,
            elevation=options.elevation,
            radius=options.radius,
        )
        written = [options.out]
    elif options.out.suffix:
        raise ConfigError(f"--out {options.out}: name a folder, or a file ending in {', '.join(FORMATS)}")
    else:
        cameras = Cameras.orbit(
            options.frames, radius=options.radius, elevation=options.elevation, width=size, height=size
        )
        written = []
        for item in ids:
            for index, picture in enumerate(model.render(item, cameras).color):
                written.append(options.out / f"{item}_{index:03d}.png")
                save(written[-1], picture.cpu())
    if options.json:
        print(json.dumps({"objects": ids, "files": [str(path) for path in written]}))
    elif not options.quiet:
        print(f"wrote {written[0]}" + (f" and {len(written) - 1} more" if len(written) > 1 else ""))
