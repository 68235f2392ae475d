"""Read glTF 2.0 (.glb and .gltf): geometry, base colours, textures, vertex colours.

Written here rather than taken from a library because the file is hostile: every count, offset and reference is
checked against the bytes that are there before an array is made, and a scene graph that multiplies itself is refused.
Animation, skins, morph targets, lights and cameras are ignored; a skinned mesh is read in its bind pose.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from pathlib import Path

import numpy as np

from fusedplanes.datasets.asset_folder import ALL_TEXTURES_PIXELS_LIMIT, AssetFolder, decode_texture, read_capped
from fusedplanes.datasets.mesh_parts import FACES_LIMIT, MeshPart
from fusedplanes.datasets.textured_mesh import Material
from fusedplanes.errors import DataError

_COMPONENTS = {5120: "i1", 5121: "u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT2": 4, "MAT3": 9, "MAT4": 16}
_TRIANGLES, _STRIP, _FAN = 4, 5, 6
_NODES_LIMIT = 100_000
_PRIMITIVES_LIMIT = 100_000

# Extensions that a file may require and that are either read here or change nothing in a base colour.
_UNDERSTOOD = {
    "KHR_texture_transform",
    "KHR_mesh_quantization",
    "KHR_materials_unlit",
    "KHR_materials_pbrSpecularGlossiness",
    "KHR_lights_punctual",
    "EXT_texture_webp",
}
_REMEDIES = {
    "KHR_draco_mesh_compression": "it is Draco-compressed; export it without compression",
    "EXT_meshopt_compression": "it is meshopt-compressed; export it without compression",
    "KHR_texture_basisu": "its textures are in the KTX2 format; export them as PNG or JPEG",
}


def read_gltf(path: Path, folder: AssetFolder) -> list[MeshPart]:
    """All triangles of the file's default scene.

    Args:
        path: a .glb or .gltf file.
        folder: where buffers and textures beside the file are found; collects a warning for each missing texture.

    Raises:
        DataError: damaged, compressed in a way that is not read, or larger than the limits.
    """
    document, binary = _open(read_capped(path, path.name))
    try:
        return _Reader(document, binary, folder).parts()
    except DataError:
        raise
    except RecursionError as error:
        raise DataError("its JSON is nested too deeply") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        # Whatever the file's JSON holds in place of what the format asks for ends up here.
        reason = " ".join(str(error).split())[:100]
        raise DataError(f"it is not valid glTF ({type(error).__name__}: {reason})") from error


def _open(data: bytes) -> tuple[dict, bytes | None]:
    """The JSON document and, of a .glb, the binary chunk."""
    binary = None
    text = data
    if data[:4] == b"glTF":
        if len(data) < 20:
            raise DataError("the file is cut off in its header")
        version, length = struct.unpack("<II", data[4:12])
        if version != 2:
            raise DataError(f"glTF binary version {version} is not read; convert it to version 2")
        if length > len(data):
            raise DataError(f"the file is cut off: {len(data)} of {length} bytes")
        text, position = None, 12
        while position + 8 <= length:
            size, kind = struct.unpack("<I4s", data[position : position + 8])
            chunk = data[position + 8 : position + 8 + size]
            if len(chunk) < size:
                raise DataError("the file is cut off inside a chunk")
            if kind == b"JSON" and text is None:
                text = chunk
            elif kind == b"BIN\0" and binary is None:
                binary = chunk
            position += 8 + size
        if text is None:
            raise DataError("the file has no JSON chunk")
    if not text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise DataError("it is neither binary glTF nor JSON")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"its JSON is damaged ({str(error).splitlines()[0]})") from error
    if not isinstance(document, dict):
        raise DataError("its JSON is no object")
    return document, binary


class _Reader:
    def __init__(self, document: dict, binary: bytes | None, folder: AssetFolder) -> None:
        self._document = document
        self._binary = binary
        self._folder = folder
        self._buffers: dict[int, bytes] = {}
        self._materials: dict[int | None, tuple[Material, np.ndarray, int]] = {}
        self._textures: dict[int, np.ndarray | None] = {}
        self._opaques: dict[int, np.ndarray] = {}
        self._texture_pixels = 0
        self._vertices = 0
        version = str(document.get("asset", {}).get("version", ""))
        if not version.startswith("2"):
            raise DataError(f"glTF version '{version[:20]}' is not read; convert it to 2.0")
        for extension in document.get("extensionsRequired", []):
            harmless = extension in _UNDERSTOOD or str(extension).startswith("KHR_materials_")
            if not harmless:
                remedy = _REMEDIES.get(extension, "export it without")
                raise DataError(f"the file requires the glTF extension {str(extension)[:60]}: {remedy}")

    # Scene graph ---------------------------------------------------------------------------------------------------

    def parts(self) -> list[MeshPart]:
        document = self._document
        nodes = document.get("nodes", [])
        if len(nodes) > _NODES_LIMIT:
            raise DataError(f"{len(nodes)} nodes exceed the limit of {_NODES_LIMIT}")
        scenes = document.get("scenes", [])
        if scenes:
            roots = self._entry("scenes", document.get("scene", 0)).get("nodes", [])
        else:
            children = {child for node in nodes for child in node.get("children", [])}
            roots = [index for index in range(len(nodes)) if index not in children]
        parts, visited, faces, primitives = [], set(), 0, 0
        pending = [(root, np.eye(4)) for root in reversed(roots)]
        while pending:
            index, parent = pending.pop()
            node = self._entry("nodes", index)
            if index in visited:
                raise DataError(f"node {index} of the scene is reached twice")
            visited.add(index)
            source_from_node = parent @ _node_matrix(node)
            if "mesh" in node:
                listed = self._entry("meshes", node["mesh"])["primitives"]
                # Those without a face count too: many nodes that share one mesh multiply them.
                primitives += len(listed)
                if primitives > _PRIMITIVES_LIMIT:
                    raise DataError(f"its nodes hold more than {_PRIMITIVES_LIMIT} primitives; join them on export")
                for primitive in listed:
                    part = self._part(primitive, source_from_node)
                    if part is not None:
                        faces += len(part.faces)
                        parts.append(part)
                    if faces > FACES_LIMIT:
                        raise DataError(f"more than {FACES_LIMIT} faces; simplify the mesh first")
            pending += [(child, source_from_node) for child in reversed(node.get("children", []))]
        return parts

    def _entry(self, kind: str, index: int) -> dict:
        """What a reference means. Every one is followed here: Python would count a negative one from the end."""
        entries = self._document.get(kind, [])
        if not isinstance(entries, list):
            raise DataError(f"it is not valid glTF: its {kind} are no list")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(entries):
            raise DataError(
                f"it is not valid glTF: entry {str(index)[:20]} of {kind} does not exist; there are {len(entries)}"
            )
        if not isinstance(entries[index], dict):
            raise DataError(f"it is not valid glTF: entry {index} of {kind} is no object")
        return entries[index]

    def _part(self, primitive: dict, source_from_node: np.ndarray) -> MeshPart | None:
        mode = primitive.get("mode", _TRIANGLES)
        attributes = primitive["attributes"]
        if mode not in (_TRIANGLES, _STRIP, _FAN) or "POSITION" not in attributes:
            return None
        if "KHR_draco_mesh_compression" in primitive.get("extensions", {}):
            accessor = self._entry("accessors", attributes["POSITION"])
            if "bufferView" not in accessor:
                raise DataError(_REMEDIES["KHR_draco_mesh_compression"])
        # Many primitives may share one accessor, and each gets its own copy.
        self._vertices += self._entry("accessors", attributes["POSITION"])["count"]
        if self._vertices > 3 * FACES_LIMIT:
            raise DataError(f"more than {3 * FACES_LIMIT} vertices; simplify the mesh first")
        positions = self._accessor(attributes["POSITION"], 3)
        count = len(positions)
        if "indices" in primitive:
            indices = self._accessor(primitive["indices"], 1, indices=True)[:, 0]
            if len(indices) and indices.max() >= count:
                raise DataError(f"a face names vertex {indices.max()} of {count}")
        else:
            indices = np.arange(count)
        linear = source_from_node[:3, :3]
        normals = self._attribute(attributes, "NORMAL", 3, count)
        colors = self._attribute(attributes, "COLOR_0", None, count)
        if colors is not None:
            colors = np.concatenate(
                [encode_srgb(colors[:, :3]), colors[:, 3:4] if colors.shape[1] == 4 else np.ones((count, 1))], 1
            )
        material, transform, uv_set = self._material(primitive.get("material"))
        uv = None
        if material.texture is not None:
            uv = self._attribute(attributes, f"TEXCOORD_{uv_set}", 2, count)
            if uv is not None:
                uv = uv @ transform[:2, :2].T + transform[:2, 2]
                uv = np.stack([uv[:, 0], 1 - uv[:, 1]], -1)
        with np.errstate(invalid="ignore", over="ignore"):
            # Normals are covectors: the cofactor matrix turns them right under any scale, mirrored ones too.
            cofactors = np.stack(
                [np.cross(linear[1], linear[2]), np.cross(linear[2], linear[0]), np.cross(linear[0], linear[1])]
            )
            return MeshPart(
                vertices=positions @ linear.T + source_from_node[:3, 3],
                faces=_triangles(indices.astype(np.int64), mode),
                material=material,
                normals=None if normals is None else normals @ cofactors.T,
                uv=uv,
                colors=colors,
            )

    def _attribute(self, attributes: dict, name: str, width: int | None, count: int) -> np.ndarray | None:
        if name not in attributes:
            return None
        values = self._accessor(attributes[name], width)
        if len(values) != count:
            raise DataError(f"{name} has {len(values)} entries for {count} vertices")
        return values

    # Numbers -------------------------------------------------------------------------------------------------------

    def _buffer(self, index: int) -> bytes:
        buffer = self._entry("buffers", index)
        if index not in self._buffers:
            uri = buffer.get("uri")
            if uri is None:
                if self._binary is None or index != 0:
                    raise DataError(f"buffer {index} has no bytes")
                self._buffers[index] = self._binary
            else:
                self._buffers[index] = self._resolve(uri)
        return self._buffers[index]

    def _resolve(self, uri: str) -> bytes:
        if not uri.startswith("data:"):
            return self._folder.read(uri)
        header, _, payload = uri.partition(",")
        if not header.endswith(";base64"):
            raise DataError("a data URI is not base64")
        try:
            return base64.b64decode(payload, validate=True)
        except binascii.Error as error:
            raise DataError(f"a data URI is damaged ({error})") from error

    def _view(self, index: int) -> tuple[memoryview, int | None]:
        view = self._entry("bufferViews", index)
        if "EXT_meshopt_compression" in view.get("extensions", {}):
            raise DataError(_REMEDIES["EXT_meshopt_compression"])
        buffer = self._buffer(view["buffer"])
        start, length = view.get("byteOffset", 0), view["byteLength"]
        if min(start, length) < 0 or start + length > len(buffer):
            raise DataError(f"bufferView {index} reaches to byte {start + length} of {len(buffer)}")
        return memoryview(buffer)[start : start + length], view.get("byteStride")

    def _values(self, view: int, offset: int, kind: str, count: int, width: int) -> np.ndarray:
        """``[count, width]`` numbers of a buffer view."""
        data, stride = self._view(view)
        item = np.dtype(kind).itemsize * width
        stride = stride or item
        if count == 0:
            return np.zeros((0, width), kind)
        if offset < 0 or stride < item or offset + stride * (count - 1) + item > len(data):
            raise DataError(f"an accessor of {count} entries does not fit into bufferView {view}")
        return np.ndarray((count, width), kind, buffer=data, offset=offset, strides=(stride, np.dtype(kind).itemsize))

    def _accessor(self, index: int, width: int | None, *, indices: bool = False) -> np.ndarray:
        """An accessor's values ``[count, width]``: float64, or integers for indices."""
        accessor = self._entry("accessors", index)
        kind, count = _COMPONENTS[accessor["componentType"]], accessor["count"]
        found = _WIDTHS[accessor["type"]]
        if width not in (None, found) or (width is None and found not in (3, 4)):
            raise DataError(f"accessor {index} is of type {accessor['type']}; expected {width or '3 or 4'} numbers")
        if not isinstance(count, int) or not 0 <= count <= 3 * FACES_LIMIT:
            raise DataError(f"accessor {index} claims {count} entries; the limit is {3 * FACES_LIMIT}")
        if "bufferView" in accessor:
            values = self._values(accessor["bufferView"], accessor.get("byteOffset", 0), kind, count, found)
        else:
            values = np.zeros((count, found), kind)
        if "sparse" in accessor:
            sparse = accessor["sparse"]
            places, replaced, entries = sparse["indices"], sparse["values"], sparse["count"]
            places_kind = _COMPONENTS[places["componentType"]]
            rows = self._values(places["bufferView"], places.get("byteOffset", 0), places_kind, entries, 1)[:, 0]
            if len(rows) and not 0 <= rows.min() <= rows.max() < count:
                raise DataError(f"accessor {index} replaces entry {rows.max()} of {count}")
            values = values.copy()
            values[rows] = self._values(replaced["bufferView"], replaced.get("byteOffset", 0), kind, entries, found)
        if indices:
            if values.dtype.kind != "u":
                raise DataError(f"accessor {index} holds indices that are not unsigned integers")
            return values
        result = values.astype(np.float64)
        if accessor.get("normalized") and values.dtype.kind in "iu":
            result = np.maximum(result / np.iinfo(values.dtype).max, -1.0)
        return result

    # Colours -------------------------------------------------------------------------------------------------------

    def _material(self, index: int | None) -> tuple[Material, np.ndarray, int]:
        """A material, the matrix for its texture coordinates, and their set."""
        material = {} if index is None else self._entry("materials", index)
        if index not in self._materials:
            self._materials[index] = self._read_material(material)
        return self._materials[index]

    def _read_material(self, material: dict) -> tuple[Material, np.ndarray, int]:
        glossiness = material.get("extensions", {}).get("KHR_materials_pbrSpecularGlossiness")
        surface = material.get("pbrMetallicRoughness", {})
        factor, reference = surface.get("baseColorFactor", [1, 1, 1, 1]), surface.get("baseColorTexture")
        if glossiness is not None:
            factor, reference = glossiness.get("diffuseFactor", [1, 1, 1, 1]), glossiness.get("diffuseTexture")
        factor = np.clip(np.nan_to_num(np.array(factor, np.float64).reshape(4)), 0, 1)
        texture, transform, uv_set = None, np.eye(3), 0
        if reference is not None:
            texture = self._texture(reference["index"])
            uv_set = reference.get("texCoord", 0)
            moved = reference.get("extensions", {}).get("KHR_texture_transform")
            if moved is not None:
                transform = _texture_matrix(moved)
                uv_set = moved.get("texCoord", uv_set)

        # The renderers call a point transparent below one half; the other modes are brought to that.
        mode = material.get("alphaMode", "OPAQUE")
        if mode == "OPAQUE":
            factor[3] = 1.0
            if texture is not None and (texture[..., 3] != 255).any():
                texture = self._opaque(texture)
        elif mode == "MASK":
            factor[3] = min(factor[3] * 0.5 / max(float(material.get("alphaCutoff", 0.5)), 1e-3), 4.0)
        base = np.append(encode_srgb(factor[:3]), factor[3]).astype(np.float32)
        return Material(base, texture), transform, int(uv_set)

    def _opaque(self, texture: np.ndarray) -> np.ndarray:
        """A texture without its transparency, one copy for all materials."""
        key = id(texture)  # what `_textures` holds lives on, so its identity is its own
        if key not in self._opaques:
            self._opaques[key] = texture.copy()
            self._opaques[key][..., 3] = 255
        return self._opaques[key]

    def _texture(self, index: int) -> np.ndarray | None:
        texture = self._entry("textures", index)
        source = texture.get("extensions", {}).get("EXT_texture_webp", {}).get("source", texture.get("source"))
        if source is None:
            self._folder.warn(f"texture {index} is in a format that is not read; the base colour stands in")
            return None
        image = self._entry("images", source)
        if source not in self._textures:
            if "uri" not in image:
                self._entry("bufferViews", image["bufferView"])  # a wrong reference is no missing texture
            try:
                if "uri" in image:
                    data = self._resolve(image["uri"])
                else:
                    data = bytes(self._view(image["bufferView"])[0])
                decoded = decode_texture(data, str(image.get("name") or source)[:60])
                self._texture_pixels += decoded.shape[0] * decoded.shape[1]
                if self._texture_pixels > ALL_TEXTURES_PIXELS_LIMIT:
                    raise DataError(f"its textures exceed {ALL_TEXTURES_PIXELS_LIMIT} pixels together")
            except DataError as error:
                self._folder.warn(f"{error}; the base colour stands in")
                decoded = None
            self._textures[source] = decoded
        return self._textures[source]


