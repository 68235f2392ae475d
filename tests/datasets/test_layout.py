"""The data set on disk: what is written comes back, and every kind of damage is named."""

import io
import json
import shutil
import zipfile

import numpy as np
import pytest
import torch

from fusedplanes import datasets
from fusedplanes.cameras import Cameras
from fusedplanes.datasets import layout
from fusedplanes.errors import DataError
from fusedplanes.multiview import MultiViewObject


def some_object(object_id="one", views=3, width=6, height=5, depth=True):
    images = torch.randint(0, 256, (views, height, width, 4)).float() / 255
    cameras = Cameras.orbit(views, width=width, height=height)
    world_from_source = torch.diag(torch.tensor([2.0, 2.0, 2.0, 1.0]))
    world_from_source[:3, 3] = torch.tensor([0.1, 0.2, 0.3])
    split = tuple("test" if view == 1 else "train" for view in range(views))
    distances = torch.rand(views, height, width) if depth else None
    return MultiViewObject(object_id, images, cameras, split, distances, world_from_source)


def header(*ids, **changes):
    values = {"ids": ids, "size": 6, "split": {"train": 2, "test": 1}, "licence": "CC0-1.0", "made_with": {"views": 3}}
    return layout.DatasetHeader(**{**values, **changes})


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "two"):
        layout.write_object(tmp_path, some_object(name), source_file=f"{name}.glb")
    layout.write_header(tmp_path, header("two", "one"))
    return tmp_path


@pytest.mark.parametrize("depth", [True, False])
def test_an_object_comes_back_as_it_was(tmp_path, depth):
    item = some_object(depth=depth)
    written = layout.write_object(tmp_path, item)
    assert written == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    found = layout.read_object(tmp_path, "one")
    assert torch.equal(found.images, item.images)
    assert found.images.dtype == torch.float32
    assert torch.allclose(found.cameras.camera_to_world, item.cameras.camera_to_world, atol=1e-6)
    assert torch.allclose(found.cameras.intrinsics, item.cameras.intrinsics)
    assert found.split == item.split
    assert torch.allclose(found.world_from_source.float(), item.world_from_source)
    assert (found.depth is None) is not depth
    if depth:
        assert torch.equal(found.depth, item.depth)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_transforms_follow_nerfstudio_with_opengl_axes(tmp_path):
    item = some_object()
    layout.write_object(tmp_path, item, source_file="a/b.glb")
    transforms = json.loads((tmp_path / "one/transforms.json").read_text())
    assert (transforms["w"], transforms["h"]) == (6, 5)
    assert transforms["fl_x"] == pytest.approx(1.02 * 6)
    assert (transforms["cx"], transforms["cy"]) == (3, 2.5)
    assert transforms["source_file"] == "a/b.glb"
    frame = transforms["frames"][1]
    assert frame["file_path"] == "images/001.png"
    assert frame["split"] == "test"
    pose = np.array(frame["transform_matrix"])
    opencv = item.cameras.camera_to_world[1].numpy()
    assert np.allclose(pose[:, 0], opencv[:, 0], atol=1e-6)
    assert np.allclose(pose[:, 1:3], -opencv[:, 1:3], atol=1e-6)
    assert np.allclose(pose[:, 3], opencv[:, 3], atol=1e-6)


def test_a_data_set_is_a_sequence_in_the_header_s_order(folder):
    dataset = datasets.load(folder)
    assert dataset.ids == ("two", "one")
    assert len(dataset) == 2
    assert (dataset.size, dataset.licence) == (6, "CC0-1.0")
    assert [item.id for item in dataset] == ["two", "one"]
    assert dataset[0].id == dataset["two"].id == dataset[-2].id == "two"
    assert dataset[1].views("test").images.shape == (1, 5, 6, 4)
    with pytest.raises(IndexError):
        dataset[2]
    with pytest.raises(DataError, match="no object 'three'; it has two, one"):
        dataset["three"]


