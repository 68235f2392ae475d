"""Every procedural class: deterministic, within bounds, well formed, and varied enough to be a fair test of a model."""

from __future__ import annotations

import numpy as np
import pytest

from fusedplanes.datasets.procedural import CLASSES, make_mesh, object_id
from fusedplanes.errors import ConfigError

COUNT = 30
FIELDS = ("vertices", "faces", "corner_normals", "corner_uv", "corner_colors", "face_material")


@pytest.fixture(scope="module", params=CLASSES)
def objects(request):
    """The first objects of a class."""
    return request.param, [make_mesh(request.param, index) for index in range(COUNT)]


def test_same_arguments_give_the_same_object(objects):
    class_name, meshes = objects
    again = make_mesh(class_name, 7)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(again, field), getattr(meshes[7], field))
    for material, expected in zip(again.materials, meshes[7].materials, strict=True):
        np.testing.assert_array_equal(material.base_color, expected.base_color)
        assert (material.texture is None) == (expected.texture is None)
        if material.texture is not None:
            np.testing.assert_array_equal(material.texture, expected.texture)


def test_indices_and_seeds_give_different_objects(objects):
    class_name, meshes = objects
    prints = {mesh.vertices.tobytes() + mesh.corner_colors.tobytes() for mesh in meshes}
    assert len(prints) == COUNT
    assert make_mesh(class_name, 7, seed=1).vertices.tobytes() != meshes[7].vertices.tobytes()


def test_the_longest_side_fills_the_box(objects):
    for mesh in objects[1]:
        low, high = mesh.vertices.min(0), mesh.vertices.max(0)
        assert np.abs(mesh.vertices).max() <= 0.9
        np.testing.assert_allclose((high - low).max(), 1.8, atol=1e-9)
        np.testing.assert_allclose(low + high, 0, atol=1e-9)
        np.testing.assert_array_equal(mesh.world_from_source, np.eye(4))


def test_arrays_are_finite_and_faces_have_area(objects):
    for mesh in objects[1]:
        assert 12 < len(mesh.faces) <= 6000
        for field in FIELDS:
            assert np.isfinite(getattr(mesh, field)).all(), field
        corners = mesh.vertices[mesh.faces]
        area = 0.5 * np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=-1)
        assert area.min() > 0
        np.testing.assert_allclose(np.linalg.norm(mesh.corner_normals, axis=-1), 1, atol=1e-5)


def test_colors_materials_and_indices_are_valid(objects):
    for mesh in objects[1]:
        assert mesh.faces.min() == 0
        assert mesh.faces.max() == len(mesh.vertices) - 1
        assert mesh.face_material.min() >= 0
        assert mesh.face_material.max() < len(mesh.materials)
        assert mesh.corner_colors.min() >= 0
        assert mesh.corner_colors.max() <= 1
        textured = [material.texture for material in mesh.materials if material.texture is not None]
        assert textured
        assert all(texture.dtype == np.uint8 and texture.shape[2] == 4 for texture in textured)


def test_normals_agree_with_the_winding(objects):
    for mesh in objects[1]:
        corners = mesh.vertices[mesh.faces]
        cross = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        assert (np.einsum("fi,fci->fc", cross, mesh.corner_normals) > 0).all()


def test_object_id():
    assert object_id("cars", 12) == "cars_00012"


def test_unknown_class_names_the_classes():
    with pytest.raises(ConfigError, match=r"'boots'.*cars"):
        make_mesh("boots", 0)


@pytest.mark.parametrize("arguments", [{"index": -1}, {"index": 0, "seed": -3}])
def test_negative_numbers_are_refused(arguments):
    with pytest.raises(ConfigError, match="must be 0 or more"):
        make_mesh("cars", **arguments)
