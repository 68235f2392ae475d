"""Cameras from ``transforms.json``: nerfstudio's convention, NeRF-synthetic's, and OpenCV's variant of it.

All say ``frames`` with ``file_path`` and ``transform_matrix``; focal lengths stand at the top or in the frame, in
pixels (``fl_x``) or as a field of view (``camera_angle_x``).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np

from fusedplanes import images as image_files
from fusedplanes.datasets.frames import Frame, Report, check_memory, file_inside, raise_problem, spread_split
from fusedplanes.errors import DataError, shown
from fusedplanes.files import read_json

FOCAL_LEAST, PIXELS_LIMIT = 1e-3, 1e7
"""Bounds of focal lengths and of principal points in pixels; beyond them float32 holds no camera worth reading."""

POSITION_LIMIT = 1e6
"""How far from the origin a camera may stand, in the source's units."""

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")


def read_transforms(path: Path) -> dict:
    """Read one file, as far as it concerns all frames.

    Raises:
        DataError: not JSON, no frames, or a lens that is no pinhole.
    """
    value = read_json(path)
    entries = value.get("frames")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{path}: frames is empty or no list of objects")
    model = value.get("camera_model", "OPENCV")
    if model not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
        raise DataError(f"{path}: camera_model {shown(model)} is not read; undistort the images to a pinhole")
    return value


def frames_of(
    path: Path,
    value: dict,
    *,
    axes: Literal["opengl", "opencv"] = "opengl",
    splits: list[str] | None = None,
    over_white: bool = False,
    with_depth: bool = False,
    report: Report = raise_problem,
) -> list[Frame]:
    """Turn the content of one file into frames; images are looked for beside it.

    Args:
        path: the JSON file.
        value: what `read_transforms` gave.
        axes: of the camera: "opengl" (x right, y up, z backward) or "opencv" (x right, y down, z forward).
        splits: one per frame; None takes what the file says and, where it is silent, `spread_split`.
        over_white: see `Frame`.
        with_depth: read ``depth_path`` too; either all frames have one or none.
        report: told of every frame that is left out.

    Raises:
        DataError: the splits are not to be understood; and the first problem of a frame, by the default ``report``.
    """
    entries = value["frames"]
    splits = splits or _splits(path, value, entries)
    with_depth = with_depth and any("depth_path" in entry for entry in entries)
    frames = []
    for index, (entry, split) in enumerate(zip(entries, splits, strict=True)):
        where = f"{path}: frame {index}"
        try:
            if with_depth and "depth_path" not in entry:
                raise DataError(f"{where} has no depth_path, others have one")
            pose = _pose(where, entry.get("transform_matrix"), axes)
            image = _image(path.parent, where, entry.get("file_path"))
            mask = _inside(path.parent, where, entry, "mask_path") if entry.get("mask_path") else None
            depth = _inside(path.parent, where, entry, "depth_path") if with_depth else None
            camera = {**value, **entry}
            size = None
            if "w" in camera or "h" in camera:
                size = number(path, camera, "w", whole=True), number(path, camera, "h", whole=True)
            width, height = size or image_files.size_of(image)
            check_memory(path, len(entries), width, height)
            intrinsics = _intrinsics(path, camera, width, height)
        except DataError as problem:
            report(problem)
            continue
        frames.append(Frame(image, pose, intrinsics, split, size, mask, depth, over_white))
    return frames


def _intrinsics(path: Path, entry: dict, width: int, height: int) -> np.ndarray:
    for name in ("k1", "k2", "k3", "k4", "p1", "p2"):
        if entry.get(name, 0) != 0:
            raise DataError(f"{path}: {name} is {shown(entry[name])}: lens distortion is not read; undistort first")
    if "fl_x" in entry or "camera_angle_x" not in entry:
        focal_x = number(path, entry, "fl_x")
        focal_y = number(path, entry, "fl_y") if "fl_y" in entry else focal_x
    else:
        focal_x = _focal(path, entry, "camera_angle_x", width)
        focal_y = _focal(path, entry, "camera_angle_y", height) if "camera_angle_y" in entry else focal_x
    check_pixels(path, "fl_x", focal_x, least=FOCAL_LEAST)
    check_pixels(path, "fl_y", focal_y, least=FOCAL_LEAST)
    center_x = number(path, entry, "cx") if "cx" in entry else width / 2
    center_y = number(path, entry, "cy") if "cy" in entry else height / 2
    check_pixels(path, "cx", center_x)
    check_pixels(path, "cy", center_y)
    return np.array([[focal_x, 0.0, center_x], [0.0, focal_y, center_y], [0.0, 0.0, 1.0]])


