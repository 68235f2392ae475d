"""Data sets: makers that write the project's layout, and the loader that reads it.

    >>> from fusedplanes import datasets
    >>> datasets.make_class("cars", objects=8, views=40, size=64, out="cars")  # doctest: +SKIP
    >>> datasets.load("cars")[0].images.shape  # doctest: +SKIP
    torch.Size([40, 64, 64, 4])

Each name is imported when it is first used: loading a data set needs neither numba nor trimesh.
"""

from importlib import import_module

_HOMES = {
    "check": "fusedplanes.datasets.check_folder",
    "FolderDataset": "fusedplanes.datasets.folder",
    "JoinedDataset": "fusedplanes.datasets.joined",
    "load": "fusedplanes.datasets.joined",
    "MakeReport": "fusedplanes.datasets.make",
    "make_class": "fusedplanes.datasets.make",
    "from_meshes": "fusedplanes.datasets.make",
    "load_mesh": "fusedplanes.datasets.mesh_files",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fusedplanes.datasets' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