def _node_matrix(node: dict) -> np.ndarray:
    if "matrix" in node:
        return np.array(node["matrix"], np.float64).reshape(4, 4).T
    x, y, z, w = (float(value) for value in node.get("rotation", (0, 0, 0, 1)))
    length = math.sqrt(x * x + y * y + z * z + w * w) or 1.0
    x, y, z, w = x / length, y / length, z / length, w / length
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    matrix = np.eye(4)
    matrix[:3, :3] = rotation * np.array(node.get("scale", (1, 1, 1)), np.float64).reshape(3)
    matrix[:3, 3] = np.array(node.get("translation", (0, 0, 0)), np.float64).reshape(3)
    return matrix


def _texture_matrix(transform: dict) -> np.ndarray:
    """KHR_texture_transform: offset * rotation * scale, anti-clockwise for v that runs down."""
    cosine, sine = math.cos(transform.get("rotation", 0.0)), math.sin(transform.get("rotation", 0.0))
    offset, scale = transform.get("offset", (0, 0)), transform.get("scale", (1, 1))
    return np.array(
        [
            [cosine * scale[0], sine * scale[1], offset[0]],
            [-sine * scale[0], cosine * scale[1], offset[1]],
            [0.0, 0.0, 1.0],
        ]
    )


def _triangles(indices: np.ndarray, mode: int) -> np.ndarray:
    if mode == _TRIANGLES:
        return indices[: len(indices) // 3 * 3].reshape(-1, 3)
    if len(indices) < 3:
        return np.zeros((0, 3), np.int64)
    if mode == _FAN:
        return np.stack([np.broadcast_to(indices[0], len(indices) - 2), indices[1:-1], indices[2:]], -1)
    faces = np.stack([indices[:-2], indices[1:-1], indices[2:]], -1)
    faces[1::2] = faces[1::2, ::-1]
    return faces


def encode_srgb(linear: np.ndarray) -> np.ndarray:
    """Linear light in [0, 1] to sRGB values (IEC 61966-2-1)."""
    linear = np.clip(linear, 0.0, 1.0)
    return np.where(linear <= 0.0031308, linear * 12.92, 1.055 * np.maximum(linear, 1e-9) ** (1 / 2.4) - 0.055)
