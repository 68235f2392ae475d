"""Procedural object classes: thousands of distinct textured objects, made from a class, a seed and an index.

Objects stand upright (+z up) with their front towards +x, centred at the origin; the longest side spans [-0.9, 0.9].
"""

from __future__ import annotations

from fusedplanes.datasets.procedural import airplanes, cars, chairs, houses, lamps, mugs, tables
from fusedplanes.datasets.procedural.variation import Variation
from fusedplanes.datasets.textured_mesh import TexturedMesh
from fusedplanes.errors import ConfigError

_MODULES = {
    "airplanes": airplanes,
    "cars": cars,
    "chairs": chairs,
    "houses": houses,
    "lamps": lamps,
    "mugs": mugs,
    "tables": tables,
}

CLASSES: tuple[str, ...] = tuple(_MODULES)
"""Names of the classes."""


def make_mesh(class_name: str, index: int, *, seed: int = 0) -> TexturedMesh:
    """Object number ``index`` of a class; the same arguments always give the same object.

    Args:
        class_name: one of `CLASSES`.
        index: 0 or more. Objects differ however far the index runs.
        seed: 0 or more; another seed gives another set of objects.

    Returns:
        A mesh of at most 6,000 faces that fits [-0.9, 0.9]^3, with ``world_from_source`` the identity.

    Raises:
        ConfigError: if there is no such class, or the index or seed is negative.

    Example:
        >>> mesh = make_mesh("cars", 0)
        >>> bool(abs(mesh.vertices).max() <= 0.9)
        True
    """
    if class_name not in _MODULES:
        raise ConfigError(f"class {class_name!r}: there is no such procedural class; choose from {', '.join(CLASSES)}")
    for name, value in (("index", index), ("seed", seed)):
        if value < 0:
            raise ConfigError(f"{name} {value}: the {name} of a procedural object must be 0 or more")
    module = _MODULES[class_name]
    return module.build(Variation(class_name, index, seed, module.KINDS)).build()


def object_id(class_name: str, index: int) -> str:
    """The name of an object in a data set, such as ``cars_00012``."""
    return f"{class_name}_{index:05d}"
