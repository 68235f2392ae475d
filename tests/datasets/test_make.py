"""Makers: what they make, that they can be interrupted and resumed, and that no mesh ends the run."""

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext

import pytest
import torch

from fusedplanes import datasets
from fusedplanes.datasets import from_meshes, layout, make, make_class
from fusedplanes.datasets.ids import unique_ids
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.files import is_flat_name

SMALL = {"views": 6, "size": 16, "samples": 2, "quiet": True}


def contents(folder):
    """Every file of a data set and its bytes."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Procedural classes -------------------------------------------------------------------------------------------------


def test_a_class_is_made_and_loaded(tmp_path):
    report = make_class("cars", objects=2, out=tmp_path / "cars", depth=True, **SMALL)
    assert report.made == ("cars_00000", "cars_00001")
    assert (report.skipped, report.failed, report.warnings) == ((), (), ())
    assert report.bytes == sum(len(data) for name, data in contents(tmp_path / "cars").items() if "/" in name)
    assert report.seconds > 0
    dataset = datasets.load(tmp_path / "cars")
    assert dataset.ids == report.made
    assert layout.read_header(dataset.path).split == {"train": 5, "test": 1}
    assert layout.read_header(dataset.path).complete
    item = dataset[0]
    assert item.images.shape == (6, 16, 16, 4)
    assert 0.02 < item.alpha.mean() < 0.6
    # What is covered at a pixel's centre has a depth between the camera and the far side of the box.
    distances = item.depth[item.depth > 0]
    assert distances.min() > 2.7 - 1.56
    assert distances.max() < 2.7 + 1.56
    assert bool((item.depth[item.alpha == 1] > 0).all())
    assert bool((item.depth[item.alpha == 0] == 0).all())
    # All of the object is inside the picture.
    border = torch.cat([item.alpha[:, 0], item.alpha[:, -1], item.alpha[:, :, 0], item.alpha[:, :, -1]], -1)
    assert border.max() == 0


def test_the_same_seed_gives_the_same_files_and_another_other_ones(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_class("cars", objects=1, out=tmp_path / name, seed=seed, **SMALL)
    first, second, other = (contents(tmp_path / name) for name in "abc")
    assert first == second
    assert first["cars_00000/images/003.png"] != other["cars_00000/images/003.png"]


def test_depth_and_colour_fit_across_views(tmp_path):
    """A point seen in one view lies on the surface in another: poses, intrinsics and depth belong together."""
    make_class("cars", objects=1, out=tmp_path, depth=True, **{**SMALL, "views": 24, "size": 48})
    item = datasets.load(tmp_path)[0]
    cameras = item.cameras
    agree = total = 0
    for view in range(6, 18):
        rows, columns = torch.nonzero(item.depth[view], as_tuple=True)
        pixels = torch.stack([columns + 0.5, rows + 0.5, torch.ones_like(rows).float()], -1)
        local = pixels @ torch.linalg.inv(cameras.intrinsics[view]).T * item.depth[view, rows, columns, None]
        world = local @ cameras.camera_to_world[view, :3, :3].T + cameras.camera_to_world[view, :3, 3]
        assert world.abs().max() < 0.91
        other = (view + 1) % 24
        back = torch.linalg.inv(cameras.camera_to_world[other])
        seen = world @ back[:3, :3].T + back[:3, 3]
        projected = seen @ cameras.intrinsics[other].T
        column = (projected[:, 0] / projected[:, 2]).long().clamp(0, 47)
        row = (projected[:, 1] / projected[:, 2]).long().clamp(0, 47)
        # The nearest surface within a pixel of where the point is seen.
        distance = torch.where(item.depth[other] > 0, item.depth[other], 99.0)
        surface = -torch.nn.functional.max_pool2d(-distance[None], 3, stride=1, padding=1)[0][row, column]
        total += len(seen)
        # The point is on that surface or hidden behind it, never in front of it.
        agree += (seen[:, 2] > surface - 0.03).sum().item()
    assert total > 1000
    assert agree / total > 0.995


def test_a_larger_number_of_objects_extends_and_a_smaller_one_drops_nothing(tmp_path):
    make_class("cars", objects=1, out=tmp_path, **SMALL)
    before = contents(tmp_path)
    report = make_class("cars", objects=3, out=tmp_path, **SMALL)
    assert (report.made, report.skipped) == (("cars_00001", "cars_00002"), ("cars_00000",))
    after = contents(tmp_path)
    assert {name: after[name] for name in before if "/" in name} == {n: b for n, b in before.items() if "/" in n}
    assert make_class("cars", objects=2, out=tmp_path, **SMALL).made == ()
    assert datasets.load(tmp_path).ids == ("cars_00000", "cars_00001", "cars_00002")


def test_other_options_need_another_folder_or_overwrite(tmp_path):
    make_class("cars", objects=2, out=tmp_path, **SMALL)
    with pytest.raises(DataError, match=r"was made with size 16, not 24; .*--overwrite"):
        make_class("cars", objects=2, out=tmp_path, **{**SMALL, "size": 24})
    with pytest.raises(DataError, match="was made with seed 0, not 1"):
        make_class("cars", objects=2, out=tmp_path, seed=1, **SMALL)
    report = make_class("cars", objects=1, out=tmp_path, overwrite=True, **{**SMALL, "size": 24})
    assert report.made == ("cars_00000",)
    assert datasets.load(tmp_path).ids == ("cars_00000",)
    assert datasets.load(tmp_path)[0].images.shape == (6, 24, 24, 4)
    assert not (tmp_path / "cars_00001").exists()


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"holds 'thesis.tex' and is no data set"):
            make_class("cars", objects=1, out=tmp_path, overwrite=overwrite, **SMALL)
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}
    with pytest.raises(DataError, match="cannot be made"):
        make_class("cars", objects=1, out=tmp_path / "thesis.tex" / "cars", **SMALL)


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    with make._sole_writer(tmp_path), pytest.raises(DataError, match="another run is writing here"):
        make_class("cars", objects=1, out=tmp_path, **SMALL)
    assert make_class("cars", objects=1, out=tmp_path, **SMALL).made == ("cars_00000",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "dragons"}, r"class 'dragons': choose one of .*cars"),
        ({"objects": 0}, "objects 0"),
        ({"seed": -1}, "seed -1"),
        ({"views": 0}, "views 0"),
        ({"size": 0}, "size 0"),
        ({"size": 9000}, "at most 8192"),
        ({"size": 8192, "views": 100}, "exceed 16 GiB"),
        ({"cameras": "ring"}, "cameras 'ring'"),
        ({"lighting": "dark"}, "lighting 'dark'"),
        ({"samples": 99}, "samples 99"),
        ({"workers": 0}, "workers 0"),
    ],
)
def test_options_out_of_range_are_named_before_anything_is_written(tmp_path, changes, message):
    arguments = {"name": "cars", "objects": 1, "out": tmp_path / "out", **SMALL, **changes}
    with pytest.raises(ConfigError, match=message):
        make_class(arguments.pop("name"), **arguments)
    assert not (tmp_path / "out").exists()


def test_without_embree_the_rasteriser_makes_the_same_pictures(tmp_path, monkeypatch):
    make_class("cars", objects=1, out=tmp_path / "cast", **SMALL)
    monkeypatch.setattr(make.ray_cast, "is_available", lambda: False)
    make_class("cars", objects=1, out=tmp_path / "drawn", **SMALL)
    cast, drawn = (datasets.load(tmp_path / name)[0].images for name in ("cast", "drawn"))
    assert ((cast - drawn).abs() > 1.5 / 255).float().mean() < 0.002


def test_paper_cameras_have_the_published_number_of_views(tmp_path):
    options = {**SMALL, "size": 8, "samples": 1}
    del options["views"]
    make_class("cars", objects=1, out=tmp_path, cameras="paper", **options)
    item = datasets.load(tmp_path)[0]
    assert (item.split.count("train"), item.split.count("test")) == (144, 16)
    assert torch.allclose(item.cameras.positions.norm(dim=-1), torch.tensor(1.3))
    assert item.alpha[:, 0].max() == 0


# Mesh folders -------------------------------------------------------------------------------------------------------


@pytest.fixture
def collection(tmp_path, textured_quad, write_glb):
    """Three readable meshes of two formats, one broken, and files that are none, in ``tmp_path / "meshes"``."""
    textured_quad("meshes/a/model_normalized.glb")
    textured_quad("meshes/b/model_normalized.glb")
    folder = tmp_path / "meshes"
    (folder / "c.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\nmtllib gone.mtl\n")
    (folder / "a/broken.GLB").write_bytes(b"glTF\2\0\0\0")
    (folder / "a/notes.txt").write_text("no mesh")
    (folder / ".hidden").mkdir()
    shutil.copy(folder / "c.obj", folder / ".hidden/d.obj")
    shutil.copy(folder / "c.obj", folder / "._c.obj")
    return folder


def test_a_folder_of_meshes_is_made_and_a_broken_one_reported(tmp_path, collection):
    report = from_meshes(collection, tmp_path / "out", licence="CC0-1.0", **SMALL)
    assert report.made == ("a_model_normalized", "b_model_normalized", "c")
    assert [failure.source for failure in report.failed] == ["a/broken.GLB"]
    assert report.failed[0].reason == "the file is cut off in its header"
    assert report.warnings == ("c.obj: gone.mtl: no such file; a plain colour stands in",)
    dataset = datasets.load(tmp_path / "out")
    assert dataset.ids == report.made
    assert dataset.licence == "CC0-1.0"
    assert layout.read_header(dataset.path).failed == (
        {"source": "a/broken.GLB", "reason": "the file is cut off in its header"},
    )
    # The way back to the file's coordinates is kept: the quad's corner (1, 1, 0) is at the upper right.
    item = dataset["a_model_normalized"]
    corner = item.world_from_source @ torch.tensor([1.0, 1, 0, 1]).double()
    assert corner[0] == pytest.approx(corner[2].item())
    assert 0.5 < corner[0] <= 0.9
    transforms = json.loads((tmp_path / "out/c/transforms.json").read_text())
    assert transforms["source_file"] == "c.obj"


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, collection, monkeypatch):
    whole = tmp_path / "whole"
    from_meshes(collection, whole, **SMALL)
    out = tmp_path / "out"
    original, calls = make._make_object, []

    def interrupted(source, *arguments):
        calls.append(source.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(source, *arguments)

    monkeypatch.setattr(make, "_make_object", interrupted)
    with pytest.raises(KeyboardInterrupt):
        from_meshes(collection, out, **SMALL)
    (out / ".partial-b_model_normalized/images").mkdir(parents=True)
    partly = datasets.load(out)
    assert partly.ids == ("a_model_normalized",)
    assert not layout.read_header(partly.path).complete
    monkeypatch.undo()
    report = from_meshes(collection, out, **SMALL)
    assert (report.made, report.skipped) == (("b_model_normalized", "c"), ("a_model_normalized",))
    assert contents(out) == contents(whole)


def test_a_file_added_since_is_made_by_the_next_run(tmp_path, collection, textured_quad):
    from_meshes(collection, tmp_path / "out", **SMALL)
    textured_quad("meshes/a/new.glb")
    report = from_meshes(collection, tmp_path / "out", **SMALL)
    assert report.made == ("a_new",)
    assert datasets.load(tmp_path / "out").ids == ("a_model_normalized", "a_new", "b_model_normalized", "c")


def test_nothing_to_make_is_an_error(tmp_path, collection):
    with pytest.raises(
        DataError, match=r"none of 1 mesh files could be made; the first, broken.GLB: the file is cut off"
    ):
        from_meshes_only(collection, tmp_path, "a/broken.GLB")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no mesh files found; expected \.glb, \.gltf, \.obj"):
        from_meshes(tmp_path / "empty", tmp_path / "out", **SMALL)
    with pytest.raises(DataError, match="no such folder"):
        from_meshes(tmp_path / "gone", tmp_path / "out", **SMALL)
    with pytest.raises(ConfigError, match="up 'x'"):
        from_meshes(collection, tmp_path / "out", up="x", **SMALL)


def from_meshes_only(collection, tmp_path, name):
    (tmp_path / "only").mkdir()
    shutil.copy(collection / name, tmp_path / "only")
    return from_meshes(tmp_path / "only", tmp_path / "only_out", **SMALL)


def test_an_invisible_mesh_and_a_failing_reader_are_reported(tmp_path, collection, write_glb, gltf, monkeypatch):
    glass = {"alphaMode": "BLEND", "pbrMetallicRoughness": {"baseColorFactor": [1, 1, 1, 0.1]}}
    write_glb(*gltf([(0, 0, 0), (1, 0, 0), (0, 1, 0)], material=glass), "meshes/glass.glb")
    original = make.load_mesh

    def load_mesh(path, **keywords):
        if path.name == "c.obj":
            raise ZeroDivisionError("by\nzero")
        return original(path, **keywords)

    monkeypatch.setattr(make, "load_mesh", load_mesh)
    report = from_meshes(collection, tmp_path / "out", **SMALL)
    reasons = {failure.source: failure.reason for failure in report.failed}
    assert reasons["glass.glb"].startswith("nothing is visible")
    assert reasons["c.obj"] == "ZeroDivisionError: by zero"
    assert len(report.made) == 2


def test_a_full_disk_ends_the_run_and_keeps_what_is_done(tmp_path, collection, monkeypatch):
    original, calls = layout.write_object, []

    def write_object(*arguments, **keywords):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return original(*arguments, **keywords)

    monkeypatch.setattr(layout, "write_object", write_object)
    with pytest.raises(DataError, match=r"out: cannot be written \(No space left"):
        from_meshes(collection, tmp_path / "out", **SMALL)
    assert datasets.load(tmp_path / "out").ids == ("a_model_normalized",)


def test_shapenet_s_textures_beside_the_models_folder_are_found(tmp_path, gltf, write_glb, png, four_colors):
    document, blob = gltf(
        [(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)],
        [(0, 1, 2), (0, 2, 3)],
        attributes={"TEXCOORD_0": [(0, 1), (1, 1), (1, 0), (0, 0)]},
        material={"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}},
        images=[b""],
    )
    document["images"] = [{"uri": "../images/t.png"}]
    for item in ("x/1a", "x/2b"):
        write_glb(document, blob, f"collection/{item}/models/model_normalized.glb")
        images = tmp_path / "collection" / item / "images"
        images.mkdir()
        (images / "t.png").write_bytes(png(four_colors))
    report = from_meshes(tmp_path / "collection", tmp_path / "out", **SMALL)
    assert report.made == ("x_1a_models_model_normalized", "x_2b_models_model_normalized")
    assert report.warnings == ()
    # Where "models" is the collection itself, what lies beside it is none of its business.
    report = from_meshes(tmp_path / "collection/x/1a/models", tmp_path / "out2", **SMALL)
    assert len(report.warnings) == 1
    assert "leads out" in report.warnings[0]


# Ids ----------------------------------------------------------------------------------------------------------------


def test_ids_are_plain_and_unique():
    names = [
        "a/b.glb",
        "a_b.obj",
        "a/B.glb",
        "car one (new).glb",
        "Müller/größe.ply",
        "модель/車.stl",
        ".../x.obj",
        "-rf.obj",
        "???.obj",
        "!!!.obj",
        f"{'very_long_folder_name/' * 12}model.obj",
        "a\x1b[31m.glb",
        "bad\udcff.glb",
    ]
    ids = unique_ids(names)
    assert list(ids) == names
    assert len({item.casefold() for item in ids.values()}) == len(names)
    assert all(is_flat_name(item) for item in ids.values())
    assert all(item.isprintable() for item in ids.values())
    assert ids["car one (new).glb"] == "car_one__new_"
    assert ids["Müller/größe.ply"] == "Müller_größe"
    assert ids["a/b.glb"].startswith("a_b-")
    # An id does not depend on what else there is, unless it would be the same.
    assert unique_ids(names[3:])["Müller/größe.ply"] == "Müller_größe"


# Worker processes ---------------------------------------------------------------------------------------------------


KILLER = """
import json, multiprocessing, os, signal, sys
from dataclasses import asdict
from pathlib import Path
from fusedplanes.datasets import make