def test_images_without_alpha_are_read_too(folder):
    from PIL import Image

    for view in range(3):
        path = folder / f"one/images/{view:03d}.png"
        Image.open(path).convert("RGB").save(path)
        channels = layout.read_object(folder, "one").images.shape[-1]
        assert channels == (3 if view == 2 else 4)


def test_a_new_object_replaces_remains_without_transforms(folder):
    (folder / "one/transforms.json").unlink()
    assert not layout.is_complete(folder, "one")
    layout.write_object(folder, some_object("one"))
    assert layout.is_complete(folder, "one")


def test_what_an_interrupted_run_left_is_removed(folder):
    partial = folder / ".partial-three"
    (partial / "images").mkdir(parents=True)
    layout.remove_partial(folder)
    assert not partial.exists()
    assert layout.is_complete(folder, "one")


# Damage -------------------------------------------------------------------------------------------------------------


def test_no_data_set(tmp_path):
    with pytest.raises(DataError, match=r"neither dataset\.json nor objects of a layout"):
        datasets.load(tmp_path)
    with pytest.raises(DataError, match="gone: no such folder"):
        datasets.load(tmp_path / "gone")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format is 'other'"),
        ({"format": None}, "format is None"),
        ({"format_version": 2}, "format_version 2 is newer than the 1"),
        ({"format_version": "1"}, "format_version is '1'"),
        ({"format_version": 0}, "format_version is 0"),
        ({"ids": "one"}, "ids is no list"),
        ({"ids": [1]}, "ids is no list"),
        ({"ids": ["one", "one"]}, "'one' occurs twice"),
        ({"ids": ["../one"]}, "no plain folder name"),
        ({"ids": [".."]}, "no plain folder name"),
        ({"ids": [""]}, "no plain folder name"),
        ({"ids": ["a\\b"]}, "no plain folder name"),
        ({"ids": ["x" * 300]}, "no plain folder name"),
        ({"ids": []}, r"no object \(every object failed\)"),
        ({"ids": [], "complete": False}, "interrupted"),
        ({"size": 0}, "size is 0"),
        ({"size": True}, "size is True"),
        ({"size": 10**9}, "size is 1000000000"),
        ({"licence": 5}, "licence is 5"),
        ({"made_with": []}, "must be objects"),
    ],
)
def test_a_damaged_header_is_named(folder, change, message):
    path = folder / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=message) as error:
        datasets.load(folder)
    assert "\n" not in str(error.value)


def frame_of(transforms):
    return transforms["frames"][1]


