"""Mesh files: every format gives the same upright, coloured object; hostile files give one line."""

import base64
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh

from fusedplanes.cameras import Cameras
from fusedplanes.datasets import asset_folder, gltf_file, mesh_files, mesh_parts, rasterize
from fusedplanes.datasets.mesh_files import load_mesh, texture_name
from fusedplanes.errors import ConfigError, DataError

QUAD = [(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)]
QUAD_FACES = [(0, 1, 2), (0, 2, 3)]
UPRIGHT_UV = [(0, 0), (1, 0), (1, 1), (0, 1)]  # v up
UPRIGHT = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)]  # top left, top right, bottom left, bottom right


def seen_quarters(mesh, position=(0.0, -2.7, 0.0)):
    """Colours in the middles of the four quarters of a square that faces -y, row by row from the top."""
    cameras = Cameras.look_at(torch.tensor([position]).double(), focal=1.0, width=54, height=54)
    image, _ = rasterize.render(mesh, cameras, lighting="unlit", samples=1)
    # The square is 1.8 wide at distance 2.7: 36 pixels.
    return [tuple(np.round(image[0, row, column], 4).tolist()) for row in (18, 36) for column in (18, 36)]


def opaque(colors):
    return [(*color, 1) for color in colors]


def loaded(path, **keywords):
    mesh, warnings = load_mesh(path, **keywords)
    assert warnings == ()
    return mesh


# glTF ---------------------------------------------------------------------------------------------------------------


def test_gltf_is_turned_upright_with_its_texture_the_right_way_up(textured_quad):
    mesh = loaded(textured_quad())
    # y is up in the file and z towards the viewer: z is up here, and the viewer stands at -y.
    assert seen_quarters(mesh) == opaque(UPRIGHT)


def test_world_from_source_leads_from_the_file_to_the_world(gltf, write_glb):
    source = np.array([(1, 10, 5), (4, 10, 5), (1, 12, 6)], np.float64)
    mesh = loaded(write_glb(*gltf(source, [(0, 1, 2)])))
    moved = source @ mesh.world_from_source[:3, :3].T + mesh.world_from_source[:3, 3]
    assert np.allclose(sorted(map(tuple, moved)), sorted(map(tuple, mesh.vertices)))
    assert np.allclose(mesh.vertices.max(0), [0.9, 0.3, 0.6])
    assert np.allclose(mesh.vertices.min(0), [-0.9, -0.3, -0.6])
    # Rows: x stays, y is the file's -z, z the file's y; the longest side, 3, becomes 1.8.
    assert np.allclose(mesh.world_from_source[:3, :3], 0.6 * np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]]))


def test_base_colour_factors_are_linear_light_and_become_srgb(gltf, write_glb):
    factor = {"pbrMetallicRoughness": {"baseColorFactor": [0.5, 0.2158605, 0.0, 0.25]}}
    mesh = loaded(write_glb(*gltf(QUAD, QUAD_FACES, material=factor)))
    assert np.allclose(mesh.materials[0].base_color, [0.735357, 0.501961, 0, 1], atol=1e-5)


def test_a_factor_multiplies_the_texture_and_vertex_colours_too(gltf, write_glb, png, four_colors):
    document, blob = gltf(
        QUAD,
        QUAD_FACES,
        attributes={"TEXCOORD_0": [(0, 1), (1, 1), (1, 0), (0, 0)], "COLOR_0": [(1, 0.2158605, 1)] * 4},
        material={"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}, "baseColorFactor": [1, 1, 0.2158605, 1]}},
        images=[png(four_colors)],
    )
    half = 0.502
    expected = [(1, 0, 0), (0, half, 0), (0, 0, half), (1, half, half)]
    assert np.allclose(seen_quarters(loaded(write_glb(document, blob))), opaque(expected), atol=1e-3)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ({"offset": [0.5, 0]}, [UPRIGHT[1], UPRIGHT[0], UPRIGHT[3], UPRIGHT[2]]),
        ({"scale": [1, -1]}, [UPRIGHT[2], UPRIGHT[3], UPRIGHT[0], UPRIGHT[1]]),
        # Coordinates turned anti-clockwise as seen in the image: the picture appears turned clockwise.
        ({"rotation": np.pi / 2}, [UPRIGHT[2], UPRIGHT[0], UPRIGHT[3], UPRIGHT[1]]),
    ],
)
def test_texture_transforms_move_the_picture(textured_quad, transform, expected):
    info = {"index": 0, "extensions": {"KHR_texture_transform": transform}}
    path = textured_quad(pbrMetallicRoughness={"baseColorTexture": info})
    assert seen_quarters(loaded(path)) == opaque(expected)


def test_alpha_counts_by_the_material_s_mode(textured_quad, four_colors):
    texture = four_colors.copy()
    texture[:8, :8, 3] = 100
    for mode, expected in (
        ({}, [1, 1, 1, 1]),
        ({"alphaMode": "OPAQUE"}, [1, 1, 1, 1]),
        ({"alphaMode": "BLEND"}, [0, 1, 1, 1]),
        ({"alphaMode": "MASK"}, [0, 1, 1, 1]),
        ({"alphaMode": "MASK", "alphaCutoff": 0.3}, [1, 1, 1, 1]),
    ):
        assert [color[3] for color in seen_quarters(loaded(textured_quad(texture=texture, **mode)))] == expected, mode


def test_nodes_move_turn_and_mirror_what_they_hold(textured_quad):
    # A quarter turn about the viewing axis, anti-clockwise.
    turned = textured_quad(node={"rotation": [0, 0, np.sqrt(0.5), np.sqrt(0.5)], "translation": [7, 8, 9]})
    assert seen_quarters(loaded(turned)) == opaque([UPRIGHT[1], UPRIGHT[3], UPRIGHT[0], UPRIGHT[2]])
    matrix = [-2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 5, 5, 5, 1]  # column by column: mirrored in x
    assert seen_quarters(loaded(textured_quad(node={"matrix": matrix}))) == opaque(
        [UPRIGHT[1], UPRIGHT[0], UPRIGHT[3], UPRIGHT[2]]
    )


