"""Read a data set whole and name everything that is wrong with it, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusedplanes.datasets.folder import FolderDataset
from fusedplanes.errors import DataError


@dataclass(frozen=True)
class Problem:
    """Something wrong with a data set.

    Attributes:
        object: id of the object.
        problem: one line that names the file.
    """

    object: str
    problem: str


@dataclass(frozen=True)
class CheckReport:
    """What `check` found.

    Attributes:
        layout: name of the data set's layout.
        objects: how many objects there are.
        views: how many of their views can be used.
        size: longer side of the images in pixels.
        problems: everything that is wrong.
    """

    layout: str
    objects: int
    views: int
    size: int
    problems: tuple[Problem, ...]


def check(path: str | Path) -> CheckReport:
    """Read every file of a data set.

    Args:
        path: its folder.

    Raises:
        DataError: it cannot be opened at all.

    Example:
        >>> check("cars").problems  # doctest: +SKIP
        ()
    """
    dataset = FolderDataset(path)
    problems: dict[Problem, None] = {}
    sizes: dict[tuple[int, int], str] = {}
    views = 0
    for name in dataset.ids:

        def report(problem: DataError, name: str = name) -> None:
            # A fault of the whole file comes once per frame.
            problems[Problem(name, str(problem))] = None

        try:
            item = dataset.read(name, report=report)
        except DataError as problem:
            report(problem)
            continue
        views += len(item.split)
        sizes.setdefault((item.cameras.width, item.cameras.height), name)
        if len(item.split) == 1:
            report(DataError(f"{dataset.path}: object '{name}' has one view only; a shape needs several"))
        elif "train" not in item.split:
            report(DataError(f"{dataset.path}: object '{name}' has no view in split 'train'"))
    if len(sizes) > 1:
        listed = ", ".join(f"'{name}' {width}x{height}" for (width, height), name in sizes.items())
        first = next(iter(sizes.values()))
        mixed = f"{dataset.path}: images of different sizes ({listed}); train with --size to make them one"
        problems[Problem(first, mixed)] = None
    return CheckReport(dataset.layout, len(dataset), views, dataset.size, tuple(problems))
