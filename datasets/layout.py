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
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fusedplanes import images as image_files
from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError
from fusedplanes.files import read_json, write_json
from fusedplanes.multiview import MultiViewObject

FORMAT = "fusedplanes-dataset"
FORMAT_VERSION = 1
SIDE_LIMIT = 8192
OBJECT_BYTES_LIMIT = 16 << 30
SPLITS = ("train", "test")
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
    written = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
    # A folder without transforms.json is no object; were it left, the rename would fail.
    shutil.rmtree(folder / item.id, ignore_errors=True)
    partial.rename(folder / item.id)
    return written


def _png(image: torch.Tensor) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image_files.to_uint8(image)).save(buffer, format="PNG")
    return buffer.getvalue()


def is_complete(folder: str | Path, object_id: str) -> bool:
    """Whether an object's folder is there, and therefore whole."""
    return (Path(folder) / object_id / "transforms.json").is_file()


def remove_partial(folder: str | Path) -> None:
    """Delete what an interrupted run left unfinished."""
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
    if value.get("format") != FORMAT:
        raise DataError(f"{path}: format is {_shown(value.get('format'))}; expected '{FORMAT}'")
    version = value.get("format_version")
    if not _is_count(version) or version < 1:
        raise DataError(f"{path}: format_version is {_shown(version)}; expected a whole number from 1")
    if version > FORMAT_VERSION:
        raise DataError(
            f"{path}: format_version {version} is newer than {FORMAT_VERSION}, the newest this release reads; "
            "upgrade fusedplanes"
        )
    ids = value.get("ids")
    if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
        raise DataError(f"{path}: ids is no list of names")
    for item in ids:
        if not is_flat_name(item):
            raise DataError(f"{path}: id {_shown(item)} is no plain folder name")
    if len(set(ids)) != len(ids):
        twice = next(item for item in ids if ids.count(item) > 1)
        raise DataError(f"{path}: id {_shown(twice)} occurs twice")
    size = value.get("size")
    if not _is_count(size) or not 1 <= size <= SIDE_LIMIT:
        raise DataError(f"{path}: size is {_shown(size)}; expected 1 to {SIDE_LIMIT} pixels")
    split, licence, made_with = value.get("split", {}), value.get("licence"), value.get("made_with", {})
    failed = value.get("failed", [])
    if not isinstance(split, dict) or not isinstance(made_with, dict) or not isinstance(failed, list):
        raise DataError(f"{path}: split and made_with must be objects and failed a list")
    if licence is not None and not isinstance(licence, str):
        raise DataError(f"{path}: licence is {_shown(licence)}; expected text or null")
    return DatasetHeader(tuple(ids), size, split, licence, made_with, tuple(failed), bool(value.get("complete", True)))


def is_flat_name(name: str) -> bool:
    """Whether a name can be a folder of a data set: one visible path component on every system."""
    return 0 < len(name.encode(errors="replace")) <= 200 and name[0] != "." and not set(name) & set("/\\:\0")


class FolderDataset:
    """A data set in a folder; objects are read when asked for.

    Implements `fusedplanes.multiview.MultiViewDataset`.

    Attributes:
        path: the folder.
        ids: objects in order.
        size: side of the images in pixels.
        licence: what the images may be used for; None where it was not said.

    Example:
        >>> dataset = FolderDataset("cars")  # doctest: +SKIP
        >>> dataset[0].images.shape, dataset["cars_0003"].split.count("test")  # doctest: +SKIP
        (torch.Size([44, 128, 128, 4]), 4)
    """

    def __init__(self, path: str | Path) -> None:
        """Open a data set.

        Raises:
            DataError: see `read_header`; or it has no object.
        """
        self.path = Path(path)
        header = read_header(self.path)
        if not header.ids:
            remedy = (
                "every object failed" if header.complete else "the run that makes it was interrupted: start it again"
            )
            raise DataError(f"{self.path}: the data set has no object ({remedy})")
        self.header = header
        self.ids = header.ids
        self.size = header.size
        self.licence = header.licence

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, key: int | str) -> MultiViewObject:
        """Read an object by number or id.

        Raises:
            DataError: no such id, or its folder is damaged; the message names the file.
            IndexError: the number is out of range.
        """
        if isinstance(key, str):
            if key not in self.ids:
                known = ", ".join(self.ids[:3]) + (", ..." if len(self.ids) > 3 else "")
                raise DataError(f"{self.path}: there is no object '{key}'; it has {known}")
            return read_object(self.path, key)
        return read_object(self.path, self.ids[key])

    def __iter__(self) -> Iterator[MultiViewObject]:
        return (read_object(self.path, item) for item in self.ids)


