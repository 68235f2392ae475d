"""An object as nerfstudio keeps a capture: ``transforms.json`` beside its images, OpenGL axes, masks optional."""

from __future__ import annotations

from pathlib import Path

from fusedplanes.datasets.frames import Frame, Report
from fusedplanes.datasets.transforms_json import frames_of, read_transforms


def is_object(folder: Path) -> bool:
    return (folder / "transforms.json").is_file()


def read_frames(folder: Path, report: Report) -> list[Frame]:
    path = folder / "transforms.json"
    return frames_of(path, read_transforms(path), report=report)