original = make.load_mesh

def load_mesh(path, **keywords):
    if path.parent.name == "b":
        assert multiprocessing.parent_process() is not None
        os.kill(os.getpid(), signal.SIGKILL)
    return original(path, **keywords)

make.load_mesh = load_mesh
make._WORKERS_PAY_FROM_SECONDS = 0.0

if __name__ == "__main__":
    report = make.from_meshes(sys.argv[1], sys.argv[2], workers=2, views=6, size=16, samples=2)
    print(json.dumps(asdict(report)))
"""


def test_workers_make_the_same_and_one_that_dies_costs_its_object_only(tmp_path, collection):
    """A mesh that takes its process down (here: by a kill) is reported; all others are made."""
    from_meshes(collection, tmp_path / "alone", **SMALL)
    (tmp_path / "killer.py").write_text(KILLER)
    command = [sys.executable, tmp_path / "killer.py", collection, tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [failure["source"] for failure in report["failed"]] == ["a/broken.GLB", "b/model_normalized.glb"]
    assert "its worker process died" in report["failed"][1]["reason"]
    assert sorted(report["made"]) == ["a_model_normalized", "c"]
    # The prediction and the failures are told on standard error, a line each.
    assert re.search(r"1 object is made; 2 more of 6 views: about \d+ s and 0 MB with 2 processes", result.stderr)
    assert "b/model_normalized.glb: failed: its worker process died" in result.stderr
    assert datasets.load(tmp_path / "out").ids == ("a_model_normalized", "c")
    alone, together = contents(tmp_path / "alone"), contents(tmp_path / "out")
    assert {n: b for n, b in together.items() if "/" in n} == {
        n: b for n, b in alone.items() if "/" in n and not n.startswith("b_")
    }


def test_where_no_worker_can_start_the_objects_are_made_here(tmp_path, collection, monkeypatch, capfd):
    """As in a script without a main guard, whose workers die at once."""

    class Dead:
        def submit(self, *arguments):
            raise BrokenProcessPool

    monkeypatch.setattr(make, "_WORKERS_PAY_FROM_SECONDS", 0.0)
    monkeypatch.setattr(make, "_pool", lambda workers: nullcontext(Dead()))
    report = from_meshes(collection, tmp_path / "out", workers=2, **{**SMALL, "quiet": False})
    assert report.made == ("a_model_normalized", "b_model_normalized", "c")
    assert "worker processes cannot start here" in capfd.readouterr().err


def test_quiet_says_nothing(tmp_path, collection, capfd):
    from_meshes(collection, tmp_path / "out", **SMALL)
    assert capfd.readouterr() == ("", "")
