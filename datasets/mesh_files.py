"""Load a mesh file into the project's frame: .glb, .gltf, .obj with its .mtl, .ply and .stl."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from trimesh.exchange.obj import load_obj
from trimesh.exchange.stl import load_stl
from trimesh.geometry import triangulate_quads
from trimesh.resolvers import Resolver

from fusedplanes.datasets.asset_folder import (
    ALL_TEXTURES_PIXELS_LIMIT,
    AssetFolder,
    decode_texture,
    read_capped,
    shortened,
)
from fusedplanes.datasets.gltf_file import read_gltf
from fusedplanes.datasets.mesh_parts import FACES_LIMIT, PLAIN_GREY, MeshPart, join
from fusedplanes.datasets.ply_file import read_ply
from fusedplanes.datasets.textured_mesh import Material, TexturedMesh
from fusedplanes.errors import ConfigError, DataError

# glTF fixes its up axis; the other formats have habits, which --up overrides.
UP_AXES = {".glb": "y", ".gltf": "y", ".obj": "y", ".ply": "z", ".stl": "z"}
SUFFIXES = tuple(UP_AXES)

_WHITE = np.ones(4, np.float32)
_ANY_IMAGE = b"P5 1 1 255\n\xff"
_UP_TO_THREE_NUMBERS = ("-o", "-s", "-t")


def load_mesh(
    path: str | Path, *, up: str = "auto", asset_folder: str | Path | None = None
) -> tuple[TexturedMesh, tuple[str, ...]]:
    """Read a mesh file: turned to +z up, centred, its bounding box's longest side from -0.9 to 0.9.

    Colours are base colours: a glTF material's factor times its texture, an OBJ's Kd times map_Kd, both times vertex
    colours.
    Missing normals are computed, smooth across edges of less than 40 degrees.

    Args:
        path: .glb, .gltf, .obj, .ply or .stl.
        up: "y" or "z" for formats that do not say; "auto" takes y for OBJ and z for PLY and STL. glTF is always y-up.
        asset_folder: folder that no reference to a texture, material or buffer may leave; the file's own if None.

    Returns:
        The mesh, and one line for each texture or material that is missing and was replaced by a plain colour.

    Raises:
        DataError: one line that names the file and what is wrong with it.
        ConfigError: ``up`` is no axis.

    Example:
        >>> mesh, warnings = load_mesh("chair.glb")  # doctest: +SKIP
        >>> abs(mesh.vertices).max()  # doctest: +SKIP
        0.9
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if up not in ("auto", "y", "z"):
        raise ConfigError(f"up '{up}': choose auto, y or z")
    if suffix not in UP_AXES:
        raise DataError(
            f"{path}: '{suffix}' is no mesh format that is read; convert it to one of {', '.join(SUFFIXES)}"
        )
    folder = AssetFolder(path, None if asset_folder is None else Path(asset_folder))
    try:
        if suffix in (".glb", ".gltf"):
            return join(read_gltf(path, folder), up="y"), tuple(folder.warnings)
        parts = read_ply(path, folder) if suffix == ".ply" else _read_with_trimesh(path, suffix, folder)
        return join(parts, up=UP_AXES[suffix] if up == "auto" else up), tuple(folder.warnings)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except MemoryError as error:
        raise DataError(f"{path}: it does not fit into memory; simplify the mesh first") from error


class _References(Resolver):
    """Hands trimesh the material library beside an OBJ file, and a stand-in for each texture, which is decoded here.

    trimesh opens a texture with any decoder that Pillow has, so it never gets the bytes of one.
    """

    def __init__(self, folder: AssetFolder) -> None:
        self._folder = folder
        self._library_given = False
        self._decoded: dict[str, np.ndarray] = {}
        self.textures: dict[str, np.ndarray] = {}

    def get(self, key: str) -> bytes:
        name = texture_name(key) if key.strip().startswith("-") else key.strip()
        try:
            # Materials often share one texture, and a hostile file may name it a thousand times.
            if name in self._decoded:
                self.textures[key] = self._decoded[name]
                return _ANY_IMAGE
            data = self._folder.read(name)
            # A library is asked for once and first: what a library itself refers to is a texture by any name.
            if name.lower().endswith(".mtl") and not self._library_given:
                self._library_given = True
                return _utf8(data)
            texture = decode_texture(data, shortened(name))
            pixels = sum(other.shape[0] * other.shape[1] for other in (texture, *self._decoded.values()))
            if pixels > ALL_TEXTURES_PIXELS_LIMIT:
                raise DataError(f"its textures exceed {ALL_TEXTURES_PIXELS_LIMIT} pixels together")
            self.textures[key] = self._decoded[name] = texture
            return _ANY_IMAGE
        except DataError as error:
            self._folder.warn(f"{error}; a plain colour stands in")
            raise

    def keys(self):
        return ()

    def namespaced(self, namespace: str) -> Resolver:
        raise KeyError(namespace)

    def write(self, name: str, data) -> None:
        raise DataError(f"{shortened(name)}: a mesh file is only read, nothing is written beside it")


