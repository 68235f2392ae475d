"""Several data sets read as one, each a class of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fusedplanes.datasets.folder import FolderDataset
from fusedplanes.datasets.ids import unique_ids
from fusedplanes.errors import DataError
from fusedplanes.multiview import MultiViewObject


class JoinedDataset:
    """Objects of several data sets, one data set after another.

    Implements `fusedplanes.multiview.MultiViewDataset`. An id that occurs in two of them is preceded by its class in
    both, so that what an object is called does not depend on the order of the folders.

    Attributes:
        paths: folders of the data sets, in order.
        classes: by object id, the name of the folder it comes from.
        ids: objects in order.
        size: longer side of the images in pixels; of the first data set, where they differ.
        resampled: the ``size`` that was asked for; None where images stay as they are.
        licences: by name of the folder, what its images may be used for; None where that was not said.

    Example:
        >>> both = JoinedDataset([FolderDataset("cars"), FolderDataset("chairs")])  # doctest: +SKIP
        >>> both.classes["chairs_0003"]  # doctest: +SKIP
        'chairs'
    """

    def __init__(self, datasets: Sequence[FolderDataset]) -> None:
        """Join data sets.

        Args:
            datasets: at least one, each in a folder of another name.

        Raises:
            DataError: none, or two of one name.
        """
        if not datasets:
            raise DataError("no data set is named; give the folder of one, or of several")
        names = [item.name for item in datasets]
        for index, name in enumerate(names):
            if name in names[:index]:
                first = datasets[names.index(name)].path
                raise DataError(f"{datasets[index].path}: is called '{name}' like {first}; rename one of the folders")
        self.paths: tuple[Path, ...] = tuple(item.path for item in datasets)
        self.resampled, self.size = datasets[0].resampled, datasets[0].size
        self.licences = {name: item.licence for name, item in zip(names, datasets, strict=True)}
        owners: dict[str, int] = {}
        for item in datasets:
            for own in item.ids:
                owners[own] = owners.get(own, 0) + 1
        places = [(name, item, own) for name, item in zip(names, datasets, strict=True) for own in item.ids]
        preceded = unique_ids([f"{name}/{own}.object" for name, _, own in places if owners[own] > 1])
        self._places: dict[str, tuple[FolderDataset, str]] = {}
        self.classes: dict[str, str] = {}
        for name, item, own in places:
            id = own if owners[own] == 1 else preceded[f"{name}/{own}.object"]
            if id in self._places:
                raise DataError(f"{item.path}: object '{own}' would be called '{id}' like another; rename its folder")
            self._places[id] = (item, own)
            self.classes[id] = name
        self.ids = tuple(self._places)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, key: int | str) -> MultiViewObject:
        """Read an object by number or id.

        Raises:
            DataError: no such id, or its files are damaged; the message names the file.
            IndexError: the number is out of range.
        """
        id = self.ids[key] if isinstance(key, int) else key
        if id not in self._places:
            raise DataError(f"{', '.join(map(str, self.paths))}: there is no object '{id}'")
        dataset, own = self._places[id]
        item = dataset[own]
        return item if id == own else replace(item, id=id)

    def __iter__(self) -> Iterator[MultiViewObject]:
        return (self[id] for id in self.ids)


def load(path: str | Path | Sequence[str | Path], *, size: int | None = None) -> FolderDataset | JoinedDataset:
    """Open a data set: one that `fusedplanes data` made, or a folder of objects in another layout; or several as one.

    Read are nerfstudio captures (``transforms.json`` per object), NeRF-synthetic scenes, ShapeNet renders as Scene
    Representation Networks keep them, and the layout of the published Fused-Planes code. Objects of those are moved and
    scaled into the field's box; ``world_from_source`` says how.

    Args:
        path: the folder of the data set, or of a single object; or several folders, each a class.
        size: resample images to this many pixels along the longer side; None keeps them as they are.

    Raises:
        DataError: no data set, damaged, written by a newer release, or two folders of one name.
        ConfigError: ``size`` is out of range.

    Example:
        >>> cars = load("cars")  # doctest: +SKIP
        >>> cars[0].cameras.camera_to_world.shape  # doctest: +SKIP
        torch.Size([44, 4, 4])
        >>> load(["cars", "chairs"]).classes["chairs_0003"]  # doctest: +SKIP
        'chairs'
    """
    folders = [path] if isinstance(path, str | Path) else list(path)
    found = [FolderDataset(folder, size=size) for folder in folders]
    return found[0] if len(found) == 1 else JoinedDataset(found)