def pose_of(transforms):
    return frame_of(transforms)["transform_matrix"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("frames"), "frames is empty"),
        (lambda t: t.update(frames=[]), "frames is empty"),
        (lambda t: t.update(frames=[1]), "frames is empty"),
        (lambda t: t.pop("fl_x"), "fl_x is None"),
        (lambda t: t.update(fl_x=-5), "fl_x is -5; expected pixels"),
        (lambda t: t.update(fl_x=1e-300), "fl_x is 1e-300; expected pixels, 0.001 to 1e"),
        (lambda t: t.update(fl_y=1e8), r"fl_y is 1e\+08; expected pixels, 0.001 to 1e"),
        (lambda t: t.update(cx=1e300), r"cx is 1e\+300; expected pixels"),
        (lambda t: frame_of(t).update(cy=-1e8), r"cy is -1e\+08; expected pixels"),
        (lambda t: t.pop("fl_x") and t.update(camera_angle_x=1e-300), "camera_angle_x 1e-300 is "),
        (lambda t: t.pop("fl_x") and t.update(camera_angle_x=4), "camera_angle_x is 4.0; expected radians"),
        (lambda t: pose_of(t)[1].__setitem__(3, 1e300), r"frame 1: the pose stands at 1e\+300; expected within 1e"),
        (lambda t: pose_of(t)[1].__setitem__(3, -2e6), r"frame 1: the pose stands at -2e\+06"),
        (lambda t: t.update(world_from_source=np.diag([1e200, 1e200, 1e200, 1]).tolist()), "world_from_source"),
        (lambda t: t.update(world_from_source=np.diag([1e-30, 1e-30, 1e-30, 1]).tolist()), "world_from_source"),
        (lambda t: t.update(world_from_source=(np.eye(4) + np.eye(4, k=3) * 1e300).tolist()), "world_from_source"),
        (lambda t: t.update(cx="3"), "cx is '3'"),
        (lambda t: t.update(cy=float("nan")), "cy is nan"),
        (lambda t: t.update(cy=10**400), "cy is 1000"),
        (lambda t: t.update(w=7), "6x5 pixels; transforms.json says 7x5"),
        (lambda t: t.update(w=6.5), "w is 6.5"),
        (lambda t: t.update(h=10**6), "expected sides of 1 to 8192"),
        (lambda t: t.update(w=8192, h=8192, frames=t["frames"] * 100), "exceed the limit"),
        (lambda t: t.update(k1=0.1), "k1 is 0.1"),
        (lambda t: t.update(camera_model="OPENCV_FISHEYE"), "OPENCV_FISHEYE"),
        (lambda t: frame_of(t).pop("transform_matrix"), "frame 1: transform_matrix is no 4x4"),
        (lambda t: pose_of(t)[0].__setitem__(0, float("nan")), "frame 1: transform_matrix is no 4x4"),
        (lambda t: pose_of(t)[0].__setitem__(0, "1"), "frame 1: the pose is no rotation"),
        (lambda t: pose_of(t)[0].__setitem__(0, "one"), "frame 1: transform_matrix is no 4x4"),
        (lambda t: pose_of(t).pop(), "frame 1: transform_matrix is no 4x4"),
        (lambda t: pose_of(t)[3].__setitem__(3, 2.0), "frame 1: transform_matrix is no 4x4"),
        (lambda t: pose_of(t).__setitem__(0, [-x for x in pose_of(t)[0]]), "frame 1: .*mirrored"),
        (lambda t: pose_of(t).__setitem__(0, [2 * x for x in pose_of(t)[0]]), "frame 1: .*scaled"),
        (lambda t: pose_of(t).__setitem__(0, [1e300 * x for x in pose_of(t)[0]]), "frame 1: .*scaled"),
        (lambda t: frame_of(t).pop("split"), "frame 1: split is None"),
        (lambda t: frame_of(t).update(split="validation"), "frame 1: split is 'validation'"),
        (lambda t: frame_of(t).pop("file_path"), "frame 1: file_path None"),
        (lambda t: frame_of(t).update(file_path="../two/images/000.png"), "no file inside"),
        (lambda t: frame_of(t).update(file_path="/etc/hostname"), "no file inside"),
        (lambda t: frame_of(t).update(file_path="a\0b"), "no file inside"),
        (lambda t: frame_of(t).update(file_path="images/009.png"), "009.png: no such (image|file)"),
        (lambda t: frame_of(t).pop("depth_path"), "frame 1 has no depth_path"),
        (lambda t: frame_of(t).update(depth_path="images/001.png"), "depth cannot be read"),
        (lambda t: frame_of(t).update(depth_path="depth/009.npz"), "009.npz: no such file"),
        (lambda t: t.update(world_from_source=[[0] * 4] * 4), "world_from_source"),
        (lambda t: t.update(world_from_source=np.diag([1.0, 2, 1, 1]).tolist()), "world_from_source"),
        (lambda t: t.update(world_from_source=np.diag([0.0, 0, 0, 1]).tolist()), "world_from_source"),
    ],
)
def test_damaged_transforms_are_named(folder, change, message):
    path = folder / "one/transforms.json"
    transforms = json.loads(path.read_text())
    change(transforms)
    path.write_text(json.dumps(transforms))
    with pytest.raises(DataError, match=message) as error:
        layout.read_object(folder, "one")
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def zip_depth(method):
    def save(path):
        content = io.BytesIO()
        np.save(content, np.zeros((5, 6), np.float32))
        with zipfile.ZipFile(path, "w", method) as file:
            file.writestr("depth.npy", content.getvalue())

    return save


