"""Layouts from elsewhere: the same object written in each of them is read as the same object."""

import json
import math
import os
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from fusedplanes import datasets
from fusedplanes import images as image_files
from fusedplanes.cameras import Cameras
from fusedplanes.datasets.framing import look_at_point, pose_problems
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import save

VIEWS, SIDE = 12, 32
CENTER, HALF = np.array([3.0, -1.0, 2.0]), 0.5
"""A box of another unit, far from the origin."""

OPENGL = np.array([1.0, -1.0, -1.0, 1.0])


def source_cameras(views=VIEWS, width=SIDE, height=SIDE):
    """Cameras round the box in the source's coordinates: close ones, high and low."""
    high = Cameras.orbit(views - views // 2, radius=2.0, elevation=40, width=width, height=height)
    low = Cameras.orbit(views // 2, radius=2.0, elevation=-5, start=30, width=width, height=height)
    cameras = Cameras.concatenate([high, low]) if views > 1 else high
    cameras.camera_to_world[:, :3, 3] += torch.from_numpy(CENTER).float()
    return cameras


def box_images(cameras):
    """Straight-alpha views ``[V, H, W, 4]`` of the box, each face of its own colour."""
    images = []
    v, u = torch.meshgrid(torch.arange(cameras.height) + 0.5, torch.arange(cameras.width) + 0.5, indexing="ij")
    for camera_to_world, k in zip(cameras.camera_to_world, cameras.intrinsics, strict=True):
        ray = torch.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], torch.ones_like(u)], -1)
        direction = ray @ camera_to_world[:3, :3].T
        origin = camera_to_world[:3, 3] - torch.from_numpy(CENTER).float()
        near, far = sorted_crossings(origin, direction)
        hit = near.amax(-1) < far.amin(-1)
        face = near.argmax(-1)
        color = torch.tensor([[0.9, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.3, 0.8]])[face]
        images.append(torch.cat([color * hit[..., None], hit[..., None].float()], -1))
    return torch.stack(images)


def sorted_crossings(origin, direction):
    a, b = (-HALF - origin) / direction, (HALF - origin) / direction
    return torch.minimum(a, b), torch.maximum(a, b)


@pytest.fixture(scope="module")
def cameras():
    return source_cameras()


@pytest.fixture(scope="module")
def images(cameras):
    return box_images(cameras)


def poses(cameras, axes="opengl"):
    return cameras.camera_to_world.double().numpy() * (OPENGL if axes == "opengl" else 1)


def over_white(image):
    return image[..., :3] * image[..., 3:] + 1 - image[..., 3:]


def write_nerfstudio(folder, cameras, images, **top):
    frames = []
    for index, (pose, image) in enumerate(zip(poses(cameras), images, strict=True)):
        name = f"images/frame_{index:05d}.png"
        save(folder / name, image)
        frames.append({"file_path": name, "transform_matrix": pose.tolist()})
    k = cameras.intrinsics[0].double()
    value = {"camera_model": "OPENCV", "fl_x": k[0, 0].item(), "fl_y": k[1, 1].item(), "cx": k[0, 2].item()}
    value |= {"cy": k[1, 2].item(), "w": float(cameras.width), "h": float(cameras.height), "frames": frames, **top}
    (folder / "transforms.json").write_text(json.dumps(value))


def write_nerf_synthetic(folder, cameras, images):
    for split, chosen in (("train", range(0, 8)), ("val", range(8, 10)), ("test", range(10, 12))):
        frames = []
        for index in chosen:
            save(folder / f"{split}/r_{index}.png", images[index])
            frames.append({"file_path": f"./{split}/r_{index}", "transform_matrix": poses(cameras)[index].tolist()})
        angle = 2 * math.atan(cameras.width / 2 / float(cameras.intrinsics[0, 0, 0]))
        value = {"camera_angle_x": angle, "frames": frames}
        (folder / f"transforms_{split}.json").write_text(json.dumps(value))


def write_srn(folder, cameras, images):
    (folder / "pose").mkdir(parents=True)
    for index, (pose, image) in enumerate(zip(poses(cameras, "opencv"), images, strict=True)):
        save(folder / f"rgb/{index:06d}.png", over_white(image))
        (folder / f"pose/{index:06d}.txt").write_text(" ".join(str(value) for value in pose.flatten()))
    k = cameras.intrinsics[0]
    text = f"{k[0, 0]} {k[0, 2]} {k[1, 2]} 0.\n0. 0. 0.\n1.\n{cameras.height} {cameras.width}\n"
    (folder / "intrinsics.txt").write_text(text)