def test_normals_follow_their_node_also_when_it_squeezes(gltf, write_glb):
    # A slope of 45 degrees squeezed to half its height: its normal gets steeper, not flatter.
    corners = [(0, 0, 0), (1, 1, 0), (0, 0, -1)]
    normal = np.array([-1, 1, 0]) / np.sqrt(2)
    document, blob = gltf(corners, [(0, 1, 2)], attributes={"NORMAL": [normal] * 3}, node={"scale": [1, 0.5, 1]})
    mesh = loaded(write_glb(document, blob))
    assert np.allclose(mesh.corner_normals[0], np.array([-1, 0, 2]) / np.sqrt(5), atol=1e-6)


def test_children_inherit_and_a_scene_chooses_its_nodes(gltf, write_glb):
    document, blob = gltf(QUAD, QUAD_FACES)
    document["nodes"] = [
        {"mesh": 0},
        {"children": [0, 2], "translation": [10, 0, 0]},
        {"mesh": 0, "translation": [0, 0, -4]},
        {"mesh": 0, "translation": [0, 99, 0]},
    ]
    document["scenes"] = [{"nodes": [3]}, {"nodes": [1]}]
    document["scene"] = 1
    mesh = loaded(write_glb(document, blob))
    assert len(mesh.faces) == 4
    # 2 wide, 2 high and 4 deep; the fourth node is not in the scene.
    assert np.allclose(np.ptp(mesh.vertices, axis=0), [0.9, 1.8, 0.9])
    del document["scenes"], document["scene"]
    assert len(loaded(write_glb(document, blob)).faces) == 6


def test_strips_fans_and_missing_indices(gltf, write_glb):
    strip = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
    mesh = loaded(write_glb(*gltf(strip, mode=5)))
    normals = mesh.corner_normals
    assert len(mesh.faces) == 2
    assert np.allclose(normals, normals[0, 0])  # every other triangle of a strip is turned round
    assert len(loaded(write_glb(*gltf(QUAD, mode=6))).faces) == 2
    assert len(loaded(write_glb(*gltf([*QUAD, QUAD[0]], mode=4))).faces) == 1
    with pytest.raises(DataError, match="no faces"):
        load_mesh(write_glb(*gltf(QUAD, mode=0)))


def test_quantised_interleaved_and_sparse_accessors(gltf, write_glb):
    document, _ = gltf(QUAD, QUAD_FACES)
    rows = b"".join(struct.pack("<3hxx", *(32767 * np.array(corner))) for corner in QUAD)
    indices = struct.pack("<6H", *np.ravel(QUAD_FACES))
    moved = struct.pack("<3h", 0, 32767, 0) + struct.pack("<Bx", 2)
    blob = rows + indices + moved
    document["buffers"] = [{"byteLength": len(blob)}]
    document["bufferViews"] = [
        {"buffer": 0, "byteOffset": 0, "byteLength": 32, "byteStride": 8},
        {"buffer": 0, "byteOffset": 32, "byteLength": 12},
        {"buffer": 0, "byteOffset": 44, "byteLength": 6},
        {"buffer": 0, "byteOffset": 50, "byteLength": 1},
    ]
    position = {"bufferView": 0, "componentType": 5122, "normalized": True, "count": 4, "type": "VEC3"}
    position["sparse"] = {
        "count": 1,
        "indices": {"bufferView": 3, "componentType": 5121},
        "values": {"bufferView": 2},
    }
    document["accessors"] = [position, {"bufferView": 1, "componentType": 5123, "count": 6, "type": "SCALAR"}]
    mesh = loaded(write_glb(document, blob))
    # The third corner went from (1, 1) to the middle of the upper edge.
    found = {tuple(np.round(point / 0.9, 3) + 0.0) for point in mesh.vertices}
    assert found == {(-1, 0, -1), (1, 0, -1), (0, 0, 1), (-1, 0, 1)}