def save_depth(**arrays):
    return lambda path: np.savez_compressed(path, **arrays)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("transforms.json", lambda path: path.unlink(), "transforms.json: no such file"),
        ("transforms.json", lambda path: path.write_bytes(path.read_bytes()[:-40]), "not valid JSON"),
        ("transforms.json", lambda path: path.write_text("[]"), "expected a JSON object"),
        ("images/002.png", lambda path: path.unlink(), "002.png: no such (image|file)"),
        ("images/002.png", lambda path: path.write_bytes(path.read_bytes()[:60]), "002.png: .*cannot be decoded"),
        ("images/002.png", lambda path: path.write_bytes(b""), "002.png: not an image"),
        ("depth/002.npz", lambda path: path.unlink(), "002.npz: no such file"),
        ("depth/002.npz", lambda path: path.write_bytes(path.read_bytes()[:60]), "002.npz: the depth cannot be read"),
        ("depth/002.npz", save_depth(other=np.zeros((5, 6), np.float32)), "002.npz: the depth cannot be read"),
        ("depth/002.npz", save_depth(depth=np.zeros((6, 6), np.float32)), "expected floats"),
        ("depth/002.npz", save_depth(depth=np.zeros((5, 6), np.int32)), "expected floats"),
        ("depth/002.npz", save_depth(depth=np.full((5, 6), np.nan)), "not finite"),
        ("depth/002.npz", save_depth(depth=np.full((5, 6), -1.0)), "negative"),
        ("depth/002.npz", save_depth(depth=np.full((5, 6), 1e39)), "the value .*39, too large for float32"),
        ("depth/002.npz", zip_depth(zipfile.ZIP_BZIP2), "another method than deflate"),
        ("depth/002.npz", zip_depth(zipfile.ZIP_LZMA), "another method than deflate"),
        ("depth/002.npz", save_depth(depth=np.array([[{}] * 6] * 5, object)), "the depth cannot be read"),
        ("depth/002.npz", save_depth(depth=np.zeros((2000, 2000))), "bytes unpacked"),
    ],
)
def test_damaged_files_are_named(folder, file, damage, message):
    damage(folder / "one" / file)
    with pytest.raises(DataError, match=message) as error:
        layout.read_object(folder, "one")
    assert "\n" not in str(error.value)
    assert layout.read_object(folder, "two").id == "two"


def test_a_missing_object_folder_is_named(folder):
    shutil.rmtree(folder / "one")
    dataset = datasets.load(folder)
    assert dataset["two"].id == "two"
    with pytest.raises(DataError, match=r"one.transforms\.json: no such file"):
        dataset["one"]


def test_any_changed_byte_of_any_json_is_read_or_refused(folder):
    generator = np.random.default_rng(0)
    for path, read in (
        (folder / "dataset.json", lambda: datasets.load(folder)),
        (folder / "one/transforms.json", lambda: layout.read_object(folder, "one")),
    ):
        data = path.read_bytes()
        refused = 0
        for _ in range(200):
            changed = bytearray(data)
            changed[generator.integers(0, len(data))] = generator.integers(0, 256)
            path.write_bytes(changed)
            try:
                read()
            except DataError as error:
                refused += 1
                assert "\n" not in str(error)
        path.write_bytes(data)
        assert 20 < refused <= 200


def test_loading_needs_neither_numba_nor_trimesh(folder):
    import subprocess
    import sys

    code = f"""
import sys
from fusedplanes import datasets
print(len(datasets.load({str(folder)!r})[0].split), [name for name in ("numba", "trimesh") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split(maxsplit=1) == ["3", "[]\n"], result.stderr


def test_every_public_name_of_the_package_can_be_imported():
    assert all(hasattr(datasets, name) for name in datasets.__all__)
    with pytest.raises(AttributeError, match="no attribute 'make_everything'"):
        datasets.make_everything  # noqa: B018
