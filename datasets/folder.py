"""A data set in a folder, whatever layout it has; objects are read when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from fusedplanes.datasets import fused_planes_release, layout, nerf_synthetic, nerfstudio, shapenet_srn
from fusedplanes.datasets.frames import SIDE_LIMIT, Report, assemble, raise_problem
from fusedplanes.datasets.framing import to_world
from fusedplanes.datasets.ids import unique_ids
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import size_of
from fusedplanes.multiview import MultiViewObject

OWN = "fusedplanes"
FOREIGN: dict[str, ModuleType] = {
    "nerf-synthetic": nerf_synthetic,
    "fused-planes-release": fused_planes_release,
    "shapenet-srn": shapenet_srn,
    "nerfstudio": nerfstudio,
}
"""Layouts that are read and never written, by name. An object's folder belongs to the first that recognises it."""

_DEPTH_LIMIT = 6


class FolderDataset:
    """A data set in a folder; objects are read when asked for.

    Implements `fusedplanes.multiview.MultiViewDataset`.

    Attributes:
        path: the folder.
        layout: "fusedplanes" or one of ``FOREIGN``.
        ids: objects in order.
        size: longer side of the images in pixels, as they are read.
        resampled: the ``size`` that was asked for; None where images stay as they are.
        licence: what the images may be used for; None where it was not said.
        paths, licences, classes: the same for one data set as for several; see `JoinedDataset`.

    Example:
        >>> dataset = FolderDataset("cars")  # doctest: +SKIP
        >>> dataset[0].images.shape, dataset["cars_0003"].split.count("test")  # doctest: +SKIP
        (torch.Size([44, 128, 128, 4]), 4)
    """

    def __init__(self, path: str | Path, *, size: int | None = None) -> None:
        """Open a data set.

        Args:
            path: its folder.
            size: resample images, when they are read, to this many pixels along the longer side.

        Raises:
            DataError: no data set, damaged, of several layouts, or without an object.
            ConfigError: ``size`` is out of range.
        """
        if size is not None and not 8 <= size <= SIDE_LIMIT:
            raise ConfigError(f"size {size}: images are resampled to 8 to {SIDE_LIMIT} pixels")
        self.path = Path(path)
        self.resampled = size
        self.licence: str | None = None
        if (self.path / "dataset.json").is_file():
            header = layout.read_header(self.path)
            if not header.ids:
                remedy = (
                    "every object failed" if header.complete else "the run that makes it was interrupted: resume it"
                )
                raise DataError(f"{self.path}: the data set has no object ({remedy})")
            self.layout, self.licence = OWN, header.licence
            self._folders = {object_id: self.path / object_id for object_id in header.ids}
            self.size = size or header.size
        else:
            self.layout, self._folders = _find(self.path)
            self.size = size or self._own_size()
        self.ids = tuple(self._folders)
        self.paths = (self.path,)
        self.licences = {self.name: self.licence}
        self.classes = dict.fromkeys(self.ids, self.name)

    @property
    def name(self) -> str:
        """What the folder is called; a link keeps its own name."""
        return Path(os.path.abspath(self.path)).name

    def _own_size(self) -> int:
        """Longer side of the first image that can be read; 0 where none can, which reading will say."""
        for folder in self._folders.values():
            try:
                frames = FOREIGN[self.layout].read_frames(folder, lambda problem: None)
                return max(size_of(frames[0].image)) if frames else 0
            except DataError:
                continue
        return 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, key: int | str) -> MultiViewObject:
        """Read an object by number or id.

        Raises:
            DataError: no such id, or its files are damaged; the message names the file.
            IndexError: the number is out of range.
        """
        return self.read(key)

    def __iter__(self) -> Iterator[MultiViewObject]:
        return (self.read(item) for item in self.ids)

    def read(self, key: int | str, *, report: Report = raise_problem) -> MultiViewObject:
        """Read an object by number or id, telling ``report`` of every view that is left out.

        Raises:
            DataError: nothing could be read; or the first problem, by the default ``report``.
        """
        object_id = self.ids[key] if isinstance(key, int) else key
        if object_id not in self._folders:
            known = ", ".join(self.ids[:3]) + (", ..." if len(self.ids) > 3 else "")
            raise DataError(f"{self.path}: there is no object '{object_id}'; it has {known}")
        if self.layout == OWN:
            return layout.read_object(self.path, object_id, size=self.resampled, report=report)
        folder = self._folders[object_id]
        frames = FOREIGN[self.layout].read_frames(folder, report)
        if not frames:
            raise DataError(f"{folder}: no frame can be read")
        return to_world(
            assemble(
                object_id,
                frames,
                world_from_source=np.eye(4),
                size=self.resampled,
                judge_poses=True,
                report=report,
            )
        )


def _find(folder: Path) -> tuple[str, dict[str, Path]]:
    """The layout of a folder and the folders of its objects, by id."""
    if not folder.is_dir():
        what = "is a file; name the folder of a data set" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {what}; make a data set with `fusedplanes data make`")
    found: dict[str, list[Path]] = {}
    for parent, folders, _ in os.walk(folder):
        here = Path(parent)
        name = next((name for name, module in FOREIGN.items() if module.is_object(here)), None)
        if name is not None:
            found.setdefault(name, []).append(here)
        # An object has no objects inside.
        deep = len(here.relative_to(folder).parts) >= _DEPTH_LIMIT
        folders[:] = [] if name or deep else sorted(item for item in folders if not item.startswith("."))
    if not found:
        raise DataError(
            f"{folder}: no data set here: neither dataset.json nor objects of a layout that is read "
            f"({', '.join(FOREIGN)}); make one with `fusedplanes data make` or `data from-meshes`"
        )
    if len(found) > 1:
        places = ", ".join(f"{places[0].relative_to(folder)} is {name}" for name, places in found.items())
        raise DataError(f"{folder}: objects of several layouts ({places}); open one of the folders inside")
    name, places = next(iter(found.items()))
    # A suffix-less name: folders may have dots.
    names = [place.relative_to(folder).as_posix() if place != folder else folder.resolve().name for place in places]
    ids = unique_ids([f"{item}.object" for item in names])
    objects = {ids[f"{item}.object"]: place for item, place in zip(names, places, strict=True)}
    return name, fused_planes_release.in_map_order(folder, objects) if name == "fused-planes-release" else objects
