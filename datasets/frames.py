"""Frames: what every layout of posed images comes down to, and how they become one object.

A loader turns its files into frames; here frames are checked, read and put together. What is wrong goes to a function
``report``: reading a data set raises at the first problem, checking one collects them all.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fusedplanes import images as image_files
from fusedplanes.cameras import Cameras
from fusedplanes.datasets.archive import DEFLATED
from fusedplanes.datasets.framing import pose_problems
from fusedplanes.errors import DataError
from fusedplanes.files import check_readable
from fusedplanes.multiview import MultiViewObject

SIDE_LIMIT = 8192
OBJECT_BYTES_LIMIT = 16 << 30
SPLITS = ("train", "test")

Report = Callable[[DataError], None]


def raise_problem(problem: DataError) -> None:
    """Stop at a problem: the ``report`` of everyone who wants the data."""
    raise problem


@dataclass(frozen=True)
class Frame:
    """One posed image of an object.

    Attributes:
        image: file with its colours.
        camera_to_world: ``[4, 4]`` float64, OpenCV axes.
        intrinsics: ``[3, 3]`` float64 in pixels of an image of ``size``.
        split: "train" or "test".
        size: width and height that the source claims, in pixels; None where it is silent.
        mask: optional file whose brightness is the image's alpha.
        depth: optional file of camera-z depth in world units.
        over_white: the image has no alpha but was laid over white, which is taken off again.
    """

    image: Path
    camera_to_world: np.ndarray
    intrinsics: np.ndarray
    split: str
    size: tuple[int, int] | None = None
    mask: Path | None = None
    depth: Path | None = None
    over_white: bool = False


def assemble(
    object_id: str,
    frames: list[Frame],
    *,
    world_from_source: np.ndarray,
    size: int | None = None,
    judge_poses: bool = False,
    report: Report = raise_problem,
) -> MultiViewObject:
    """Read the images of one object.

    Args:
        object_id: its id.
        frames: at least one, posed in the world.
        world_from_source: ``[4, 4]`` similarity that brought the poses there, for the record.
        size: pixels of the longer side after resampling, see `fitted_size`; None keeps the images as they are.
        judge_poses: also report cameras that look away from what the others look at.
        report: told of every frame that is left out.

    Raises:
        DataError: no frame could be read; or the first problem, by the default ``report``.
    """
    pictures, depths, kept, target, first = [], [], [], None, ""
    for frame in frames:
        try:
            # From the headers: a small file may decode to gigabytes.
            width, height = _size(frame)
            fitted = fitted_size(width, height, size)
            if target is None:
                check_memory(frame.image, len(frames), *fitted)
            elif fitted != target:
                raise DataError(f"{frame.image}: {width}x{height} pixels, but {first}; make them one size")
            picture = _picture(frame, width, height)
            if target is None:  # what cannot be decoded sets no size for the others
                target, first = fitted, f"{frame.image.name} has {width}x{height}"
            if frame.depth is not None:
                depths.append(_depth(frame.depth, width, height, target))
        except DataError as problem:
            report(problem)
            continue
        pictures.append(image_files.resize(picture, *target))
        scale = np.array([[target[0] / width], [target[1] / height], [1.0]])
        kept.append((frame, frame.intrinsics * scale))
    if not kept:
        raise DataError(f"object '{object_id}': none of its {len(frames)} images can be read")
    if len({picture.shape[-1] for picture in pictures}) > 1:
        pictures = [image_files.with_alpha(picture) for picture in pictures]
    cameras = Cameras.from_opencv(
        torch.from_numpy(np.stack([frame.camera_to_world for frame, _ in kept])).float(),
        torch.from_numpy(np.stack([intrinsics for _, intrinsics in kept])).float(),
        *target,
    )
    if judge_poses:
        for problem in pose_problems([str(frame.image) for frame, _ in kept], cameras):
            report(DataError(problem))
    depth = torch.from_numpy(np.stack(depths)) if len(depths) == len(kept) else None
    split = tuple(frame.split for frame, _ in kept)
    return MultiViewObject(object_id, torch.stack(pictures), cameras, split, depth, torch.from_numpy(world_from_source))


def fitted_size(width: int, height: int, size: int | None) -> tuple[int, int]:
    """Width and height after resampling: the longer side becomes ``size`` and the shorter a multiple of 8 near it.

    Example:
        >>> fitted_size(792, 594, 256), fitted_size(800, 800, None)
        ((256, 192), (800, 800))
    """
    if size is None:
        return width, height
    short, long = sorted((width, height))
    other = size if short == long else max(8, 8 * round(size * short / long / 8))
    return (size, other) if width >= height else (other, size)


def check_memory(path: Path, count: int, width: int, height: int) -> None:
    """Refuse an object whose images would not fit into memory, before any is decoded.

    Raises:
        DataError: a side or the sum is over its limit.
    """
    if not (1 <= width <= SIDE_LIMIT and 1 <= height <= SIDE_LIMIT):
        raise DataError(f"{path}: images of {width}x{height}; expected sides of 1 to {SIDE_LIMIT} pixels")
    if count * width * height * 16 > OBJECT_BYTES_LIMIT:
        limit = f"the limit of {OBJECT_BYTES_LIMIT >> 30} GiB per object"
        raise DataError(f"{path}: {count} images of {width}x{height} exceed {limit}; give a smaller --size")


def file_inside(folder: Path, name: object) -> Path | None:
    """A file that a data set refers to, or None where it would lie outside ``folder``."""
    try:
        if isinstance(name, str) and name and (folder / name).resolve().is_relative_to(folder.resolve()):
            return folder / name
    except (OSError, RuntimeError, ValueError):
        pass  # a name no file system takes, or a loop of links
    return None


def spread_split(count: int) -> list[str]:
    """Every tenth view is for testing, the fifth first; of two to four views the last.

    Example:
        >>> spread_split(3), spread_split(20).count("test")
        (['train', 'train', 'test'], 2)
    """
    if count < 5:
        return ["train"] * (count - 1) + ["test" if count > 1 else "train"]
    return ["test" if index % 10 == 4 else "train" for index in range(count)]


def _size(frame: Frame) -> tuple[int, int]:
    """Width and height of a frame's image by its header, once it is what the source says, and its mask's is the same.

    Raises:
        DataError: it is not, or there is no such image or mask.
    """
    width, height = image_files.size_of(frame.image)
    if frame.size is not None and (width, height) != frame.size:
        claimed = f"{frame.size[0]}x{frame.size[1]}"
        raise DataError(f"{frame.image}: {width}x{height} pixels; transforms.json says {claimed}")
    if frame.mask is not None and (found := image_files.size_of(frame.mask)) != (width, height):
        raise DataError(f"{frame.mask}: {found[0]}x{found[1]} pixels; its image has {width}x{height}")
    return width, height


def _load(file: Path, width: int, height: int) -> Tensor:
    image = image_files.load(file, max_pixels=SIDE_LIMIT * SIDE_LIMIT)
    if image.shape[:2] != (height, width):
        found = f"{image.shape[1]}x{image.shape[0]}"
        raise DataError(f"{file}: {found} pixels, but its header says {width}x{height}; save it again")
    return image


def _picture(frame: Frame, width: int, height: int) -> Tensor:
    picture = _load(frame.image, width, height)
    if frame.mask is not None:
        mask = _load(frame.mask, width, height)
        return torch.cat([picture[..., :3], mask[..., :3].mean(-1, keepdim=True)], -1)
    if frame.over_white and (picture.shape[-1] == 3 or bool((picture[..., 3] == 1).all())):
        return _without_white(picture[..., :3])
    return picture


def _without_white(picture: Tensor) -> Tensor:
    """Make the white that touches the image's border transparent; over white the result is the image again."""
    from scipy import ndimage

    regions, _ = ndimage.label((picture == 1).all(-1).numpy())
    border = np.unique(np.concatenate([regions[0], regions[-1], regions[:, 0], regions[:, -1]]))
    behind = np.isin(regions, border[border > 0])
    return torch.cat([picture, torch.from_numpy(~behind).float()[..., None]], -1)