def texture_name(line: str) -> str:
    """The file name in a texture line of an .mtl file, behind its options.

    Example:
        >>> texture_name("-s 1 1 1 -clamp on paint work.png")
        'paint work.png'
    """
    words = line.split()
    while len(words) > 2 and words[0].startswith("-"):
        option = words.pop(0)
        if option in _UP_TO_THREE_NUMBERS:
            for _ in range(3):
                if len(words) > 1 and _is_number(words[0]):
                    words.pop(0)
        else:
            del words[: 2 if option == "-mm" else 1]
    return " ".join(words)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _read_with_trimesh(path: Path, suffix: str, folder: AssetFolder) -> list[MeshPart]:
    data = read_capped(path, path.name)
    if not data.strip():
        raise DataError("the file is empty")
    if suffix == ".obj":
        data = _utf8(data)
    elif not _is_binary_stl(data):
        data = _utf8(_ascii_stl(data))
    references = _References(folder)
    load = {".obj": load_obj, ".stl": load_stl}[suffix]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = load(io.BytesIO(data), resolver=references)
            geometries = loaded["geometry"].values() if "geometry" in loaded else [loaded]
            return [_part(geometry, references) for geometry in geometries if geometry.get("faces") is not None]
    except (DataError, MemoryError):
        raise
    except Exception as error:  # trimesh's readers raise many types on damaged files
        raise DataError(f"it is damaged ({type(error).__name__}: {shortened(str(error))})") from error


def _utf8(text: bytes) -> bytes:
    """Text in UTF-8; what is in another encoding is taken for Latin-1, for trimesh's guess needs one more package."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("latin-1").encode("utf-8")
    return text


def _is_binary_stl(data: bytes) -> bool:
    return len(data) >= 84 and len(data) == 84 + 50 * int.from_bytes(data[80:84], "little")


def _ascii_stl(data: bytes) -> bytes:
    """The file if it is ASCII STL, else what is wrong with it as either kind."""
    if data.lstrip()[:5].lower() == b"solid" and b"endsolid" in data.lower():
        return data
    if data.lstrip()[:5].lower() == b"solid" and b"facet" in data.lower():
        raise DataError("it is an ASCII STL that is cut off: endsolid is missing")
    if len(data) < 84:
        raise DataError(f"it is neither binary nor ASCII STL: {len(data)} bytes without 'solid'")
    count = int.from_bytes(data[80:84], "little")
    raise DataError(
        f"it is neither binary nor ASCII STL: its header claims {count} faces, which take {84 + 50 * count} bytes, "
        f"but there are {len(data)}; export it again"
    )


def _part(geometry: dict, references: _References) -> MeshPart:
    """A `MeshPart` from the keyword arguments that trimesh's readers prepare for its own mesh type."""
    vertices = np.asarray(geometry["vertices"], np.float64).reshape(-1, 3)
    faces = geometry["faces"]
    if np.ndim(faces) != 2 or np.shape(faces)[1] != 3:
        faces = triangulate_quads(faces)
    faces = np.asarray(faces).astype(np.int64).reshape(-1, 3)
    if len(faces) > FACES_LIMIT:
        raise DataError(f"more than {FACES_LIMIT} faces; simplify the mesh first")
    wrong = faces[(faces < 0) | (faces >= len(vertices))]
    if len(wrong):
        raise DataError(f"a face names vertex {wrong[0]} of {len(vertices)}")

    colors = _colors(geometry.get("vertex_colors"), len(vertices))
    normals = geometry.get("vertex_normals")
    visual = geometry.get("visual")
    uv = getattr(visual, "uv", None)
    material = Material(PLAIN_GREY if colors is None else _WHITE)
    source = getattr(visual, "material", None)
    if source is not None:
        material = _material(source, references, plain=material)
    return MeshPart(
        vertices=vertices,
        faces=faces,
        material=material,
        normals=None if normals is None or np.shape(normals) != vertices.shape else np.asarray(normals, np.float64),
        uv=None if uv is None or np.shape(uv) != (len(vertices), 2) else np.asarray(uv, np.float64),
        colors=colors,
    )


def _colors(values, count: int) -> np.ndarray | None:
    """``[count, 4]`` in [0, 1] from RGB or RGBA bytes or fractions."""
    if values is None or np.ndim(values) != 2 or len(values) != count or np.shape(values)[1] not in (3, 4):
        return None
    values = np.asarray(values)
    # A few exporters write 0 to 255 as decimals.
    limit = 255.0 if values.dtype.kind in "iu" or np.nanmax(values, initial=0) > 1 else 1.0
    values = values.astype(np.float64) / limit
    return values if values.shape[1] == 4 else np.concatenate([values, np.ones((count, 1))], 1)


def _material(source, references: _References, *, plain: Material) -> Material:
    """Base colour and texture of a trimesh material; ``plain`` where the file says nothing."""
    said = source.kwargs or {}
    image = getattr(source, "image", None)
    texture = None if image is None else references.textures.get(image.info.get("file_path"))
    color = _rgb(said.get("kd"))
    if color is None:
        color = _WHITE[:3] if texture is not None else plain.base_color[:3]
    elif texture is not None and color.max() < 1 / 255:
        # Exporters that mean "the texture alone" write black, which by the letter would hide it.
        color = _WHITE[:3]
    return Material(np.append(color, _opacity(said)).astype(np.float32), texture)


def _rgb(value) -> np.ndarray | None:
    try:
        color = np.asarray(value, np.float64).reshape(-1)
    except (TypeError, ValueError):
        return None
    if color.size not in (1, 3) or not np.isfinite(color).all():
        return None
    return np.clip(np.broadcast_to(color, 3), 0, 1)


def _opacity(said: dict) -> float:
    """From ``d``, else from ``Tr``; a ``Tr`` of 1 is not heeded, as half of the programs mean opaque by it."""
    for key, inverted in (("d", False), ("tr", True)):
        try:
            value = float(said[key][-1])
        except (KeyError, TypeError, ValueError, IndexError):
            continue
        if 0 <= value <= 1 and not (inverted and value == 1):
            return 1 - value if inverted else value
    return 1.0