def test_gltf_with_a_buffer_and_texture_beside_it(tmp_path, gltf, png, four_colors):
    document, blob = gltf(
        QUAD,
        QUAD_FACES,
        attributes={"TEXCOORD_0": [(0, 1), (1, 1), (1, 0), (0, 0)]},
        material={"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}},
        images=[b""],
    )
    (tmp_path / "texture files").mkdir()
    (tmp_path / "texture files" / "a b.png").write_bytes(png(four_colors))
    (tmp_path / "mesh.bin").write_bytes(blob)
    document["images"] = [{"uri": "texture%20files/a%20b.png"}]
    document["buffers"][0]["uri"] = "mesh.bin"
    (tmp_path / "mesh.gltf").write_text(json.dumps(document))
    assert seen_quarters(loaded(tmp_path / "mesh.gltf")) == opaque(UPRIGHT)
    document["buffers"][0]["uri"] = "data:application/octet-stream;base64," + base64.b64encode(blob).decode()
    document["images"] = [{"uri": "data:image/png;base64," + base64.b64encode(png(four_colors)).decode()}]
    (tmp_path / "mesh.gltf").write_text(json.dumps(document))
    assert seen_quarters(loaded(tmp_path / "mesh.gltf")) == opaque(UPRIGHT)


@pytest.mark.parametrize(
    "reference",
    [
        "missing.png",
        "../secret.png",
        "/etc/hostname",
        "http://example.invalid/a.png",
        "link.png",
        "..%2Fsecret.png",
        "~",
    ],
)
def test_a_texture_that_is_missing_or_elsewhere_is_a_warning_and_the_base_colour(
    tmp_path, gltf, write_glb, png, four_colors, reference
):
    (tmp_path / "secret.png").write_bytes(png(four_colors))
    document, blob = gltf(
        QUAD,
        QUAD_FACES,
        attributes={"TEXCOORD_0": UPRIGHT_UV},
        material={"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}, "baseColorFactor": [0, 1, 0, 1]}},
        images=[b""],
    )
    document["images"] = [{"uri": reference}]
    path = write_glb(document, blob, "asset/mesh.glb")
    (tmp_path / "asset" / "link.png").symlink_to(tmp_path / "secret.png")
    mesh, warnings = load_mesh(path)
    assert seen_quarters(mesh) == opaque([(0, 1, 0)] * 4)
    assert len(warnings) == 1
    assert "base colour stands in" in warnings[0]
    assert "\n" not in warnings[0]


def test_a_collection_may_widen_the_folder_that_references_stay_in(tmp_path, write_glb, gltf, png, four_colors):
    document, blob = gltf(
        QUAD,
        QUAD_FACES,
        attributes={"TEXCOORD_0": [(0, 1), (1, 1), (1, 0), (0, 0)]},
        material={"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}},
        images=[b""],
    )
    document["images"] = [{"uri": "../images/t.png"}]
    path = write_glb(document, blob, "object/models/mesh.glb")
    (tmp_path / "object/images").mkdir()
    (tmp_path / "object/images/t.png").write_bytes(png(four_colors))
    assert seen_quarters(loaded(path, asset_folder=tmp_path / "object")) == opaque(UPRIGHT)
    assert len(load_mesh(path)[1]) == 1


def test_a_buffer_elsewhere_is_an_error(tmp_path, gltf, write_glb):
    document, blob = gltf(QUAD, QUAD_FACES)
    (tmp_path / "data.bin").write_bytes(blob)
    document["buffers"][0]["uri"] = "../data.bin"
    with pytest.raises(DataError, match=r"leads out of the mesh's folder"):
        load_mesh(write_glb(document, name="asset/mesh.glb"))


def test_primitives_are_counted_also_where_they_show_no_face(gltf, write_glb, monkeypatch):
    document, blob = gltf(QUAD, QUAD_FACES)
    points = {**document["meshes"][0]["primitives"][0], "mode": 0}
    document["meshes"][0]["primitives"] += [points] * 3000
    document["nodes"] = [{"mesh": 0}] * 3000
    document["scenes"][0]["nodes"] = list(range(3000))
    monkeypatch.setattr(gltf_file._Reader, "_part", lambda *arguments: None)
    with pytest.raises(DataError, match=r"mesh\.glb: its nodes hold more than 100000 primitives; join them on export"):
        load_mesh(write_glb(document, blob))


def primitive_of(document):
    return document["meshes"][0]["primitives"][0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.update(extensionsRequired=["KHR_draco_mesh_compression"]), "Draco"),
        (lambda d: d.update(extensionsRequired=["EXT_meshopt_compression"]), "meshopt"),
        (lambda d: d.update(extensionsRequired=["ACME_shape"]), "ACME_shape"),
        (lambda d: d.update(asset={"version": "1.0"}), "version '1.0'"),
        (lambda d: d.update(asset={}), "version ''"),
        (lambda d: d["nodes"][0].update(children=[0]), "reached twice"),
        (
            lambda d: d["nodes"].extend([{"children": [0]}, {"children": [0]}]) or d.update(scenes=[{"nodes": [1, 2]}]),
            "reached twice",
        ),
        (lambda d: d["scenes"][0].update(nodes=[5]), "does not exist"),
        (lambda d: d["accessors"][0].update(count=10**12), "more than 15000000 vertices"),
        (lambda d: d["accessors"][1].update(count=10**12), "claims 1000000000000 entries"),
        (lambda d: d["accessors"][0].update(count=5), "does not fit into bufferView"),
        (lambda d: d["accessors"][0].update(count=-1), "claims -1"),
        (lambda d: d["accessors"][0].update(type="VEC2"), "VEC2"),
        (lambda d: d["accessors"][0].update(componentType=1), "not valid glTF"),
        (lambda d: d["accessors"][1].update(componentType=5126), "not unsigned integers"),
        (lambda d: d["bufferViews"][0].update(byteOffset=-4), "reaches to byte"),
        (lambda d: d["bufferViews"][0].update(byteLength=10**9), "reaches to byte"),
        (lambda d: d["bufferViews"][0].update(byteStride=1), "does not fit"),
        (lambda d: d["buffers"].clear(), "entry 0 of buffers does not exist; there are 0"),
        (lambda d: d["nodes"][0].update(mesh=-1), "not valid glTF: entry -1 of meshes does not exist; there are 1"),
        (lambda d: d["nodes"][0].update(mesh=True), "entry True of meshes"),
        (lambda d: d["nodes"][0].update(mesh=0.0), "entry 0.0 of meshes"),
        (lambda d: d["nodes"][0].update(mesh=None), "entry None of meshes"),
        (lambda d: d["nodes"][0].update(children=[-1]), "entry -1 of nodes"),
        (lambda d: d.update(scene=-1), "entry -1 of scenes"),
        (lambda d: d["scenes"][0].update(nodes=[-1]), "entry -1 of nodes"),
        (lambda d: primitive_of(d)["attributes"].update(POSITION=-2), "entry -2 of accessors"),
        (lambda d: primitive_of(d)["attributes"].update(NORMAL=-2), "entry -2 of accessors"),
        (lambda d: primitive_of(d).update(indices=-1), "entry -1 of accessors"),
        (lambda d: primitive_of(d).update(material=-1) or d.update(materials=[{}]), "entry -1 of materials"),
        (lambda d: d["accessors"][0].update(bufferView=-2), "entry -2 of bufferViews"),
        (lambda d: d["bufferViews"][0].update(buffer=-1), "entry -1 of buffers"),
        (lambda d: d["nodes"].__setitem__(0, "node"), "entry 0 of nodes is no object"),
        (lambda d: d.update(meshes={"0": d["meshes"][0]}), "its meshes are no list"),
        (lambda d: d["meshes"][0].update(primitives=[]), "no faces"),
        (lambda d: d["meshes"].clear(), "not valid glTF"),
        (lambda d: d.update(nodes="many"), "not valid glTF"),
        (lambda d: d["nodes"][0].update(scale=[0, 0, 0]), "degenerate"),
        (lambda d: d["nodes"][0].update(scale=[1e300, 1e300, 1e300]), "rescale|degenerate"),
        (lambda d: d["nodes"][0].update(scale=[float("nan"), 1, 1]), "degenerate"),
        (lambda d: d["nodes"][0].update(matrix=[1, 2, 3]), "not valid glTF"),
    ],
)
def test_a_damaged_gltf_is_one_line_that_names_the_file(gltf, write_glb, damage, message):
    document, blob = gltf(QUAD, QUAD_FACES)
    damage(document)
    path = write_glb(document, blob)
    with pytest.raises(DataError, match=message) as error:
        load_mesh(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("index", [-1, 7])
@pytest.mark.parametrize("kind", ["textures", "images", "bufferViews"])
def test_a_texture_reference_to_nowhere_is_refused(gltf, write_glb, png, four_colors, kind, index):
    document, blob = gltf(
        QUAD,
        QUAD_FACES,
        attributes={"TEXCOORD_0": [(0, 1), (1, 1), (1, 0), (0, 0)]},
        material={"pbrMetallicRoughness": {"baseColorTexture": {"index": index if kind == "textures" else 0}}},
        images=[png(four_colors)],
    )
    if kind == "images":
        document["textures"][0]["source"] = index
    if kind == "bufferViews":
        document["images"][0]["bufferView"] = index
    with pytest.raises(DataError, match=rf"mesh\.glb: .*entry {index} of {kind} does not exist"):
        load_mesh(write_glb(document, blob, name="mesh.glb"))


def test_a_face_that_names_a_missing_vertex(gltf, write_glb):
    with pytest.raises(DataError, match="vertex 4 of 4"):
        load_mesh(write_glb(*gltf(QUAD, [(0, 1, 4)])))


def test_a_primitive_that_only_draco_describes(gltf, write_glb):
    document, blob = gltf(QUAD, QUAD_FACES)
    del document["accessors"][0]["bufferView"]
    document["meshes"][0]["primitives"][0]["extensions"] = {"KHR_draco_mesh_compression": {"bufferView": 0}}
    with pytest.raises(DataError, match="Draco"):
        load_mesh(write_glb(document, blob))


def test_a_small_file_cannot_ask_for_much_memory(gltf, write_glb, monkeypatch):
    monkeypatch.setattr(gltf_file, "FACES_LIMIT", 100)
    document, blob = gltf(QUAD, QUAD_FACES)
    document["meshes"][0]["primitives"] *= 60
    with pytest.raises(DataError, match="more than 100 faces"):
        load_mesh(write_glb(document, blob))
    document, blob = gltf(QUAD, [(0, 1, 2)])
    document["meshes"][0]["primitives"] *= 90
    with pytest.raises(DataError, match="more than 300 vertices"):
        load_mesh(write_glb(document, blob))


def test_any_prefix_and_any_changed_byte_of_a_glb_is_read_or_refused(textured_quad, tmp_path):
    data = textured_quad().read_bytes()
    path = tmp_path / "damaged.glb"
    generator = np.random.default_rng(0)
    for length in range(0, len(data), 37):
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match=r"damaged\.glb: "):
            load_mesh(path)
    refused = 0
    for _ in range(300):
        changed = bytearray(data)
        for position in generator.integers(12, len(data), generator.integers(1, 4)):
            changed[position] = generator.integers(0, 256)
        path.write_bytes(changed)
        try:
            load_mesh(path)
        except DataError as error:
            assert "\n" not in str(error)
            refused += 1
    assert 50 < refused < 300


# OBJ ----------------------------------------------------------------------------------------------------------------

OBJ = """mtllib quad.mtl
v -1 -1 0
v 1 -1 0
v 1 1 0
v -1 1 0
vt 0 0
vt 1 0
vt 1 1
vt 0 1
usemtl paint
f 1/1 2/2 3/3 4/4
"""


@pytest.fixture
def write_obj(tmp_path, png, four_colors):
    def write(text=OBJ, mtl="newmtl paint\nKd 1 1 1\nmap_Kd -s 1 1 1 my paint.png\n", texture=True):
        if mtl is not None:
            (tmp_path / "quad.mtl").write_text(mtl)
        if texture:
            (tmp_path / "my paint.png").write_bytes(png(four_colors))
        path = tmp_path / "quad.obj"
        path.write_text(text)
        return path

    return write


def test_obj_with_a_texture_is_upright(write_obj):
    mesh = loaded(write_obj())
    assert len(mesh.faces) == 2
    assert seen_quarters(mesh) == opaque(UPRIGHT)


def test_obj_up_axis_is_y_unless_it_is_said_to_be_z(write_obj):
    path = write_obj(OBJ.replace("v -1 1 0", "v -1 1 0.5").replace("v 1 1 0\n", "v 1 1 0.5\n"))
    assert np.ptp(loaded(path).vertices, axis=0) == pytest.approx([1.8, 0.45, 1.8])
    assert np.ptp(loaded(path, up="y").vertices, axis=0) == pytest.approx([1.8, 0.45, 1.8])
    assert np.ptp(loaded(path, up="z").vertices, axis=0) == pytest.approx([1.8, 1.8, 0.45])
    with pytest.raises(ConfigError, match="up 'x'"):
        load_mesh(path, up="x")


def test_obj_kd_multiplies_map_kd_but_black_means_the_texture_alone(write_obj):
    half = [tuple(np.round(np.array(color) * 0.5, 4)) for color in UPRIGHT]
    assert seen_quarters(loaded(write_obj(mtl="newmtl paint\nKd .5 .5 .5\nmap_Kd my paint.png\n"))) == opaque(half)
    assert seen_quarters(loaded(write_obj(mtl="newmtl paint\nKd 0 0 0\nmap_Kd my paint.png\n"))) == opaque(UPRIGHT)


def test_obj_plain_materials_opacity_and_none(write_obj):
    plain = "newmtl paint\nKd 0.2 0.4 0.6\n"
    assert np.allclose(loaded(write_obj(mtl=plain)).materials[0].base_color, [0.2, 0.4, 0.6, 1])
    for line, alpha in (("d 0.3", 0.3), ("Tr 0.3", 0.7), ("Tr 1", 1.0), ("d oops", 1.0), ("d 0.3\nTr 0.7", 0.3)):
        mesh = loaded(write_obj(mtl=f"{plain}{line}\n"))
        assert mesh.materials[0].base_color[3] == pytest.approx(alpha), line
    no_material = OBJ.replace("mtllib quad.mtl\n", "").replace("usemtl paint\n", "")
    mesh = loaded(write_obj(no_material))
    assert np.array_equal(mesh.materials[0].base_color, mesh_parts.PLAIN_GREY)


def test_obj_textures_reach_no_decoder_but_ours(write_obj, tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    opened = []
    monkeypatch.setattr(EpsImagePlugin.EpsImageFile, "_open", lambda image: opened.append(image))
    drawing = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n%%EOF\n"
    for name in ("drawing.png", "drawing.mtl"):
        (tmp_path / name).write_bytes(drawing)
        mesh, warnings = load_mesh(write_obj(mtl=f"newmtl paint\nKd 0 1 0\nmap_Kd {name}\n"))
        assert seen_quarters(mesh) == opaque([(0, 1, 0)] * 4)
        assert warnings == (
            f"texture {name}: cannot be decoded (not in a known format); convert it to PNG or JPEG; "
            "a plain colour stands in",
        )
    assert not opened


def test_obj_missing_texture_or_library_is_a_warning(write_obj):
    mesh, warnings = load_mesh(write_obj(mtl="newmtl paint\nKd 0 1 0\nmap_Kd gone.png\n"))
    assert seen_quarters(mesh) == opaque([(0, 1, 0)] * 4)
    assert warnings == ("gone.png: no such file; a plain colour stands in",)
    mesh, warnings = load_mesh(write_obj(OBJ.replace("quad.mtl", "gone.mtl")))
    assert warnings == ("gone.mtl: no such file; a plain colour stands in",)
    mesh, warnings = load_mesh(write_obj(mtl="newmtl paint\nKd 0 1 0\nmap_Kd quad.obj\n"))
    assert seen_quarters(mesh) == opaque([(0, 1, 0)] * 4)
    assert len(warnings) == 1
    assert "cannot be decoded" in warnings[0]


@pytest.mark.parametrize("reference", ["../secret.png", "/etc/hostname", "C:\\secret.png", "file:///etc/hostname"])
def test_obj_references_stay_in_the_folder(tmp_path, write_obj, png, four_colors, reference):
    (tmp_path.parent / "secret.png").write_bytes(png(four_colors))
    mesh, warnings = load_mesh(write_obj(mtl=f"newmtl paint\nKd 0 1 0\nmap_Kd {reference}\n"))
    assert seen_quarters(mesh) == opaque([(0, 1, 0)] * 4)
    assert len(warnings) == 1


def test_obj_vertex_colours_polygons_and_negative_indices(write_obj):
    text = "v 0 0 0 1 0 0\nv 1 0 0 1 0 0\nv 1 1 0 1 0 0\nv 0.5 1.5 0 1 0 0\nv 0 1 0 1 0 0\n"
    mesh = loaded(write_obj(text + "f 1 2 3 4 5\n"))
    assert len(mesh.faces) == 3
    assert np.allclose(mesh.corner_colors, [1, 0, 0, 1])
    assert np.array_equal(mesh.materials[0].base_color, [1, 1, 1, 1])
    relative = loaded(write_obj(text + "f -5 -4 -3\nf -5 -3 -1\n"))
    assert len(relative.faces) == 2


def test_obj_normals_are_kept(write_obj):
    text = OBJ.replace("f 1/1 2/2 3/3 4/4", "vn 0 0.6 0.8\nf 1/1/1 2/2/1 3/3/1 4/4/1")
    assert np.allclose(loaded(write_obj(text)).corner_normals, [0, -0.8, 0.6], atol=1e-6)


def test_texture_lines_with_options():
    assert texture_name("paint.png") == "paint.png"
    assert texture_name("-o 0.5 paint.png") == "paint.png"
    assert texture_name("-mm 0 1 -blendu off my paint.png") == "my paint.png"
    assert texture_name("-clamp on -s 1 1 1 -bm 1 paint.png") == "paint.png"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("v 0 0 0\nv 1 0 0\n", "no faces"),
        ("v 0 0 0\nv 1 0 0\nv 2 0 0\nf 1 2 3\n", "degenerate"),
        ("v nan 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "degenerate|damaged"),
        ("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "damaged|vertex"),
        ("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 99999999999\n", "damaged|vertex"),
        ("v 0 0 0\nv 1 0 0\nv 0 1 0\nf a b c\n", "damaged|no faces"),
        ("hello world", "no faces|damaged"),
    ],
)
def test_a_damaged_obj_is_one_line(write_obj, text, message):
    with pytest.raises(DataError, match=message) as error:
        load_mesh(write_obj(text))
    assert "\n" not in str(error.value)


# PLY ----------------------------------------------------------------------------------------------------------------


def ply(order, vertices, faces, *, vertex_properties="", face_properties="", texture=None):
    """A PLY file whose vertices are rows of floats and whose faces are lists with trailing floats."""
    name = {"ascii": "ascii", "<": "binary_little_endian", ">": "binary_big_endian"}[order]
    header = f"ply\nformat {name} 1.0\n" + (f"comment TextureFile {texture}\n" if texture else "")
    header += (
        f"element vertex {len(vertices)}\nproperty float x\nproperty float y\nproperty float z\n{vertex_properties}"
    )
    header += f"element face {len(faces)}\nproperty list uchar int vertex_indices\n{face_properties}end_header\n"
    if order == "ascii":
        rows = [" ".join(map(str, row)) for row in vertices]
        rows += [" ".join(map(str, (len(face), *face, *rest))) for face, rest in faces]
        return header.encode() + "\n".join(rows).encode() + b"\n"
    body = b"".join(struct.pack(f"{order}{len(row)}f", *row) for row in vertices)
    for face, rest in faces:
        body += struct.pack(f"{order}B{len(face)}i", len(face), *face)
        if rest and "list" in face_properties:
            body += struct.pack(f"{order}B{len(rest) - 1}f", rest[0], *rest[1:])
        elif rest:
            body += struct.pack(f"{order}{len(rest)}B", *rest)
    return header.encode() + body


@pytest.mark.parametrize("order", ["ascii", "<", ">"])
def test_ply_with_triangles_and_quads_mixed(tmp_path, order):
    path = tmp_path / "mesh.ply"
    corners = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0.5, 0.5, 2)]
    path.write_bytes(ply(order, corners, [((0, 1, 2, 3), ()), ((0, 1, 4), ()), ((1, 2, 4), ())]))
    mesh = loaded(path)
    assert len(mesh.faces) == 4
    # z is up in a PLY file unless said otherwise.
    assert np.ptp(mesh.vertices, axis=0) == pytest.approx([0.9, 0.9, 1.8])
    assert np.ptp(loaded(path, up="y").vertices, axis=0) == pytest.approx([0.9, 1.8, 0.9])


