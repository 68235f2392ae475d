"""Textures that many materials share: decoded once, kept once, and counted together."""

import numpy as np
import pytest

from fusedplanes.datasets import mesh_files
from fusedplanes.datasets.mesh_files import load_mesh

MATERIALS = 20


@pytest.fixture
def write_obj(tmp_path, png, four_colors):
    """A function that writes as many squares as there are materials; each material is the lines given for it."""

    def write(lines):
        corners = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"
        faces = "".join(f"usemtl m{index}\nf 1/1 2/2 3/3 4/4\n" for index in range(len(lines)))
        (tmp_path / "many.obj").write_text(f"mtllib many.mtl\n{corners}{faces}")
        (tmp_path / "many.mtl").write_text(
            "".join(f"newmtl m{index}\nKd 1 1 1\n{line}\n" for index, line in enumerate(lines))
        )
        for name in ("paint.png", *(f"paint{index}.png" for index in range(MATERIALS))):
            (tmp_path / name).write_bytes(png(four_colors))
        return tmp_path / "many.obj"

    return write


def test_an_obj_decodes_a_texture_once_however_often_it_is_named(write_obj, monkeypatch):
    decoded, original = [], mesh_files.decode_texture
    monkeypatch.setattr(mesh_files, "decode_texture", lambda *args: (decoded.append(args[1]), original(*args))[1])
    lines = ["map_Kd paint.png", "map_Kd -s 1 1 1 paint.png"] * (MATERIALS // 2)
    mesh, warnings = load_mesh(write_obj(lines))
    assert decoded == ["paint.png"] and not warnings
    textures = [material.texture for material in mesh.materials if material.texture is not None]
    assert textures and all(texture is textures[0] for texture in textures)


def test_the_textures_of_an_obj_are_counted_together(write_obj, monkeypatch, four_colors):
    pixels = four_colors.shape[0] * four_colors.shape[1]
    monkeypatch.setattr(mesh_files, "ALL_TEXTURES_PIXELS_LIMIT", 3 * pixels)
    mesh, warnings = load_mesh(write_obj([f"map_Kd paint{index}.png" for index in range(MATERIALS)]))
    assert sum(material.texture is not None for material in mesh.materials) == 3
    assert warnings == (f"its textures exceed {3 * pixels} pixels together; a plain colour stands in",)


def test_opaque_materials_of_a_glb_share_one_copy_of_a_transparent_texture(gltf, write_glb, png, four_colors):
    texture = four_colors.copy()
    texture[:8, :8, 3] = 100
    document, blob = gltf(
        [(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)],
        [0, 1, 2, 0, 2, 3],
        attributes={"TEXCOORD_0": [(0, 1), (1, 1), (1, 0), (0, 0)]},
        material={"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}},
        images=[png(texture)],
    )
    material, primitive = document["materials"][0], document["meshes"][0]["primitives"][0]
    document["materials"] = [material] * MATERIALS
    document["meshes"][0]["primitives"] = [{**primitive, "material": index} for index in range(MATERIALS)]
    mesh, _ = load_mesh(write_glb(document, blob))
    assert len(mesh.materials) == MATERIALS
    first = mesh.materials[0].texture
    assert np.all(first[..., 3] == 255) and all(material.texture is first for material in mesh.materials)