def write_release(folder, cameras, images):
    frames = []
    k = cameras.intrinsics[0].double()
    for index, (pose, image) in enumerate(zip(poses(cameras, "opencv"), images, strict=True)):
        save(folder / f"{index:03d}.png", over_white(image))
        frame = {"file_path": f"{index:03d}.png", "transform_matrix": pose.tolist(), "fl_x": k[0, 0].item()}
        frame |= {"fl_y": k[1, 1].item(), "cx": k[0, 2].item(), "cy": k[1, 2].item()}
        frames.append(frame | {"w": cameras.width, "h": cameras.height})
    (folder / "transforms_opencv.json").write_text(json.dumps({"frames": frames}))


WRITERS = {
    "nerfstudio": write_nerfstudio,
    "nerf-synthetic": write_nerf_synthetic,
    "shapenet-srn": write_srn,
    "fused-planes-release": write_release,
}
TEST_VIEWS = {"nerfstudio": [4], "nerf-synthetic": [8, 9], "shapenet-srn": [4], "fused-planes-release": [0]}
"""Numbers of the held-out views, in the order in which they are read."""


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_gives_the_same_object_in_the_field_s_box(tmp_path, layout, cameras, images):
    for name in ("a", "b"):
        WRITERS[layout](tmp_path / name, cameras, images)
    dataset = datasets.load(tmp_path)
    assert (dataset.layout, dataset.ids, dataset.size, len(dataset)) == (layout, ("a", "b"), SIDE, 2)
    item = dataset["b"]
    # NeRF-synthetic's validation views give way to its test views.
    order = [0, 1, 2, 3, 4, 5, 6, 7, 10, 11] if layout == "nerf-synthetic" else list(range(VIEWS))
    assert [index for index, split in enumerate(item.split) if split == "test"] == TEST_VIEWS[layout]
    assert torch.allclose(item.alpha, images[order][..., 3])
    assert torch.allclose(over_white(item.images), over_white(images[order]), atol=0.5 / 255)
    assert torch.allclose(item.cameras.intrinsics, cameras.intrinsics[order], atol=1e-3)

    # The box of half side 0.5 round CENTER fills [-0.9, 0.9]^3 as well as twelve silhouettes tell.
    world = item.world_from_source
    center = world[:3, :3] @ torch.from_numpy(CENTER) + world[:3, 3]
    assert center.abs().max() < 0.12
    assert 0.6 < HALF * float(world[0, 0]) <= 0.92
    moved = world[:3, :3] @ cameras.positions[order].double().T + world[:3, 3:]
    assert torch.allclose(item.cameras.positions.double(), moved.T, atol=1e-4)
    rotations = cameras.camera_to_world[order, :3, :3]
    assert torch.allclose(item.cameras.camera_to_world[:, :3, :3], rotations, atol=1e-5)


@pytest.mark.parametrize("layout", WRITERS)
def test_a_single_object_s_folder_is_a_data_set_too(tmp_path, layout, cameras, images):
    WRITERS[layout](tmp_path / "lonely car", cameras, images)
    assert datasets.load(tmp_path / "lonely car").ids == ("lonely_car",)
    assert datasets.check(tmp_path / "lonely car").problems == ()


def test_images_are_resampled_with_their_cameras(tmp_path, images, cameras):
    write_nerfstudio(tmp_path / "a", source_cameras(width=48, height=36), box_images(source_cameras(4 * 3, 48, 36)))
    item = datasets.load(tmp_path, size=24)[0]
    assert item.images.shape == (VIEWS, 16, 24, 4)
    expected = source_cameras(width=48, height=36).intrinsics[0] * torch.tensor([[0.5], [16 / 36], [1.0]])
    assert torch.allclose(item.cameras.intrinsics[0], expected)
    with pytest.raises(ConfigError, match="size 4"):
        datasets.load(tmp_path, size=4)