@pytest.mark.parametrize("order", ["ascii", "<", ">"])
def test_ply_colours_of_vertices_and_faces(tmp_path, order):
    path = tmp_path / "mesh.ply"
    colors = "property float red\nproperty float green\nproperty float blue\n"
    rows = [(*corner, 1, 0.5, 0) for corner in QUAD]
    path.write_bytes(ply(order, rows, [((0, 1, 2), ())], vertex_properties=colors))
    assert np.allclose(loaded(path).corner_colors, [1, 0.5, 0, 1])
    bytes_ = colors.replace("float", "uchar")
    faces = [((0, 1, 2), (255, 0, 0)), ((0, 2, 3), (0, 0, 51))]
    path.write_bytes(ply(order, QUAD, faces, face_properties=bytes_))
    mesh = loaded(path)
    assert np.allclose(mesh.corner_colors[0], [1, 0, 0, 1])
    assert np.allclose(mesh.corner_colors[1], [0, 0, 0.2, 1])
    path.write_bytes(ply(order, QUAD, [((0, 1, 2), ())]))
    assert np.array_equal(loaded(path).materials[0].base_color, mesh_parts.PLAIN_GREY)


@pytest.mark.parametrize("order", ["ascii", "<"])
def test_ply_textures_by_vertex_and_by_corner(tmp_path, png, four_colors, order):
    path = tmp_path / "mesh.ply"
    (tmp_path / "paint.png").write_bytes(png(four_colors))
    wall = [(-1, 0, -1), (1, 0, -1), (1, 0, 1), (-1, 0, 1)]
    rows = [(*corner, *uv) for corner, uv in zip(wall, UPRIGHT_UV)]
    by_vertex = "property float s\nproperty float t\n"
    path.write_bytes(ply(order, rows, [((0, 1, 2, 3), ())], vertex_properties=by_vertex, texture="paint.png"))
    assert seen_quarters(loaded(path)) == opaque(UPRIGHT)
    wedges = (8, *np.ravel(UPRIGHT_UV).tolist())
    by_corner = "property list uchar float texcoord\n"
    path.write_bytes(ply(order, wall, [((0, 1, 2, 3), wedges)], face_properties=by_corner, texture="paint.png"))
    assert seen_quarters(loaded(path)) == opaque(UPRIGHT)
    path.write_bytes(ply(order, wall, [((0, 1, 2, 3), wedges)], face_properties=by_corner, texture="../paint.png"))
    assert len(load_mesh(path)[1]) == 1


