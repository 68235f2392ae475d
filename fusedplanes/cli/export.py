"""`fusedplanes export`: an object's planes, or its mesh."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from fusedplanes.cli.options import ComputeOptions, choose_device, parse
from fusedplanes.errors import DataError

FULL_ENOUGH = 0.8
"""Share of the silhouettes that a mesh of a trained object fills at least."""


@dataclass(frozen=True, kw_only=True)
class Export(ComputeOptions):
    """Write an object in a form other programs read."""

    run: Positional[Path]
    """Run folder."""
    object: str = ""
    """Object id; the first one if not given."""
    format: Literal["planes", "mesh"] = "planes"
    """planes: composed planes [3*C, H, W] as safetensors; mesh: coloured triangles as .glb, .ply or .obj."""
    out: Path | None = None
    """Output file; named after the object if not given."""
    resolution: int = 96
    """Cells along a side of the grid the mesh is drawn from."""


def main(arguments: list[str]) -> None:
    options = parse(Export, arguments, "export")
    from fusedplanes.planes.export import export_mesh, export_planes
    from fusedplanes.planes.model import load

    model = load(options.run, device=choose_device(options.device))
    item = options.object or next(iter(model.object_ids), None)
    if item is None:
        raise DataError(f"{options.run}: has no object to export")
    out = options.out or Path(f"{item}.{'safetensors' if options.format == 'planes' else 'glb'}")
    told: dict[str, object] = {"object": item, "format": options.format}
    if options.format == "planes":
        export_planes(model, item, out)
    else:
        filled = export_mesh(model, item, out, resolution=options.resolution)
        told["silhouette_filled"] = filled
        if filled < FULL_ENOUGH and not (options.quiet or options.json):
            line = f"{out}: the mesh fills only {100 * filled:.0f} % of what is seen of the object; train longer"
            print(line, file=sys.stderr)
    if options.json:
        print(json.dumps({**told, "file": str(out), "bytes": out.stat().st_size}))
    elif not options.quiet:
        print(f"wrote {out} ({out.stat().st_size:,} bytes)")
