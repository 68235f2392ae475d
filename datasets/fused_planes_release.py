"""The layout that the published Fused-Planes code reads: ``transforms_opencv.json`` per object, images over white.

The first tenth of the views, in file order, is held out, as there. ``dataset_map.json`` above the objects gives their
order, by category.
"""

from __future__ import annotations

import math
from pathlib import Path

from fusedplanes.datasets.frames import Frame, Report
from fusedplanes.datasets.transforms_json import frames_of, read_transforms
from fusedplanes.errors import DataError, shown
from fusedplanes.files import read_json

MAP = "dataset_map.json"


def is_object(folder: Path) -> bool:
    return (folder / "transforms_opencv.json").is_file()


def read_frames(folder: Path, report: Report) -> list[Frame]:
    path = folder / "transforms_opencv.json"
    value = read_transforms(path)
    count = len(value["frames"])
    held_out = count - math.ceil(0.9 * count)
    splits = ["test"] * held_out + ["train"] * (count - held_out)
    return frames_of(path, value, axes="opencv", splits=splits, over_white=True, report=report)


def in_map_order(folder: Path, objects: dict[str, Path]) -> dict[str, Path]:
    """Sort objects as ``dataset_map.json`` lists their folders; objects it does not list are left out.

    Args:
        folder: that may hold the map, or whose parent does.
        objects: folders by id.

    Raises:
        DataError: the map is damaged, or lists an object that is not there.
    """
    path = next((place / MAP for place in (folder, folder.parent) if (place / MAP).is_file()), None)
    if path is None:
        return objects
    listed = read_json(path)
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in listed.values()):
        raise DataError(f"{path}: expected a list of object folders for each category")
    by_name = {place.name: (object_id, place) for object_id, place in objects.items()}
    ordered = {}
    for name in (name for names in listed.values() for name in names):
        if name not in by_name:
            raise DataError(f"{path}: object {shown(name)} has no folder with transforms_opencv.json under {folder}")
        object_id, place = by_name[name]
        ordered[object_id] = place
    return ordered
