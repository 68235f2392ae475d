"""An object as the NeRF paper's synthetic scenes keep it: ``transforms_train.json`` and its sisters, OpenGL axes.

Validation views count as test views only where there are no test views.
"""

from __future__ import annotations

from pathlib import Path

from fusedplanes.datasets.frames import Frame, Report
from fusedplanes.datasets.transforms_json import frames_of, read_transforms


def is_object(folder: Path) -> bool:
    return (folder / "transforms_train.json").is_file()


def read_frames(folder: Path, report: Report) -> list[Frame]:
    held_out = next((name for name in ("test", "val") if (folder / f"transforms_{name}.json").is_file()), None)
    frames = []
    for name, split in (("train", "train"), (held_out, "test")):
        if name is not None:
            path = folder / f"transforms_{name}.json"
            value = read_transforms(path)
            frames += frames_of(path, value, splits=[split] * len(value["frames"]), report=report)
    return frames