def test_nerfstudio_s_lists_and_masks_are_honoured(tmp_path, cameras, images):
    write_nerfstudio(tmp_path, cameras, over_white(images))
    value = json.loads((tmp_path / "transforms.json").read_text())
    for index, frame in enumerate(value["frames"]):
        frame["mask_path"] = f"masks/{index}.png"
        save(tmp_path / frame["mask_path"], images[index, :, :, 3:].expand(-1, -1, 3))
    value["test_filenames"] = [f"./{value['frames'][7]['file_path']}"]
    value["train_filenames"] = [frame["file_path"] for frame in value["frames"]]
    del value["w"], value["h"], value["cx"], value["cy"]
    (tmp_path / "transforms.json").write_text(json.dumps(value))
    item = datasets.load(tmp_path)[0]
    assert [index for index, split in enumerate(item.split) if split == "test"] == [7]
    assert torch.equal(item.alpha, images[..., 3])
    assert torch.allclose(item.cameras.intrinsics, cameras.intrinsics)


@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.parametrize("what", ["file_path", "mask_path"])
def test_sizes_are_compared_before_a_picture_is_decoded(tmp_path, monkeypatch, what, claimed, cameras, images):
    write_nerfstudio(tmp_path, cameras, images)
    value = json.loads((tmp_path / "transforms.json").read_text())
    if not claimed:
        del value["w"], value["h"]
    value["frames"][2][what] = "large.png"
    (tmp_path / "transforms.json").write_text(json.dumps(value))
    PIL.Image.new("L", (3000, 2000)).save(tmp_path / "large.png")
    load, loaded = image_files.load, []
    monkeypatch.setattr(image_files, "load", lambda path, **options: loaded.append(path.name) or load(path, **options))
    with pytest.raises(DataError, match=r"large\.png: 3000x2000 pixels"):
        datasets.load(tmp_path)[0]
    assert "large.png" not in loaded and "frame_00000.png" in loaded


def test_an_image_that_cannot_be_decoded_sets_no_size_for_the_others(tmp_path, cameras, images):
    write_nerfstudio(tmp_path / "one", cameras, images)
    path = tmp_path / "one/transforms.json"
    value = json.loads(path.read_text())
    del value["w"], value["h"]
    path.write_text(json.dumps(value))
    first = tmp_path / "one/images/frame_00000.png"
    PIL.Image.effect_noise((64, 48), 50).save(first)
    first.write_bytes(first.read_bytes()[:500])
    problems = datasets.check(tmp_path).problems
    assert ["frame_00000.png: the image cannot be decoded" in problem.problem for problem in problems] == [True]


def test_white_inside_an_object_stays(tmp_path, cameras, images):
    painted = images.clone()
    painted[:, 15:18, 15:18, :3] = 1.0
    write_srn(tmp_path, cameras, painted)
    assert torch.equal(datasets.load(tmp_path)[0].alpha, images[..., 3])


def test_the_release_s_map_gives_the_order(tmp_path, cameras, images):
    for name in ("x1", "x2", "x3"):
        write_release(tmp_path / "square128_above" / name, cameras, images)
    (tmp_path / "dataset_map.json").write_text(json.dumps({"car": ["x3", "x1"]}))
    for folder in (tmp_path, tmp_path / "square128_above"):
        dataset = datasets.load(folder)
        assert [item.rsplit("_")[-1] for item in dataset.ids] == ["x3", "x1"]
    (tmp_path / "dataset_map.json").write_text(json.dumps({"car": ["x9"]}))
    with pytest.raises(DataError, match="'x9' has no folder"):
        datasets.load(tmp_path)
    (tmp_path / "dataset_map.json").write_text(json.dumps({"car": "x1"}))
    with pytest.raises(DataError, match="expected a list"):
        datasets.load(tmp_path)


def test_folders_of_equal_names_get_ids_of_their_own(tmp_path, cameras, images):
    for name in ("cars/0001", "chairs/0001", "v1.0"):
        write_nerfstudio(tmp_path / name, cameras[:3], images[:3])
    assert datasets.load(tmp_path).ids == ("cars_0001", "chairs_0001", "v1.0")


def test_layouts_must_not_be_mixed(tmp_path, cameras, images):
    write_srn(tmp_path / "a", cameras, images)
    write_nerfstudio(tmp_path / "b", cameras, images)
    with pytest.raises(DataError, match=r"several layouts \(a is shapenet-srn, b is nerfstudio\)"):
        datasets.load(tmp_path)