EXTRA_PLY = """ply
format ascii 1.0
element vertex 1
property float x
property float y
property float z
{}element face 1
property list uchar int vertex_indices
end_header
0 0 0{}
3 0 0 0
"""
"""A vertex with more properties, to be filled in with their values."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "no PLY file"),
        (b"ply\nformat ascii 1.0\n", "no PLY file"),
        (b"ply\nformat binary_middle_endian 1.0\nelement vertex 1\nend_header\n", "no format"),
        (b"ply\nformat ascii 1.0\nelement vertex 99999999999999999999\nproperty float x\nend_header\n", "claims"),
        (b"ply\nformat ascii 1.0\nelement vertex 3\nproperty quad x\nend_header\n", "property that is not read"),
        (b"ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nend_header\n1\n", "cut off"),
        (b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\nabc\n", "not numbers"),
        (
            b"ply\nformat ascii 1.0\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n-3 1\n",
            "damaged",
        ),
        (
            b"ply\nformat ascii 1.0\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n3 1\n",
            "cut off",
        ),
        (ply("ascii", QUAD, [((0, 1, 7), ())]), "vertex 7 of 4"),
        (ply("<", QUAD, [((0, 1, -2), ())]), "vertex -2 of 4"),
        (ply("<", QUAD, [((0, 1), ())]), "no faces"),
        (EXTRA_PLY.format("property float nx\n", " 0"), "its property ny is missing; expected .* nx, ny, nz"),
        (EXTRA_PLY.format("property list uchar float nx\n", " 1 0"), "its property nx is a list"),
        (EXTRA_PLY.format("property list uchar float s\nproperty float t\n", " 1 0 0"), "its property s is a list"),
        (EXTRA_PLY.format("property list uchar float x\n", " 1 0"), "its property x is a list"),
        (ply("<", QUAD, []), "no faces"),
        (ply("ascii", [(0, 0, 0), (1, 0, 0), (2, 0, 0)], [((0, 1, 2), ())]), "degenerate"),
    ],
)
def test_a_damaged_ply_is_one_line(tmp_path, data, message):
    path = tmp_path / "mesh.ply"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(DataError, match=message) as error:
        load_mesh(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("order", ["ascii", "<"])
def test_any_prefix_and_any_changed_byte_of_a_ply_is_read_or_refused(tmp_path, order):
    colors = "property uchar red\nproperty uchar green\nproperty uchar blue\n"
    data = ply(order, QUAD, [((0, 1, 2, 3), (9, 9, 9)), ((0, 1, 2), (9, 9, 9))], face_properties=colors)
    path = tmp_path / "damaged.ply"
    for length in range(0, len(data) - 2, 3):
        path.write_bytes(data[:length])
        with pytest.raises(DataError):
            load_mesh(path)
    generator = np.random.default_rng(0)
    outcomes = []
    for _ in range(300):
        changed = bytearray(data)
        changed[generator.integers(0, len(data))] = generator.integers(0, 256)
        path.write_bytes(changed)
        try:
            load_mesh(path)
            outcomes.append(True)
        except DataError:
            outcomes.append(False)
    assert 20 < sum(outcomes) < 280


# STL ----------------------------------------------------------------------------------------------------------------


def test_stl_binary_and_ascii(tmp_path):
    corners = np.array([(0, 0, 0), (1, 0, 0), (0, 0, 2)], np.float32)
    binary = b"\0" * 80 + struct.pack("<I", 1) + struct.pack("<12fH", 0, -1, 0, *corners.ravel(), 0)
    path = tmp_path / "mesh.stl"
    path.write_bytes(binary)
    mesh = loaded(path)
    assert np.ptp(mesh.vertices, axis=0) == pytest.approx([0.9, 0, 1.8])
    assert np.allclose(mesh.corner_normals, [0, -1, 0])
    text = "solid a\nfacet normal 0 -1 0\nouter loop\n"
    text += "".join("vertex {} {} {}\n".format(*corner) for corner in corners)
    text += "endloop\nendfacet\nendsolid a\n"
    path.write_text(text)
    assert np.allclose(loaded(path).vertices, mesh.vertices)
    path.write_text(text + text.replace("solid a", "solid b"))
    assert len(loaded(path).faces) == 2
    for damaged in (binary[:-3], b"solid a\nendsolid", binary[:84], b"\0" * 80 + b"\xff\xff\xff\xff"):
        path.write_bytes(damaged)
        with pytest.raises(DataError):
            load_mesh(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"\xff" * 200,
            "neither binary nor ASCII STL: its header claims 4294967295 faces, which take 214748364834 bytes",
        ),
        (b"solid \xe9" + b"\0" * 73 + struct.pack("<I", 2) + b"\xe9" * 50, "claims 2 faces, .* but there are 134"),
        (b"\xe9" * 20, "neither binary nor ASCII STL: 20 bytes"),
        (b"solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 \xe9", "endsolid is missing"),
        (b"<html>not found</html>", "neither binary nor ASCII STL"),
    ],
)
def test_what_is_no_stl_is_said_of_the_file(tmp_path, data, message):
    path = tmp_path / "mesh.stl"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"mesh\.stl: .*{message}") as error:
        load_mesh(path)
    assert "\n" not in str(error.value) and "Module" not in str(error.value)


def test_text_in_another_encoding_is_read(tmp_path, write_obj):
    path = tmp_path / "mesh.stl"
    corners = "vertex 0 0 0\nvertex 1 0 0\nvertex 0 0 2\n"
    path.write_bytes(f"solid caf\xe9\nfacet normal 0 -1 0\n{corners}endfacet\nendsolid\n".encode("latin-1"))
    assert len(loaded(path).faces) == 1
    write_obj()
    for name in ("quad.obj", "quad.mtl"):
        (tmp_path / name).write_bytes(b"# caf\xe9\n" + (tmp_path / name).read_bytes())
    assert seen_quarters(loaded(tmp_path / "quad.obj")) == opaque(UPRIGHT)


def test_nothing_is_written_beside_a_mesh(tmp_path):
    references = mesh_files._References(asset_folder.AssetFolder(tmp_path / "mesh.obj", None))
    with pytest.raises(DataError, match="only read"):
        references.write("mesh.mtl", b"")


# Any format ---------------------------------------------------------------------------------------------------------


def test_files_that_are_no_mesh(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_mesh(tmp_path / "gone.glb")
    (tmp_path / "mesh.fbx").write_bytes(b"x")
    with pytest.raises(DataError, match=r"'.fbx' is no mesh format"):
        load_mesh(tmp_path / "mesh.fbx")
    (tmp_path / "folder.glb").mkdir()
    with pytest.raises(DataError, match="no such file"):
        load_mesh(tmp_path / "folder.glb")


def test_files_and_textures_above_the_limits(textured_quad, monkeypatch):
    path = textured_quad()
    monkeypatch.setattr(asset_folder, "TEXTURE_PIXELS_LIMIT", 100)
    mesh, warnings = load_mesh(path)
    assert mesh.materials[0].texture is None
    assert "16x16 pixels exceed the limit of 100" in warnings[0]
    monkeypatch.setattr(asset_folder.read_capped, "__kwdefaults__", {"limit": 50})
    with pytest.raises(DataError, match="exceed the limit"):
        load_mesh(path)


def test_large_textures_are_reduced(textured_quad, four_colors, monkeypatch):
    monkeypatch.setattr(asset_folder, "TEXTURE_SIDE_KEPT", 8)
    mesh = loaded(textured_quad())
    assert mesh.materials[0].texture.shape == (8, 8, 4)
    assert seen_quarters(mesh) == opaque(UPRIGHT)


def test_textures_of_every_pixel_format(tmp_path):
    from PIL import Image

    grey = np.tile(np.array([0, 128, 255], np.uint8), (2, 1))
    for mode, expected in (("L", 128), ("1", 255), ("P", 128), ("LA", 128), ("CMYK", 128), ("I;16", 128)):
        if mode == "I;16":
            image = Image.fromarray(grey.astype(np.uint16) * 257)
        else:
            image = Image.fromarray(grey).convert(mode, dither=Image.Dither.NONE)
        path = tmp_path / ("t.jpg" if mode == "CMYK" else "t.png")
        image.save(path, quality=100)
        decoded = asset_folder.decode_texture(path.read_bytes(), "t")
        assert decoded.shape == (2, 3, 4)
        assert decoded.dtype == np.uint8
        assert np.abs(decoded[0, :, :3].astype(int) - np.array([[0], [expected], [255]])).max() <= 3, mode
        assert (decoded[..., 3] == 255).all()


def test_degenerate_faces_are_dropped_and_the_box_is_that_of_the_rest(gltf, write_glb):
    corners = [*QUAD, (100, 100, 100), (100, 100, 100), (np.nan, 0, 0)]
    mesh = loaded(write_glb(*gltf(corners, [*QUAD_FACES, (4, 5, 4), (0, 1, 6)])))
    assert len(mesh.faces) == 2
    assert len(mesh.vertices) == 4
    assert np.abs(mesh.vertices).max() == pytest.approx(0.9)


@pytest.mark.parametrize(("bend", "smooth"), [(30, True), (50, False)])
def test_missing_normals_are_smooth_across_gentle_edges_only(gltf, write_glb, bend, smooth):
    angle = np.radians(bend)
    corners = [
        (-1, 0, 0),
        (0, 0, 0),
        (0, 0, 1),
        (-1, 0, 1),
        (np.cos(angle), -np.sin(angle), 0),
        (np.cos(angle), -np.sin(angle), 1),
    ]
    mesh = loaded(write_glb(*gltf(corners, [(0, 2, 1), (0, 3, 2), (1, 2, 5), (1, 5, 4)])))
    at_edge = np.abs(mesh.vertices[mesh.faces] - mesh.vertices[mesh.faces][0, 1]).sum(-1) < 1e-9
    normals = mesh.corner_normals[at_edge]
    assert len(normals) == 3
    spread = np.degrees(np.arccos(np.clip(normals @ normals.T, -1, 1))).max()
    assert spread == pytest.approx(0 if smooth else bend, abs=0.1)


def test_nonsense_normals_are_computed_instead(gltf, write_glb):
    normals = [(0, 0, 0), (np.nan, 0, 0), (np.inf, 0, 0), (0, 0, 0)]
    mesh = loaded(write_glb(*gltf(QUAD, QUAD_FACES, attributes={"NORMAL": normals})))
    assert np.allclose(mesh.corner_normals, [0, -1, 0])


def test_a_great_fan_is_drawn_without_great_cost(gltf, write_glb):
    count = 20_000
    angle = np.linspace(0, 2 * np.pi, count + 1)
    rim = np.stack([np.cos(angle), np.sin(angle), np.zeros(count + 1)], -1)
    faces = np.stack([np.zeros(count, int), np.arange(1, count + 1), np.arange(2, count + 2)], -1)
    mesh = loaded(write_glb(*gltf([(0, 0, 1), *rim], faces)))
    assert np.allclose(np.linalg.norm(mesh.corner_normals, axis=-1), 1, atol=1e-5)


REFUSED = {
    "corrupted_json_popsicle.gltf": "its JSON is damaged",
    "draco_heart.glb": "Draco",
    "git_lfs_pointer_point_cloud.ply": "no PLY file",
    "ply_ascii_without_colour_opacity_scale.ply": "no faces",
    "guitar.compressed.ply": "no vertices with x, y and z",
}


def test_odd_real_files_are_read_or_refused_in_one_line(odd_mesh, recwarn):
    expected = REFUSED.get(odd_mesh.name, "no faces" if odd_mesh.suffix == ".ply" else None)
    if expected is None:
        mesh, warnings = load_mesh(odd_mesh)
        assert np.ptp(mesh.vertices, axis=0).max() == pytest.approx(1.8)
        assert len(warnings) == ("missing" in odd_mesh.name)
    else:
        with pytest.raises(DataError, match=expected) as error:
            load_mesh(odd_mesh)
        assert "\n" not in str(error.value)
    assert len(recwarn) == 0


# Real cars ----------------------------------------------------------------------------------------------------------


def test_real_cars_stand_upright_with_the_colours_another_reader_finds(real_cars):
    """Bounds and the colours at face centres, against trimesh's own reader of the same files."""
    compared = 0
    for path in real_cars:
        mesh = loaded(path)
        scene = trimesh.load_scene(path, process=False)
        low, high = scene.bounds
        extent = (high - low)[[0, 2, 1]]
        assert np.allclose(np.ptp(mesh.vertices, axis=0), 1.8 * extent / extent.max(), atol=1e-5), path
        # Wheels are below: the widest quarter of a car's faces is not its top.
        heights = mesh.vertices[mesh.faces].mean(1)[:, 2]
        assert np.median(heights) < 0.25 * mesh.vertices[:, 2].max(), path

        expected = {}
        for part in scene.dump():
            if getattr(part.visual.material, "baseColorTexture", None) is None:
                continue
            centers = part.triangles_center @ mesh.world_from_source[:3, :3].T + mesh.world_from_source[:3, 3]
            colors = part.visual.material.to_color(part.visual.uv[part.faces].mean(1))
            for center, color in zip(centers, colors):
                expected[tuple(np.round(center, 3))] = color[:3]
        # Looked at from just before each face, its centre shows the texel that trimesh names.
        corners = mesh.vertices[mesh.faces]
        for face in range(0, len(corners), 40):
            color = expected.get(tuple(np.round(corners[face].mean(0), 3)))
            if color is None or np.linalg.norm(corners[face, 1] - corners[face, 0]) < 0.05:
                continue
            alone = replace(
                mesh,
                faces=mesh.faces[face : face + 1],
                corner_normals=mesh.corner_normals[face : face + 1],
                corner_uv=mesh.corner_uv[face : face + 1],
                corner_colors=mesh.corner_colors[face : face + 1],
                face_material=mesh.face_material[face : face + 1],
            )
            normal = np.cross(corners[face, 1] - corners[face, 0], corners[face, 2] - corners[face, 0])
            center = corners[face].mean(0)
            eye = center + normal / np.linalg.norm(normal)
            cameras = Cameras.look_at(torch.tensor(eye[None]), target=tuple(center), width=1, height=1)
            found = rasterize.render(alone, cameras, lighting="unlit", samples=1)[0][0, 0, 0]
            compared += 1
            assert np.abs(found[:3] * 255 - color).max() < 24, (path, face)
    assert compared > 20