def _focal(path: Path, entry: dict, name: str, side: int) -> float:
    angle = number(path, entry, name)
    if not 0 < angle < math.pi:
        raise DataError(f"{path}: {name} is {angle}; expected radians between 0 and pi")
    focal = side / 2 / math.tan(angle / 2)
    check_pixels(path, f"the focal length by {name} {angle}", focal, least=FOCAL_LEAST)
    return focal


def _splits(path: Path, value: dict, entries: list[dict]) -> list[str]:
    """What the file says of each frame: a field of the frame, nerfstudio's lists of names, or nothing."""
    if any("split" in entry for entry in entries):
        names = [entry.get("split") for entry in entries]
        for index, name in enumerate(names):
            if name not in ("train", "test", "val"):
                raise DataError(f"{path}: frame {index}: split is {shown(name)}; expected train or test")
        return ["test" if name == "val" else name for name in names]
    listed = {}
    for field, name in (("train_filenames", "train"), ("val_filenames", "test"), ("test_filenames", "test")):
        files = value.get(field, [])
        if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
            raise DataError(f"{path}: {field} is no list of names")
        listed.update({file.removeprefix("./"): name for file in files})
    if listed:
        return [listed.get(str(entry.get("file_path")).removeprefix("./"), "train") for entry in entries]
    return spread_split(len(entries))


def _inside(folder: Path, where: str, entry: dict, field: str) -> Path:
    found = file_inside(folder, entry.get(field))
    if found is None:
        raise DataError(f"{where}: {field} {shown(entry.get(field))} is no file inside the object's folder")
    return found


def _image(folder: Path, where: str, name: object) -> Path:
    """A frame's image; NeRF-synthetic leaves its suffix out."""
    image = _inside(folder, where, {"file_path": name}, "file_path")
    if image.suffix.lower() in IMAGE_SUFFIXES or image.is_file():
        return image
    found = [image.with_name(image.name + suffix) for suffix in IMAGE_SUFFIXES]
    return next((file for file in found if file.is_file()), found[0])


def number(path: Path, value: dict, name: str, *, whole: bool = False) -> float | int:
    """A finite number of a JSON object.

    Raises:
        DataError: missing, another type, or not finite.
    """
    found = value.get(name)
    if whole and is_count(found):
        return found
    # nerfstudio writes sizes as 1920.0.
    if whole and isinstance(found, float) and found.is_integer():
        return int(found)
    if not whole and isinstance(found, (int, float)) and not isinstance(found, bool):
        try:
            result = float(found)
        except OverflowError:
            result = math.inf
        if math.isfinite(result):
            return result
    kind = "a whole number" if whole else "a finite number"
    raise DataError(f"{path}: {name} is {shown(found)}; expected {kind}")


def check_pixels(path: Path, name: str, value: float, *, least: float = -PIXELS_LIMIT) -> None:
    """Refuse a focal length or a coordinate of a principal point that no image has.

    Raises:
        DataError: below ``least`` or above ``PIXELS_LIMIT``.
    """
    if not least <= value <= PIXELS_LIMIT:
        raise DataError(f"{path}: {name} is {value:g}; expected pixels, {least:g} to {PIXELS_LIMIT:g}")


def matrix(value: object) -> np.ndarray | None:
    """``[4, 4]`` finite float64 with a last row of 0 0 0 1, or None."""
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if found.shape != (4, 4) or not np.isfinite(found).all() or not np.allclose(found[3], (0, 0, 0, 1)):
        return None
    return found


def check_rigid(where: str, pose: np.ndarray) -> None:
    """Refuse a camera-to-world matrix ``[4, 4]`` that is not a rotation and a shift of sane size.

    Raises:
        DataError: scaled, sheared, mirrored or too far out; the message begins with ``where``.
    """
    rotation = pose[:3, :3]
    with np.errstate(over="ignore"):
        orthogonal = np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3)
    if not orthogonal:
        raise DataError(f"{where}: the pose is no rotation (scaled or sheared)")
    if np.linalg.det(rotation) < 0:
        raise DataError(f"{where}: the pose is mirrored (its determinant is -1); flip one axis of the camera")
    position = pose[:3, 3]
    farthest = position[np.abs(position).argmax()]
    if abs(farthest) > POSITION_LIMIT:
        raise DataError(
            f"{where}: the pose stands at {farthest:g}; expected within {POSITION_LIMIT:g}; centre or rescale the scene"
        )


def _pose(where: str, value: object, axes: str) -> np.ndarray:
    pose = matrix(value)
    if pose is None:
        raise DataError(f"{where}: transform_matrix is no 4x4 matrix of finite numbers ending in 0 0 0 1")
    check_rigid(where, pose)
    return pose * np.array([1.0, -1.0, -1.0, 1.0]) if axes == "opengl" else pose


def is_count(value: object) -> bool:
    """Whether a JSON value is a whole number (true and false are none)."""
    return isinstance(value, int) and not isinstance(value, bool)
