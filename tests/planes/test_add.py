"""New objects for a trained class: what moves, what must not, and what is stored."""

import contextlib
import json
import shutil
import signal
from dataclasses import replace

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.cli import add as command
from fusedplanes.errors import CheckpointError, ConfigError, DataError
from fusedplanes.fields import ObjectPlanes
from fusedplanes.planes import add as adding
from fusedplanes.planes.add import add
from fusedplanes.planes.model import load
from fusedplanes.planes.run import train
from fusedplanes.planes.run_folder import FINISHED
from fusedplanes.planes.stage_one import DATA_DIGEST, step_generator
from fusedplanes.planes.stage_two import StageTwo
from fusedplanes.planes.weights_start import least_squares_weights
from fusedplanes.training.checkpoint import load_checkpoint, save_checkpoint
from fusedplanes.training.loop import TrainingInterrupted


class Chosen:
    """Some objects of a data set."""

    def __init__(self, dataset, ids):
        self.dataset, self.ids = dataset, list(ids)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, key):
        return self.dataset[key if isinstance(key, str) else self.ids[key]]

    def __iter__(self):
        return (self.dataset[name] for name in self.ids)


@pytest.fixture(params=["fused-planes", "ulw", "tri-planes"])
def method(request):
    return request.param


@pytest.fixture(scope="module")
def originals(tmp_path_factory, ellipsoids, small_config):
    """A run of each method on the first three objects, trained when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), set()

    def original(method):
        if method not in made:
            old = Chosen(ellipsoids, ellipsoids.ids[:3])
            train(old, folder / method, config=small_config(method), watch_seconds=0, quiet=True)
            made.add(method)
        return folder / method

    return original


@pytest.fixture
def run(tmp_path, originals, method):
    return shutil.copytree(originals(method), tmp_path / "run")


def records_of(run):
    model = load(run)
    return {name: model.store.read(name) for name in model.object_ids}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_new_objects_are_stored_and_nothing_else_changes(run, ellipsoids):
    before, shared = records_of(run), load(run).shared.state_dict()
    summary = add(run, ellipsoids, quiet=True)
    assert summary.added == ("ellipsoid_3", "ellipsoid_4")
    assert summary.skipped == ("ellipsoid_0", "ellipsoid_1", "ellipsoid_2")
    model = load(run)
    assert model.object_ids == ellipsoids.ids
    assert same(shared, model.shared.state_dict())
    after = records_of(run)
    assert all(same(before[name], after[name]) for name in before)
    assert (
        not torch.equal(after["ellipsoid_3"]["micro_planes"], after["ellipsoid_4"]["micro_planes"])
        or model.config.method == "ulw"
    )
    assert model.render("ellipsoid_4", Cameras.orbit(2, width=16, height=16)).color.isfinite().all()
    again = add(run, ellipsoids, quiet=True)
    assert again.added == () and len(again.skipped) == 5


def test_objects_that_are_added_in_groups_are_stored_group_by_group(run, ellipsoids, monkeypatch):
    monkeypatch.setattr(adding, "GROUP", 1)
    steps = []
    original = StageTwo._update

    def interrupted(self, *arguments):
        steps.append(self.table.ids[0])
        if steps[-1] == "ellipsoid_4":
            signal.raise_signal(signal.SIGINT)
        return original(self, *arguments)

    monkeypatch.setattr(StageTwo, "_update", interrupted)
    with pytest.raises(TrainingInterrupted, match="fusedplanes add"):
        add(run, ellipsoids, share=2, quiet=True)
    assert load(run).object_ids == ellipsoids.ids[:4]
    monkeypatch.undo()
    assert add(run, ellipsoids, quiet=True).added == ("ellipsoid_4",)


def test_two_additions_are_the_same_to_the_last_bit(run, ellipsoids, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    add(run, ellipsoids, quiet=True)
    add(tmp_path / "copy", ellipsoids, quiet=True)
    first, second = records_of(run), records_of(tmp_path / "copy")
    assert all(same(first[name], second[name]) for name in first)


@pytest.mark.parametrize("method", ["fused-planes"], indirect=True)
def test_training_the_shared_parts_on_says_what_it_cost_the_old_objects(run, ellipsoids):
    old = Chosen(ellipsoids, ellipsoids.ids[:3])
    shared = load(run).shared.state_dict()
    summary = add(run, ellipsoids, finetune_base=True, check_on=old, share=2, quiet=True)
    assert not torch.equal(shared["base_planes"], load(run).shared.base_planes)
    assert summary.old_before != summary.old_after
    assert "the objects of before went from" in summary.text()
    assert json.loads(json.dumps(summary.to_json()))["old_after"]["psnr"] == summary.old_after.psnr


@pytest.mark.parametrize("method", ["fused-planes", "ulw"], indirect=True)
def test_weights_alone_leave_micro_planes_at_zero(run, ellipsoids):
    model, item = load(run), ellipsoids["ellipsoid_4"]
    random = torch.get_rng_state()
    only_weights = model.fit(item.images, item.cameras, mode="weights")
    assert not only_weights.micro_planes.any()
    assert torch.equal(torch.get_rng_state(), random)
    both = model.fit(item.images, item.cameras)
    assert bool(both.micro_planes.any()) is (model.config.method == "fused-planes")
    assert model.object_ids == ellipsoids.ids[:3]
    opaque = model.fit(item.images[:1, :, :, :3], item.cameras[:1], mode="weights", seed=3)
    assert model.render(opaque, Cameras.orbit(1, width=16, height=16)).color.isfinite().all()


@pytest.mark.parametrize("method", ["fused-planes", "ulw"], indirect=True)
def test_least_squares_finds_the_weights_that_made_the_images(run, ellipsoids):
    model, cameras = load(run), ellipsoids["ellipsoid_4"].cameras
    known = torch.stack([record["weights"] for record in model.store.read_many(model.object_ids).values()])
    empty = torch.zeros_like(model.object_planes("ellipsoid_0").micro_planes)
    made = ObjectPlanes(empty, known.mean(0) + 0.5 * torch.randn(known.shape[1]))
    images = model.render(made, cameras).color
    found = least_squares_weights(model, images, cameras, known, step_generator(0, "start", 0))

    def error(weights):
        return float((model.render(ObjectPlanes(empty, weights), cameras).color - images).square().mean())

    assert error(found) < 0.2 * error(known.mean(0))


@pytest.mark.parametrize("method", ["ulw"], indirect=True)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, cameras: (images * 255, cameras), "values outside"),
        (lambda images, cameras: (images.to(torch.uint8), cameras), "expected floats"),
        (lambda images, cameras: (images[0], cameras), "expected floats"),
        (lambda images, cameras: (images[:, :8], cameras), "expected the same"),
        (lambda images, cameras: (images[:2], cameras), "expected the same"),
        (lambda images, cameras: (images[:0], cameras[:0]), "at least 1 long"),
        (lambda images, cameras: (images[..., :2], cameras), "expected floats"),
        (lambda images, cameras: (images * float("nan"), cameras), "not finite"),
        (lambda images, cameras: (images[:, ::2, ::2], replace(cameras, width=8, height=8)), "trained on 16x16"),
        (lambda images, cameras: ([["a"]], cameras), "expected a tensor"),
    ],
)
def test_impossible_views_are_refused(run, ellipsoids, change, message):
    item = ellipsoids["ellipsoid_4"]
    with pytest.raises(DataError, match=message):
        load(run).fit(*change(item.images, item.cameras))
    with pytest.raises(DataError, match=r"expected fusedplanes\.Cameras, not str"):
        load(run).fit(item.images, "cameras")


@pytest.mark.parametrize("method", ["ulw"], indirect=True)
def test_impossible_additions_are_refused(run, ellipsoids, tmp_path):
    with pytest.raises(ConfigError, match="mode 'micro' does not exist"):
        add(run, ellipsoids, mode="micro", quiet=True)
    for share in (0, -1, float("nan"), 1e9):
        with pytest.raises(ConfigError, match="share"):
            add(run, ellipsoids, share=share, quiet=True)
    with pytest.raises(CheckpointError, match="no run folder"):
        add(tmp_path / "nothing", ellipsoids, quiet=True)
    larger = type(ellipsoids)(5, size=32)
    with pytest.raises(DataError, match="images of 32x32 pixels; this run was trained on 16x16"):
        add(run, larger, quiet=True)
    assert load(run).object_ids == ellipsoids.ids[:3]


class Changed(Chosen):
    """A data set in which one object has been changed."""

    def __init__(self, dataset, id, change):
        super().__init__(dataset, dataset.ids)
        self.id, self.change = id, change

    def __getitem__(self, key):
        item = super().__getitem__(key)
        return self.change(item) if item.id == self.id else item

    def __iter__(self):
        return (self[name] for name in self.ids)


def moved(item):
    pose = item.cameras.camera_to_world.clone()
    pose[:, :3, 3] *= 1.1
    return replace(item, cameras=replace(item.cameras, camera_to_world=pose))


@pytest.mark.parametrize("change", [lambda item: replace(item, images=item.images.flip(1)), moved])
def test_another_object_of_a_stored_name_is_refused_before_anything_is_trained(run, ellipsoids, change):
    changed = Changed(ellipsoids, "ellipsoid_1", change)
    with pytest.raises(DataError, match="has an object 'ellipsoid_1' from other images or cameras"):
        add(run, changed, quiet=True)
    assert load(run).object_ids == ellipsoids.ids[:3]
    # What was added knows its images, too.
    assert "(ellipsoid_0, ellipsoid_1, ellipsoid_2)" in add(run, ellipsoids, quiet=True).text()
    with pytest.raises(DataError, match="'ellipsoid_4'"):
        add(run, Changed(Chosen(ellipsoids, ["ellipsoid_4"]), "ellipsoid_4", change), quiet=True)
    # Last bits of cameras depend on the processor that computed them.
    nearly = Changed(ellipsoids, "ellipsoid_1", lambda item: replace(item, cameras=nudged(item.cameras)))
    assert len(add(run, nearly, quiet=True).skipped) == 5


def nudged(cameras):
    return replace(cameras, camera_to_world=cameras.camera_to_world * (1 + 1e-7))


@pytest.mark.parametrize("method", ["ulw"], indirect=True)
def test_objects_of_before_digests_are_passed_over(run, ellipsoids):
    checkpoint = load_checkpoint(run)
    with contextlib.closing(checkpoint.store(writable=True)) as store:
        records = store.read_many(store.ids)
        for record in records.values():
            del record[DATA_DIGEST]
        store.write_many(records)
        save_checkpoint(run, store, phase=FINISHED, step=0, shared=checkpoint.shared(), metadata=checkpoint.metadata)
    changed = Changed(ellipsoids, "ellipsoid_1", lambda item: replace(item, images=item.images.flip(1)))
    assert add(run, changed, quiet=True).added == ("ellipsoid_3", "ellipsoid_4")


@pytest.mark.parametrize("method", ["ulw"], indirect=True)
def test_the_command_adds_and_reports(run, tmp_path, ellipsoids, capsys):
    from fusedplanes.datasets import layout

    for name in ("ellipsoid_3", "ellipsoid_4"):
        layout.write_object(tmp_path / "data", ellipsoids[name])
    header = layout.DatasetHeader(("ellipsoid_3", "ellipsoid_4"), 16, {"train": 12, "test": 3}, None, {})
    layout.write_header(tmp_path / "data", header)
    command.main([str(run), str(tmp_path / "data"), "--json", "--size", "16", "--mode", "weights"])
    assert json.loads(capsys.readouterr().out)["added"] == ["ellipsoid_3", "ellipsoid_4"]
    command.main([str(run), str(tmp_path / "data"), "--size", "16"])
    assert "0 objects added" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [{"share": float("nan")}, {"share": -1.0}, {"seed": 1.5}, {"seed": -1}, {"mode": "x"}]
)
def test_impossible_arguments_of_a_fit_are_refused(run, ellipsoids, arguments):
    item = ellipsoids["ellipsoid_4"]
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        load(run).fit(item.images, item.cameras, **arguments)
