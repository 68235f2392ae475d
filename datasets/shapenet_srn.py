"""An object as Scene Representation Networks keep ShapeNet renders: ``rgb/``, ``pose/`` and ``intrinsics.txt``.

A pose file holds 16 numbers, camera-to-world with OpenCV axes. ``intrinsics.txt`` begins with the focal length and the
principal point in pixels and ends with height and width. Images lie over white.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fusedplanes.datasets.frames import SIDE_LIMIT, Frame, Report, spread_split
from fusedplanes.datasets.transforms_json import FOCAL_LEAST, IMAGE_SUFFIXES, check_pixels, check_rigid, matrix
from fusedplanes.errors import DataError

_TEXT_LIMIT = 1 << 16


def is_object(folder: Path) -> bool:
    return (folder / "rgb").is_dir() and (folder / "pose").is_dir()


def read_frames(folder: Path, report: Report) -> list[Frame]:
    # Some copies keep one file for the whole class.
    path = next((place for place in (folder, folder.parent) if (place / "intrinsics.txt").is_file()), folder)
    intrinsics, size = _read_intrinsics(path / "intrinsics.txt")
    images = sorted(file for file in (folder / "rgb").iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    if not images:
        raise DataError(f"{folder / 'rgb'}: no images")
    frames = []
    for image, split in zip(images, spread_split(len(images)), strict=True):
        try:
            pose = _read_pose(folder / "pose" / f"{image.stem}.txt")
        except DataError as problem:
            report(problem)
            continue
        frames.append(Frame(image, pose, intrinsics, split, size, over_white=True))
    return frames


def _numbers(path: Path) -> list[list[float]]:
    """The lines of a file of numbers."""
    try:
        with path.open("rb") as file:
            text = file.read(_TEXT_LIMIT + 1)
        if len(text) > _TEXT_LIMIT:
            raise DataError(f"{path}: too large for a file of a few numbers")
        rows = [[float(word) for word in line.split()] for line in text.decode().splitlines()]
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DataError(f"{path}: expected numbers") from error
    return [row for row in rows if row]


def _read_pose(path: Path) -> np.ndarray:
    values = [value for row in _numbers(path) for value in row]
    pose = matrix(np.reshape(values, (4, 4))) if len(values) == 16 else None
    if pose is None:
        raise DataError(f"{path}: expected 16 finite numbers, a 4x4 matrix that ends in 0 0 0 1")
    check_rigid(str(path), pose)
    return pose


def _read_intrinsics(path: Path) -> tuple[np.ndarray, tuple[int, int]]:
    rows = _numbers(path)
    if len(rows) < 2 or len(rows[0]) < 3 or len(rows[-1]) != 2 or not np.isfinite(rows[0] + rows[-1]).all():
        raise DataError(f"{path}: expected 'focal cx cy 0' in the first line and 'height width' in the last")
    (focal, center_x, center_y), (height, width) = rows[0][:3], rows[-1]
    check_pixels(path, "focal", focal, least=FOCAL_LEAST)
    check_pixels(path, "cx", center_x)
    check_pixels(path, "cy", center_y)
    for name, side in (("height", height), ("width", width)):
        if not 1 <= side <= SIDE_LIMIT or side != int(side):
            raise DataError(f"{path}: {name} is {side:g}; expected a whole number of pixels, 1 to {SIDE_LIMIT}")
    matrix_in_pixels = np.array([[focal, 0.0, center_x], [0.0, focal, center_y], [0.0, 0.0, 1.0]])
    return matrix_in_pixels, (int(width), int(height))
