"""The project's data set on disk: written whole, read with suspicion.

    DIR/dataset.json                 format, ids in order, split, size, licence, how it was made
    DIR/<id>/transforms.json         nerfstudio's convention, and world_from_source
    DIR/<id>/images/000.png ...      RGBA, straight alpha
    DIR/<id>/depth/000.npz ...       optional: camera-z depth in world units, 0 where nothing is seen

An object's folder appears by rename once it is complete, so a folder that is there can be trusted to be whole.
"""

from __future__ import annotations

import io
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fusedplanes import images as image_files
from fusedplanes.datasets.frames import SIDE_LIMIT, Report, assemble, raise_problem
from fusedplanes.datasets.transforms_json import frames_of, is_count, matrix, read_transforms
from fusedplanes.errors import DataError, shown
from fusedplanes.files import check_format, is_flat_name, read_json, remove_temporaries, write_json
from fusedplanes.multiview import MultiViewObject

FORMAT = "fusedplanes-dataset"
FORMAT_VERSION = 1
_PARTIAL = ".partial-"


# Writing ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DatasetHeader:
    """The content of ``dataset.json``.

    Attributes:
        ids: objects in order; each is the name of a folder.
        size: side of the images in pixels.
        split: number of views of an object per split.
        licence: what the images may be used for; None where it was not said.
        made_with: the options they were made with; a run resumes only under the same ones.
        failed: what could not be made: file and reason.
        complete: whether the run that writes it came to its end.
    """

    ids: tuple[str, ...]
    size: int
    split: dict[str, int]
    licence: str | None
    made_with: dict
    failed: tuple[dict, ...] = ()
    complete: bool = True


def write_header(folder: str | Path, header: DatasetHeader) -> None:
    """Write ``dataset.json`` atomically."""
    write_json(
        Path(folder) / "dataset.json",
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "ids": list(header.ids),
            "size": header.size,
            "split": header.split,
            "licence": header.licence,
            "made_with": header.made_with,
            "failed": list(header.failed),
            "complete": header.complete,
        },
    )


def write_object(
    folder: str | Path,
    item: MultiViewObject,
    *,
    source_file: str | None = None,
) -> int:
    """Add one object to a data set's folder; it appears when it is complete.

    Args:
        folder: of the data set.
        item: images and cameras; its depth is written if it has one.
        source_file: where it came from, for the record.

    Returns:
        Bytes written.
    """
    folder = Path(folder)
    partial = folder / f"{_PARTIAL}{item.id}"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write_files(partial, item, source_file)
        written = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
        # A folder without transforms.json is no object; were it left, the rename would fail.
        shutil.rmtree(folder / item.id, ignore_errors=True)
        partial.rename(folder / item.id)
    except BaseException:
        # A disk that is full wants its space back.
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return written


def _write_files(partial: Path, item: MultiViewObject, source_file: str | None) -> None:
    (partial / "images").mkdir(parents=True)
    if item.depth is not None:
        (partial / "depth").mkdir()
    camera_to_world = item.cameras.camera_to_world.double().numpy() * np.array([1.0, -1.0, -1.0, 1.0])
    digits = max(3, len(str(len(item.split) - 1)))
    frames = []
    for view, name in enumerate(f"{index:0{digits}d}" for index in range(len(item.split))):
        frame = {"file_path": f"images/{name}.png", "transform_matrix": camera_to_world[view].tolist()}
        (partial / frame["file_path"]).write_bytes(_png(item.images[view]))
        if item.depth is not None:
            frame["depth_path"] = f"depth/{name}.npz"
            np.savez_compressed(partial / frame["depth_path"], depth=item.depth[view].numpy().astype(np.float32))
        frame["split"] = item.split[view]
        frames.append(frame)
    intrinsics = item.cameras.intrinsics[0].double().numpy()
    transforms = {
        "camera_model": "OPENCV",
        "fl_x": intrinsics[0, 0],
        "fl_y": intrinsics[1, 1],
        "cx": intrinsics[0, 2],
        "cy": intrinsics[1, 2],
        "w": item.cameras.width,
        "h": item.cameras.height,
        "world_from_source": item.world_from_source.double().tolist(),
        "source_file": source_file,
        "frames": frames,
    }
    write_json(partial / "transforms.json", transforms)


