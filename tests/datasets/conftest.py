"""Meshes and mesh files small enough to know every pixel of."""

import io
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fusedplanes.datasets.textured_mesh import Material, TexturedMesh


def pytest_generate_tests(metafunc):
    """Real meshes and photographs, in addition to the self-made ones, where they are at hand."""
    folder = Path(os.environ.get("FUSEDPLANES_TEST_DATA", Path(metafunc.config.rootpath) / "../shared/data"))
    if "real_cars" in metafunc.fixturenames:
        cars = sorted((folder / "classes/cars").glob("*.glb"))
        metafunc.parametrize("real_cars", [cars[::7]] if cars else [], ids=lambda files: f"{len(files)} files")
    if "odd_mesh" in metafunc.fixturenames:
        suffixes = (".glb", ".gltf", ".obj", ".ply")
        found = [path for path in sorted((folder / "odd").glob("*")) if path.suffix in suffixes]
        found += sorted((folder / "meshes").rglob("*.obj")) + sorted((folder / "splats").glob("*.ply"))
        for name in ("chairs", "food"):
            found += sorted((folder / "classes" / name).glob("*.glb"))[::40]
        metafunc.parametrize("odd_mesh", found, ids=[path.name for path in found])


@pytest.fixture
def mesh_of():
    """A function that makes a mesh of plain or textured triangles with flat normals."""

    def make(vertices, faces, *, color=(1, 1, 1, 1), uv=None, texture=None, colors=None, normals=None):
        vertices, faces = np.array(vertices, np.float64), np.array(faces, np.int64).reshape(-1, 3)
        corners = vertices[faces]
        flat = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        flat = flat / np.linalg.norm(flat, axis=-1, keepdims=True)
        count = len(faces)
        return TexturedMesh(
            vertices=vertices,
            faces=faces,
            corner_normals=np.repeat(flat[:, None], 3, 1).astype(np.float32) if normals is None else normals,
            corner_uv=np.zeros((count, 3, 2), np.float32) if uv is None else np.array(uv, np.float32)[faces],
            corner_colors=np.ones((count, 3, 4), np.float32) if colors is None else np.float32(colors)[faces],
            face_material=np.zeros(count, np.int32),
            materials=(Material(np.float32(color), texture),),
            world_from_source=np.eye(4),
        )

    return make


@pytest.fixture
def wall(mesh_of):
    """A function that makes a square wall in the plane y = 0, from -1 to 1 in x and z; v runs up with z."""

    def make(half=1.0, **keywords):
        corners = [(-half, 0, -half), (half, 0, -half), (half, 0, half), (-half, 0, half)]
        return mesh_of(corners, [(0, 1, 2), (0, 2, 3)], uv=[(0, 0), (1, 0), (1, 1), (0, 1)], **keywords)

    return make


@pytest.fixture
def boxes(mesh_of):
    """A function that makes many small boxes at random places and angles: occlusion, edges, thin faces."""

    def make(count=12, seed=0, **keywords):
        generator = np.random.default_rng(seed)
        cube = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
        sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
        triangles = np.array([(a, b, c) for s in sides for a, b, c in ((s[0], s[1], s[2]), (s[0], s[2], s[3]))])
        vertices, faces = [], []
        for index in range(count):
            rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))
            size = generator.uniform(0.02, 0.3, size=3)
            vertices.append((cube * size) @ rotation + generator.uniform(-0.5, 0.5, size=3))
            faces.append(triangles + 8 * index)
        vertices = np.concatenate(vertices)
        colors = np.append(generator.uniform(0, 1, (len(vertices), 3)), np.ones((len(vertices), 1)), 1)
        return mesh_of(
            vertices, np.concatenate(faces), colors=colors, uv=generator.normal(size=(len(vertices), 2)), **keywords
        )

    return make


@pytest.fixture
def png():
    """A function that encodes pixels as PNG."""

    def encode(pixels) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(pixels, np.uint8)).save(buffer, "PNG")
        return buffer.getvalue()

    return encode


# Row by row from the top: red, green / blue, white.
FOUR_COLORS = [[(255, 0, 0, 255), (0, 255, 0, 255)], [(0, 0, 255, 255), (255, 255, 255, 255)]]


@pytest.fixture
def four_colors():
    """``[16, 16, 4]`` texture: a red and a green square on top, a blue and a white one below."""
    return np.array(FOUR_COLORS, np.uint8).repeat(8, 0).repeat(8, 1)


@pytest.fixture
def gltf():
    """A function that builds a glTF document and its buffer: one primitive in one node, changed at will."""

    def build(positions, indices=None, *, attributes=None, material=None, images=(), node=None, mode=4):
        blob, views, accessors = bytearray(), [], []

        def add(values, kind, width, component, **extra):
            data = np.ascontiguousarray(values, kind).tobytes()
            views.append({"buffer": 0, "byteOffset": len(blob), "byteLength": len(data)})
            accessors.append(
                {
                    "bufferView": len(views) - 1,
                    "componentType": component,
                    "count": len(values),
                    "type": {1: "SCALAR", 2: "VEC2", 3: "VEC3", 4: "VEC4"}[width],
                    **extra,
                }
            )
            blob.extend(data + b"\0" * (-len(data) % 4))
            return len(accessors) - 1

        primitive = {"attributes": {"POSITION": add(positions, "<f4", 3, 5126)}, "mode": mode}
        for name, values in (attributes or {}).items():
            values = np.array(values)
            primitive["attributes"][name] = add(values, "<f4", values.shape[1], 5126)
        if indices is not None:
            primitive["indices"] = add(np.array(indices).reshape(-1), "<u4", 1, 5125)
        document = {
            "asset": {"version": "2.0"},
            "scene": 0,
            "scenes": [{"nodes": [0]}],
            "nodes": [{"mesh": 0, **(node or {})}],
            "meshes": [{"primitives": [primitive]}],
        }
        if material is not None:
            document["materials"], primitive["material"] = [material], 0
        for data in images:
            views.append({"buffer": 0, "byteOffset": len(blob), "byteLength": len(data)})
            document.setdefault("images", []).append({"bufferView": len(views) - 1, "mimeType": "image/png"})
            document.setdefault("textures", []).append({"source": len(document["images"]) - 1})
            blob.extend(data + b"\0" * (-len(data) % 4))
        document["bufferViews"], document["accessors"] = views, accessors
        document["buffers"] = [{"byteLength": len(blob)}]
        return document, bytes(blob)

    return build


@pytest.fixture
def write_glb(tmp_path):
    """A function that writes a document and its buffer as a .glb file."""

    def write(document, blob=b"", name="mesh.glb"):
        text = json.dumps(document).encode()
        text += b" " * (-len(text) % 4)
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        if blob:
            chunks += struct.pack("<I4s", len(blob), b"BIN\0") + blob
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks)
        return path

    return write


QUAD = [(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)]
QUAD_FACES = [(0, 1, 2), (0, 2, 3)]


@pytest.fixture
def textured_quad(gltf, write_glb, png, four_colors):
    """A function that writes a .glb with a square facing the viewer (y up) that shows the texture upright."""

    def write(name="quad.glb", *, node=None, texture=None, **material):
        surface = {"baseColorTexture": {"index": 0}, "metallicFactor": 0}
        uv = [(0, 1), (1, 1), (1, 0), (0, 0)]
        document, blob = gltf(
            QUAD,
            QUAD_FACES,
            attributes={"TEXCOORD_0": uv},
            material={"pbrMetallicRoughness": surface, **material},
            images=[png(four_colors if texture is None else texture)],
            node=node,
        )
        return write_glb(document, blob, name)

    return write