def _depth(file: Path, width: int, height: int, target: tuple[int, int]) -> np.ndarray:
    check_readable(file)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
        declared = sum(entry.file_size for entry in entries)
        if not {entry.compress_type for entry in entries} <= DEFLATED:
            raise DataError(f"{file}: compressed by another method than deflate; write it with numpy.savez_compressed")
        if declared > width * height * 8 + 4096:
            raise DataError(f"{file}: {declared} bytes unpacked; expected one depth map of {width}x{height}")
        with np.load(file, allow_pickle=False) as arrays:
            depth = arrays["depth"]
    except DataError:
        raise
    except Exception as error:  # zip and npy readers raise many types on damaged bytes
        raise DataError(f"{file}: the depth cannot be read ({type(error).__name__})") from error
    if depth.shape != (height, width) or depth.dtype.kind != "f":
        raise DataError(f"{file}: depth is {depth.dtype} of shape {depth.shape}; expected floats {(height, width)}")
    if not (np.isfinite(depth).all() and (depth >= 0).all()):
        raise DataError(f"{file}: depth has values that are negative or not finite; 0 means nothing is seen")
    if depth.dtype.itemsize > 4 and depth.max(initial=0) > np.finfo(np.float32).max:
        raise DataError(f"{file}: depth has the value {depth.max():g}, too large for float32; 0 means nothing is seen")
    # Depths of two surfaces must not be averaged: the nearest cell is taken.
    rows = ((np.arange(target[1]) + 0.5) * height / target[1]).astype(int)
    columns = ((np.arange(target[0]) + 0.5) * width / target[0]).astype(int)
    return depth[np.ix_(rows, columns)].astype(np.float32)