def _png(image: torch.Tensor) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image_files.to_uint8(image)).save(buffer, format="PNG")
    return buffer.getvalue()


def is_complete(folder: str | Path, object_id: str) -> bool:
    """Whether an object's folder is there, and therefore whole."""
    return (Path(folder) / object_id / "transforms.json").is_file()


def remove_object(folder: str | Path, object_id: str) -> None:
    """Delete an object; half deleted it is no object any more."""
    (Path(folder) / object_id / "transforms.json").unlink(missing_ok=True)
    shutil.rmtree(Path(folder) / object_id, ignore_errors=True)


def remove_partial(folder: str | Path) -> None:
    """Delete what an interrupted run left unfinished."""
    remove_temporaries(Path(folder), "dataset.json")
    for path in Path(folder).glob(f"{_PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


# Reading ------------------------------------------------------------------------------------------------------------


def read_header(folder: str | Path) -> DatasetHeader:
    """Read and check ``dataset.json``.

    Raises:
        DataError: no data set, a newer format, or a field that is missing or wrong.
    """
    folder = Path(folder)
    path = folder / "dataset.json"
    if not path.is_file():
        raise DataError(f"{folder}: no data set here (dataset.json is missing); make one with `fusedplanes data make`")
    value = read_json(path)
    check_format(value, path, FORMAT, FORMAT_VERSION)
    ids = value.get("ids")
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise DataError(f"{path}: ids is no list of names")
    for item in ids:
        if not is_flat_name(item):
            raise DataError(f"{path}: id {shown(item)} is no plain folder name")
    if len(set(ids)) != len(ids):
        twice = next(item for item in ids if ids.count(item) > 1)
        raise DataError(f"{path}: id {shown(twice)} occurs twice")
    size = value.get("size")
    if not is_count(size) or not 1 <= size <= SIDE_LIMIT:
        raise DataError(f"{path}: size is {shown(size)}; expected 1 to {SIDE_LIMIT} pixels")
    split, licence, made_with = value.get("split", {}), value.get("licence"), value.get("made_with", {})
    failed = value.get("failed", [])
    if not isinstance(split, dict) or not isinstance(made_with, dict) or not isinstance(failed, list):
        raise DataError(f"{path}: split and made_with must be objects and failed a list")
    if licence is not None and not isinstance(licence, str):
        raise DataError(f"{path}: licence is {shown(licence)}; expected text or null")
    return DatasetHeader(tuple(ids), size, split, licence, made_with, tuple(failed), bool(value.get("complete", True)))


def read_object(
    folder: str | Path, object_id: str, *, size: int | None = None, report: Report = raise_problem
) -> MultiViewObject:
    """Read one object's views.

    Args:
        folder: of the data set.
        object_id: name of the object's folder.
        size: pixels of the longer side after resampling; None keeps the images as they are.
        report: told of every view that is left out.

    Raises:
        DataError: a file is missing or damaged, or a pose or an image is not what it should be.
    """
    path = Path(folder) / object_id / "transforms.json"
    value = read_transforms(path)
    frames = frames_of(path, value, with_depth=True, report=report)
    world_from_source = _similarity(path, value)
    return assemble(object_id, frames, world_from_source=world_from_source, size=size, report=report)


def _similarity(path: Path, value: dict) -> np.ndarray:
    found = matrix(value.get("world_from_source", np.eye(4)))
    if found is not None:
        linear = found[:3, :3]
        with np.errstate(over="ignore", invalid="ignore"):
            square = linear @ linear.T
            scale = np.trace(square) / 3
            similar = 0 < scale < math.inf and np.allclose(square / scale, np.eye(3), atol=1e-3)
        # Exports undo it in float32, in which neither it nor its inverse may vanish or overflow.
        if similar and 1e-30 < scale < 1e30 and np.abs(found[:3, 3]).max() < 1e30:
            return found
    raise DataError(f"{path}: world_from_source is no 4x4 rotation, uniform scale and shift (1e-15 to 1e15 large)")