def load(path: str | Path) -> FolderDataset:
    """Open a data set that `fusedplanes data` made.

    Args:
        path: the folder that holds ``dataset.json``.

    Raises:
        DataError: no data set, damaged, or written by a newer release.

    Example:
        >>> cars = load("cars")  # doctest: +SKIP
        >>> cars[0].cameras.camera_to_world.shape  # doctest: +SKIP
        torch.Size([44, 4, 4])
    """
    return FolderDataset(path)


def read_object(folder: str | Path, object_id: str) -> MultiViewObject:
    """Read one object's views.

    Raises:
        DataError: a file is missing or damaged, or a pose or an image is not what it should be.
    """
    folder = Path(folder) / object_id
    path = folder / "transforms.json"
    value = read_json(path)
    frames = value.get("frames")
    if not isinstance(frames, list) or not frames or not all(isinstance(frame, dict) for frame in frames):
        raise DataError(f"{path}: frames is empty or no list of objects")
    width, height = (_number(path, value, name, whole=True) for name in ("w", "h"))
    if not (1 <= width <= SIDE_LIMIT and 1 <= height <= SIDE_LIMIT):
        raise DataError(f"{path}: images of {width}x{height}; expected sides of 1 to {SIDE_LIMIT} pixels")
    if len(frames) * width * height * 16 > OBJECT_BYTES_LIMIT:
        raise DataError(
            f"{path}: {len(frames)} images of {width}x{height} exceed the limit of {OBJECT_BYTES_LIMIT >> 30} GiB per "
            "object"
        )
    _check_pinhole(path, value)
    focal_x, focal_y, center_x, center_y = (_number(path, value, name) for name in ("fl_x", "fl_y", "cx", "cy"))
    if focal_x <= 0 or focal_y <= 0:
        raise DataError(f"{path}: fl_x {focal_x} and fl_y {focal_y} must be positive (pixels)")
    poses = np.stack([_pose(path, index, frame) for index, frame in enumerate(frames)])
    splits = tuple(_split(path, index, frame) for index, frame in enumerate(frames))
    cameras = Cameras.from_opengl(
        torch.from_numpy(poses).float(),
        torch.tensor([[focal_x, 0.0, center_x], [0.0, focal_y, center_y], [0.0, 0.0, 1.0]]),
        width,
        height,
    )
    files = [_file(path, index, frame, "file_path") for index, frame in enumerate(frames)]
    pictures = [_picture(file, width, height) for file in files]
    if len({picture.shape[-1] for picture in pictures}) > 1:
        pictures = [
            torch.cat([picture, torch.ones_like(picture[..., :1])], -1) if picture.shape[-1] == 3 else picture
            for picture in pictures
        ]
    with_depth = ["depth_path" in frame for frame in frames]
    if any(with_depth) and not all(with_depth):
        raise DataError(f"{path}: frame {with_depth.index(False)} has no depth_path, others have one")
    depth = None
    if all(with_depth):
        files = [_file(path, index, frame, "depth_path") for index, frame in enumerate(frames)]
        depth = torch.from_numpy(np.stack([_depth(file, width, height) for file in files]))
    return MultiViewObject(
        object_id, torch.stack(pictures), cameras, splits, depth, torch.from_numpy(_similarity(path, value))
    )


def _check_pinhole(path: Path, value: dict) -> None:
    model = value.get("camera_model", "OPENCV")
    if model not in ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE"):
        raise DataError(f"{path}: camera_model {_shown(model)} is not read; undistort the images to a pinhole")
    for name in ("k1", "k2", "k3", "k4", "p1", "p2"):
        if value.get(name, 0) != 0:
            raise DataError(f"{path}: {name} is {_shown(value[name])}: lens distortion is not read; undistort first")


