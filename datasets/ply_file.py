"""Read PLY meshes: ASCII and binary, polygons of any and mixed size, vertex and face colours, texture coordinates.

Written here because the faces of programs such as Blender mix triangles and quads, which few readers take in binary
files, and because counts in a hostile header are checked against the bytes that are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fusedplanes.datasets.asset_folder import AssetFolder, decode_texture, read_capped, shortened
from fusedplanes.datasets.mesh_parts import FACES_LIMIT, PLAIN_GREY, MeshPart
from fusedplanes.datasets.textured_mesh import Material
from fusedplanes.errors import DataError

_TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4"}
_TYPES |= {"double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
_TYPES |= {"float32": "f4", "float64": "f8", "int64": "i8", "uint64": "u8"}
_BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_COORDINATES = (("s", "t"), ("u", "v"), ("texture_u", "texture_v"))
_HEADER_LIMIT = 1 << 16


@dataclass
class _Property:
    name: str
    kind: str
    count_kind: str | None = None


@dataclass
class _Element:
    name: str
    count: int
    properties: list[_Property] = field(default_factory=list)


def read_ply(path: Path, folder: AssetFolder) -> list[MeshPart]:
    """All faces of a PLY file, polygons cut into fans.

    Raises:
        DataError: damaged, or it has points only.
    """
    data = read_capped(path, path.name)
    order, elements, texture_file, body = _parse_header(data)
    rows = _AsciiRows(data[body:]) if not order else _BinaryRows(data[body:], order)
    tables = {element.name: _read_element(element, rows) for element in elements}
    vertex, face = tables.get("vertex", {}), tables.get("face", {})
    if not all(axis in vertex for axis in "xyz"):
        raise DataError("it has no vertices with x, y and z")
    polygons = face.get("vertex_indices", face.get("vertex_index"))
    if polygons is None or not isinstance(polygons, _Lists):
        raise DataError("no faces; a point cloud or an empty file cannot be drawn")
    return [_part(vertex, face, polygons, _texture(texture_file, folder))]


def _texture(name: str | None, folder: AssetFolder) -> np.ndarray | None:
    if name is None:
        return None
    try:
        return decode_texture(folder.read(name), shortened(name))
    except DataError as error:
        folder.warn(f"{error}; a plain colour stands in")
        return None


def _part(vertex: dict, face: dict, polygons: _Lists, texture: np.ndarray | None) -> MeshPart:
    vertices = _columns(vertex, "xyz")
    triangles, owner, corner = polygons.fans()
    wrong = triangles[(triangles < 0) | (triangles >= len(vertices))]
    if len(wrong):
        raise DataError(f"a face names vertex {wrong[0]} of {len(vertices)}")
    normals = _columns(vertex, ("nx", "ny", "nz")) if "nx" in vertex else None
    colors, uv = _colors(vertex), None
    for names in _COORDINATES:
        if all(name in vertex for name in names):
            uv = _columns(vertex, names)
            break
    face_colors, wedges = _colors(face), face.get("texcoord")
    if isinstance(wedges, _Lists) or (face_colors is not None and colors is None):
        # Corners of one vertex differ from face to face, so they part company.
        flat = triangles.reshape(-1)
        vertices, normals = vertices[flat], None if normals is None else normals[flat]
        if colors is not None:
            colors = colors[flat]
        elif face_colors is not None:
            colors = np.repeat(face_colors[owner], 3, 0)
        uv = None if uv is None else uv[flat]
        if isinstance(wedges, _Lists) and np.array_equal(wedges.counts, 2 * polygons.counts):
            first = wedges.starts[owner][:, None] + 2 * corner
            uv = np.stack([wedges.values[first], wedges.values[first + 1]], -1).reshape(-1, 2).astype(np.float64)
        triangles = np.arange(len(flat)).reshape(-1, 3)
    plain = PLAIN_GREY if colors is None and texture is None else np.ones(4, np.float32)
    return MeshPart(vertices, triangles, Material(plain, texture if uv is not None else None), normals, uv, colors)


def _columns(table: dict, names: Iterable[str]) -> np.ndarray:
    """``[N, len(names)]`` float64 from properties that stand for one thing and need each other."""
    columns = []
    for name in names:
        if not isinstance(table.get(name), np.ndarray):
            fault = "is a list" if name in table else "is missing"
            raise DataError(
                f"its property {name} {fault}; expected one number per vertex in each of {', '.join(names)}"
            )
        columns.append(table[name].astype(np.float64))
    return np.stack(columns, -1)


def _colors(table: dict) -> np.ndarray | None:
    """``[N, 4]`` in [0, 1] from red, green, blue and, if there, alpha."""
    for prefix in ("", "diffuse_"):
        channels = [table.get(prefix + name) for name in ("red", "green", "blue")]
        if all(isinstance(channel, np.ndarray) for channel in channels):
            alpha = table.get(prefix + "alpha")
            scaled = [
                channel / np.iinfo(channel.dtype).max if channel.dtype.kind in "iu" else channel
                for channel in (*channels, *([alpha] if isinstance(alpha, np.ndarray) else []))
            ]
            if len(scaled) == 3:
                scaled.append(np.ones(len(scaled[0])))
            return np.stack(scaled, -1).astype(np.float64)
    return None


# The file's own structure -------------------------------------------------------------------------------------------


def _parse_header(data: bytes) -> tuple[str, list[_Element], str | None, int]:
    """Byte order ("" for ASCII), elements, the texture that a comment names, and where the data starts."""
    end = data.find(b"end_header", 0, _HEADER_LIMIT)
    if not data.startswith(b"ply") or end < 0:
        raise DataError("it is no PLY file: the header is missing or cut off")
    body = data.find(b"\n", end) + 1 or len(data)
    order, elements, texture_file = None, [], None
    for line in data[:end].decode("utf-8", "replace").splitlines()[1:]:
        words = line.split()
        if words[:1] == ["format"] and len(words) > 1:
            order = _BYTE_ORDERS.get(words[1])
        elif words[:1] == ["comment"] and words[1:2] == ["TextureFile"]:
            texture_file = line.split("TextureFile", 1)[1].strip()
        elif words[:1] == ["element"] and len(words) == 3 and words[2].isdecimal():
            count = int(words[2][:18])
            if count > len(data):
                raise DataError(f"its header claims {count} rows in a file of {len(data)} bytes")
            elements.append(_Element(words[1], count))
        elif words[:1] == ["property"] and elements:
            kinds = [_TYPES.get(word) for word in words[1:-1] if word != "list"]
            if None in kinds or len(kinds) != (2 if words[1:2] == ["list"] else 1):
                raise DataError(f"its header has a property that is not read: '{shortened(line)}'")
            elements[-1].properties.append(_Property(words[-1], kinds[-1], kinds[0] if len(kinds) == 2 else None))
    if order is None:
        raise DataError("its header names no format that is read")
    return order, elements, texture_file, body


@dataclass
class _Lists:
    """Lists of varying length: ``values[start : start + count]`` for each row."""

    values: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    def fans(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Triangles ``[F, 3]`` as fans, their rows ``[F]``, their places in it ``[F, 3]``."""
        per_row = np.maximum(self.counts - 2, 0)
        if per_row.sum() > FACES_LIMIT:
            raise DataError(f"more than {FACES_LIMIT} faces; simplify the mesh first")
        owner = np.repeat(np.arange(len(per_row)), per_row)
        step = np.arange(len(owner)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
        corner = np.stack([np.zeros_like(step), step + 1, step + 2], -1)
        return self.values[self.starts[owner][:, None] + corner].astype(np.int64), owner, corner


class _AsciiRows:
    """Numbers separated by white space; one number is one unit."""

    position = 0

    def __init__(self, data: bytes) -> None:
        try:
            self._values = np.array(data.split(), dtype=np.float64)
        except ValueError as error:
            raise DataError(f"its data are not numbers ({shortened(str(error))})") from error
        self.length = len(self._values)

    def unit(self, kind: str) -> int:
        return 1

    def count_at(self, position: int, kind: str) -> int:
        value = self._values[position]
        return int(value) if np.isfinite(value) else -1

    def gather(self, positions: np.ndarray, kind: str) -> np.ndarray:
        values = self._values[positions]
        if kind[0] == "f":
            return values.astype(kind)
        limits = np.iinfo(kind)
        if len(values) and not (limits.min <= values.min() and values.max() <= limits.max):
            raise DataError(f"a number does not fit its type {kind}")
        return values.astype(kind)


class _BinaryRows:
    """Packed numbers; a number has as many units as bytes."""

    position = 0

    def __init__(self, data: bytes, order: str) -> None:
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._order = order
        self._endian = "little" if order == "<" else "big"
        self.length = len(data)

    def unit(self, kind: str) -> int:
        return int(kind[1])

    def count_at(self, position: int, kind: str) -> int:
        if kind[0] == "f":
            return -1
        value = self._data[position : position + int(kind[1])]
        return int.from_bytes(value, self._endian, signed=kind[0] == "i")

    def gather(self, positions: np.ndarray, kind: str) -> np.ndarray:
        size = int(kind[1])
        packed = self._bytes[positions[:, None] + np.arange(size)]
        return np.ascontiguousarray(packed).view(self._order + kind)[:, 0].astype(kind)


def _read_element(element: _Element, rows: _AsciiRows | _BinaryRows) -> dict[str, np.ndarray | _Lists]:
    """Columns of an element by property name, and ``rows`` moved behind them."""
    start = rows.position
    if all(column.count_kind is None for column in element.properties):
        widths = np.array([rows.unit(column.kind) for column in element.properties], np.int64)
        stride = int(widths.sum())
        rows.position = start + stride * element.count
        if rows.position > rows.length:
            raise DataError(f"it is cut off in element '{shortened(element.name)}'")
        places = start + np.cumsum(widths) - widths
        steps = stride * np.arange(element.count)
        return {
            column.name: rows.gather(place + steps, column.kind) for column, place in zip(element.properties, places)
        }
    return _read_lists(element, rows, start)


def _read_lists(element: _Element, rows, position: int) -> dict[str, np.ndarray | _Lists]:
    """Rows of varying length, walked one by one to find where each begins."""
    plan = [(column.count_kind, rows.unit(column.kind)) for column in element.properties]
    places = [[] for _ in plan]
    counts = [[] for _ in plan]
    length = rows.length
    for _ in range(element.count):
        for index, (count_kind, unit) in enumerate(plan):
            count = 1
            if count_kind is not None:
                behind = position + rows.unit(count_kind)
                count = rows.count_at(position, count_kind) if behind <= length else -1
                if count < 0:
                    raise DataError(f"it is cut off or damaged in element '{shortened(element.name)}'")
                counts[index].append(count)
                position = behind
            places[index].append(position)
            position += count * unit
        if position > length:
            raise DataError(f"it is cut off in element '{shortened(element.name)}'")
    rows.position = position
    table = {}
    for column, place, count in zip(element.properties, places, counts):
        place, count = np.array(place, np.int64), np.array(count, np.int64)
        if column.count_kind is None:
            table[column.name] = rows.gather(place, column.kind)
            continue
        starts = np.cumsum(count) - count
        step = np.arange(count.sum()) - np.repeat(starts, count)
        table[column.name] = _Lists(
            rows.gather(np.repeat(place, count) + step * rows.unit(column.kind), column.kind), starts, count
        )
    return table