# Faults -------------------------------------------------------------------------------------------------------------


def changed(change):
    """Edit the JSON of a folder."""

    def apply(folder: Path) -> None:
        path = folder / "transforms.json"
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    return apply


def other_convention(value):
    for frame in value["frames"]:
        frame["transform_matrix"] = (np.array(frame["transform_matrix"]) * OPENGL).tolist()


def turn_round(value):
    frame = value["frames"][3]
    frame["transform_matrix"] = (np.array(frame["transform_matrix"]) * np.array([-1.0, 1, -1, 1])).tolist()


def mirror(value):
    value["frames"][3]["transform_matrix"][0] = [-x for x in value["frames"][3]["transform_matrix"][0]]


def resize_one(folder):
    save(folder / "images/frame_00005.png", torch.rand(20, 20, 4))


FAULTS = {
    "missing image": (lambda f: (f / "images/frame_00003.png").unlink(), "frame_00003.png: no such", 1),
    "empty image": (lambda f: (f / "images/frame_00003.png").write_bytes(b""), "frame_00003.png: not an image", 1),
    "truncated image": (
        lambda f: (f / "images/frame_00003.png").write_bytes((f / "images/frame_00003.png").read_bytes()[:70]),
        "frame_00003.png: the image cannot be decoded",
        1,
    ),
    "scaled pose": (
        changed(lambda v: v["frames"][3].update(transform_matrix=np.diag([2.0, 2, 2, 1]).tolist())),
        "frame 3: the pose is no rotation",
        1,
    ),
    "mirrored pose": (changed(mirror), "frame 3: the pose is mirrored", 1),
    "NaN pose": (
        changed(lambda v: v["frames"][3]["transform_matrix"][0].__setitem__(0, float("nan"))),
        "frame 3: transform_matrix is no 4x4 matrix of finite numbers",
        1,
    ),
    "other convention": (changed(other_convention), "follow the other convention", 1),
    "one camera turned round": (changed(turn_round), "frame_00003.png: the camera looks away", 1),
    "mixed sizes": (resize_one, "frame_00005.png: 20x20 pixels; transforms.json says 32x32", 1),
    "one view": (changed(lambda v: v.update(frames=v["frames"][:1])), "1 view", 1),
    "no view": (changed(lambda v: v.update(frames=[])), "frames is empty", 1),
    "path out of the folder": (
        changed(lambda v: v["frames"][3].update(file_path="../../secret.png")),
        "frame 3: file_path '../../secret.png' is no file inside",
        1,
    ),
    "NaN focal": (changed(lambda v: v.update(fl_x=float("nan"))), "fl_x is nan", 1),
    "distortion": (changed(lambda v: v.update(k1=0.01)), "k1 is 0.01", 1),
    "fisheye": (changed(lambda v: v.update(camera_model="OPENCV_FISHEYE")), "OPENCV_FISHEYE", 1),
    "bomb": (changed(lambda v: v.update(w=10**6, h=10**6)), "expected sides of 1 to 8192", 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_check_names_each_fault_once_and_load_refuses_it(tmp_path, fault, cameras, images):
    damage, message, count = FAULTS[fault]
    for name in ("good", "bad"):
        write_nerfstudio(tmp_path / name, cameras, images)
    damage(tmp_path / "bad")
    report = datasets.check(tmp_path)
    assert [problem.object for problem in report.problems].count("bad") >= count
    assert any(message in problem.problem for problem in report.problems), report.problems
    assert all("\n" not in problem.problem and problem.object == "bad" for problem in report.problems)
    with pytest.raises(DataError):
        datasets.load(tmp_path)["bad"]
    assert datasets.load(tmp_path)["good"].images.shape == (VIEWS, SIDE, SIDE, 4)


def test_check_finds_several_faults_of_one_object_and_counts_what_is_left(tmp_path, cameras, images):
    write_nerfstudio(tmp_path / "a", cameras, images)
    (tmp_path / "a/images/frame_00001.png").unlink()
    (tmp_path / "a/images/frame_00002.png").write_bytes(b"nothing")
    changed(mirror)(tmp_path / "a")
    changed(lambda value: turn_round({"frames": value["frames"][2:]}))(tmp_path / "a")
    report = datasets.check(tmp_path)
    assert len(report.problems) == 4
    assert any("frame_00005.png: the camera looks away" in problem.problem for problem in report.problems)
    assert report.views == VIEWS - 3


def test_check_names_objects_of_different_sizes(tmp_path, cameras, images):
    write_nerfstudio(tmp_path / "a", cameras, images)
    other = source_cameras(width=16, height=16)
    write_nerfstudio(tmp_path / "b", other, box_images(other))
    assert "images of different sizes" in datasets.check(tmp_path).problems[0].problem
    sizes = {item.images.shape[1:3] for item in datasets.load(tmp_path, size=16)}
    assert sizes == {(16, 16)}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("intrinsics.txt", "", "expected 'focal cx cy 0'"),
        ("intrinsics.txt", "nan 16 16 0\n1\n32 32", "expected 'focal cx cy 0'"),
        ("intrinsics.txt", "-3 16 16 0\n1\n32 32", "focal is -3"),
        ("intrinsics.txt", "33 16 16 0\n1\n32.5 32", "height is 32.5"),
        ("intrinsics.txt", "33 16 16 0\n1\n32 1e300", r"width is 1e\+300"),
        ("intrinsics.txt", "33 16 16 0\n1\n32 0", "width is 0"),
        ("intrinsics.txt", "1e-300 16 16 0\n1\n32 32", "intrinsics.txt: focal is 1e-300; expected pixels"),
        ("intrinsics.txt", "1e300 16 16 0\n1\n32 32", r"focal is 1e\+300"),
        ("intrinsics.txt", "33 1e300 16 0\n1\n32 32", r"cx is 1e\+300"),
        ("intrinsics.txt", "33 16 -1e8 0\n1\n32 32", r"cy is -1e\+08"),
        ("pose/000003.txt", "1 0 0 1e300 0 1 0 0 0 0 1 0 0 0 0 1", r"000003.txt: the pose stands at 1e\+300"),
        ("intrinsics.txt", "a b c", "expected numbers"),
        ("intrinsics.txt", "1 " * 100_000, "too large"),
        ("pose/000003.txt", "1 2 3", "000003.txt: expected 16 finite numbers"),
        ("pose/000003.txt", " ".join(["nan"] * 16), "000003.txt: expected 16 finite numbers"),
        ("pose/000003.txt", "2 0 0 0 0 2 0 0 0 0 2 0 0 0 0 1", "000003.txt: the pose is no rotation"),
        ("pose/000003.txt", "1 0 0 0 0 1 0 0 0 0 -1 0 0 0 0 1", "000003.txt: the pose is mirrored"),
        ("pose/000003.txt", None, "000003.txt: no such file"),
        ("intrinsics.txt", None, "intrinsics.txt: no such file"),
    ],
)
def test_damaged_srn_files_are_named(tmp_path, file, text, message, cameras, images):
    write_srn(tmp_path / "a", cameras, images)
    path = tmp_path / "a" / file
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DataError, match=message) as error:
        datasets.load(tmp_path)["a"]
    assert "\n" not in str(error.value)


def test_cameras_that_do_not_meet_have_no_object(tmp_path, cameras, images):
    parallel = source_cameras(4)
    parallel.camera_to_world[:, :3, :3] = torch.eye(3)
    assert look_at_point(parallel) is None
    assert pose_problems(list("abcd"), parallel) == []
    write_nerfstudio(tmp_path, parallel, images[:4])
    with pytest.raises(DataError, match="do not tell where the object is"):
        datasets.load(tmp_path)[0]


def test_real_captures_are_read_and_checked(tmp_path):
    root = Path(os.environ.get("FUSEDPLANES_TEST_DATA", "../shared/data"))
    if not (root / "scenes/plush").is_dir():
        return
    item = datasets.load(root / "scenes/plush", size=96)[0]
    assert item.images.shape[1:] == (72, 96, 3)
    assert datasets.check(root / "scenes/plush").problems == ()
    (tmp_path / "transforms.json").write_bytes((root / "odd/plush_transforms_with_6_wrong_poses.json").read_bytes())
    assert len(datasets.check(tmp_path).problems) >= 49


def test_a_file_is_no_folder_and_is_told_so(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"photo\.png: is a file; name the folder"):
        datasets.load(tmp_path / "photo.png")