def _number(path: Path, value: dict, name: str, *, whole: bool = False) -> float | int:
    number = value.get(name)
    if whole and _is_count(number):
        return number
    if not whole and isinstance(number, (int, float)) and not isinstance(number, bool):
        try:
            number = float(number)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    kind = "a whole number" if whole else "a finite number"
    raise DataError(f"{path}: {name} is {_shown(value.get(name))}; expected {kind}")


def _matrix(value: object) -> np.ndarray | None:
    """``[4, 4]`` finite float64 with a last row of 0 0 0 1, or None."""
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or not np.allclose(matrix[3], (0, 0, 0, 1)):
        return None
    return matrix


def _pose(path: Path, index: int, frame: dict) -> np.ndarray:
    pose = _matrix(frame.get("transform_matrix"))
    if pose is None:
        raise DataError(f"{path}: frame {index}: transform_matrix is no 4x4 matrix of finite numbers ending in 0 0 0 1")
    rotation = pose[:3, :3]
    with np.errstate(over="ignore"):
        rigid = np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) and np.linalg.det(rotation) > 0
    if not rigid:
        raise DataError(f"{path}: frame {index}: transform_matrix is no rotation (scaled, sheared or mirrored)")
    return pose


def _similarity(path: Path, value: dict) -> np.ndarray:
    matrix = _matrix(value.get("world_from_source", np.eye(4)))
    if matrix is not None:
        linear = matrix[:3, :3]
        with np.errstate(over="ignore", invalid="ignore"):
            square = linear @ linear.T
            scale = np.trace(square) / 3
            similar = 0 < scale < math.inf and np.allclose(square / scale, np.eye(3), atol=1e-3)
        if similar:
            return matrix
    raise DataError(f"{path}: world_from_source is no 4x4 rotation, uniform scale and shift")


def _split(path: Path, index: int, frame: dict) -> str:
    name = frame.get("split")
    if name not in SPLITS:
        raise DataError(f"{path}: frame {index}: split is {_shown(name)}; expected {' or '.join(SPLITS)}")
    return name


def _file(path: Path, index: int, frame: dict, field: str) -> Path:
    """A frame's file, which must lie in the object's folder."""
    name = frame.get(field)
    folder = path.parent
    try:
        if isinstance(name, str) and name and (folder / name).resolve().is_relative_to(folder.resolve()):
            return folder / name
    except (OSError, RuntimeError, ValueError):
        pass  # a name no file system takes, or a loop of links
    raise DataError(f"{path}: frame {index}: {field} {_shown(name)} is no file inside the object's folder")


def _picture(file: Path, width: int, height: int) -> torch.Tensor:
    picture = image_files.load(file, max_pixels=SIDE_LIMIT * SIDE_LIMIT)
    if picture.shape[:2] != (height, width):
        raise DataError(f"{file}: {picture.shape[1]}x{picture.shape[0]} pixels; transforms.json says {width}x{height}")
    return picture


def _depth(file: Path, width: int, height: int) -> np.ndarray:
    try:
        with zipfile.ZipFile(file) as archive:
            declared = sum(entry.file_size for entry in archive.infolist())
        if declared > width * height * 8 + 4096:
            raise DataError(f"{file}: {declared} bytes unpacked; expected one depth map of {width}x{height}")
        with np.load(file, allow_pickle=False) as arrays:
            depth = arrays["depth"]
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such file") from error
    except DataError:
        raise
    except Exception as error:  # zip and npy readers raise many types on damaged bytes
        raise DataError(f"{file}: the depth cannot be read ({type(error).__name__})") from error
    if depth.shape != (height, width) or depth.dtype.kind != "f":
        raise DataError(f"{file}: depth is {depth.dtype} of shape {depth.shape}; expected floats {(height, width)}")
    if not (np.isfinite(depth).all() and (depth >= 0).all()):
        raise DataError(f"{file}: depth has values that are negative or not finite; 0 means nothing is seen")
    return depth.astype(np.float32)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
