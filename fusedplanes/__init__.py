"""fusedplanes: compact planar representations of whole object classes, and novel views from them.

    >>> import fusedplanes as fp
    >>> model = fp.FusedPlanes.load("runs/cars")  # doctest: +SKIP
    >>> views = model.render("car_003", fp.Cameras.orbit(60))  # doctest: +SKIP

Importing the package loads none of torch, triton, numba or scipy; each name below is imported when it is first used.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "Cameras": "fusedplanes.cameras",
    "Rays": "fusedplanes.rays",
    "MultiViewObject": "fusedplanes.multiview",
    "ObjectPlanes": "fusedplanes.fields",
    "RenderOutput": "fusedplanes.rendering.volume",
    "FusedPlanes": "fusedplanes.planes.model",
    "TriPlanes": "fusedplanes.planes.model",
    "load": "fusedplanes.planes.model",
    "preset": "fusedplanes.planes.config",
    "open_pretrained": "fusedplanes.autoencoders.weight_files",
    "with_autoencoder": "fusedplanes.planes.config",
    "with_banks": "fusedplanes.planes.config",
    "train": "fusedplanes.planes.run",
    "add": "fusedplanes.planes.add",
    "evaluate": "fusedplanes.planes.evaluate",
    "save_orbit": "fusedplanes.rendering.video",
    "FusedPlanesError": "fusedplanes.errors",
    "DataError": "fusedplanes.errors",
    "ConfigError": "fusedplanes.errors",
    "CheckpointError": "fusedplanes.errors",
    "BackendUnavailable": "fusedplanes.errors",
}

_MODULES = ("datasets",)

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'fusedplanes' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
