"""Run folders: what is saved, resumed, refused."""

import json
import signal
from dataclasses import replace

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.errors import CheckpointError, ConfigError, DataError
from fusedplanes.planes.model import FusedPlanes, TriPlanes, load
from fusedplanes.planes.run import data_folder, image_size, make_plan, read_config, train
from fusedplanes.planes.stage_one import StageOne
from fusedplanes.training.log import read_log
from fusedplanes.training.loop import TrainingInterrupted


@pytest.fixture(scope="module")
def run(tmp_path_factory, ellipsoids, small_config):
    out = tmp_path_factory.mktemp("runs") / "ellipsoids"
    train(ellipsoids, out, config=small_config(), watch_seconds=60, quiet=True)
    return out


def tensors_of(run):
    model = load(run)
    everything = dict(model.shared.state_dict())
    for name in model.object_ids:
        everything |= {f"{name}.{key}": value for key, value in model.store.read(name).items()}
    return everything


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_a_run_renders_every_object_it_was_trained_on(run, ellipsoids):
    model = FusedPlanes.load(run)
    assert model.object_ids == ellipsoids.ids
    output = model.render("ellipsoid_1", Cameras.orbit(3, width=16, height=12))
    assert output.color.shape == (3, 12, 16, 3)
    assert output.alpha.shape == output.depth.shape == (3, 3, 4)
    assert output.color.min() >= 0 and output.color.max() <= 1
    single = model.render("ellipsoid_1", Cameras.orbit(3, width=16, height=12)[1])
    torch.testing.assert_close(single.color, output.color[1], atol=1e-5, rtol=0)


def test_the_folder_holds_what_its_description_says(run):
    names = {path.name for path in run.iterdir()}
    assert {"config.json", "checkpoint.json", "objects", "log.jsonl", "preview.png"} <= names
    assert any(name.startswith("shared-") for name in names)
    assert read_config(run).method == "fused-planes"
    assert image_size(run) == 16
    phases = [record.phase for record in read_log(run / "log.jsonl")]
    assert list(dict.fromkeys(phases)) == ["autoencoder", "warm-up", "joint"]


@pytest.mark.parametrize("method", ["fused-planes", "tri-planes"])
def test_two_runs_are_the_same_to_the_last_bit(tmp_path, ellipsoids, small_config, method):
    for name in ("a", "b"):
        train(ellipsoids, tmp_path / name, config=small_config(method), watch_seconds=0, quiet=True)
    assert_same(tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b"))


@pytest.mark.parametrize(("phase", "step"), [("_autoencoder_step", 3), ("_warm_up_step", 2), ("_joint_step", 1)])
def test_stopped_and_resumed_is_the_same_as_straight_through(
    tmp_path, ellipsoids, small_config, run, monkeypatch, phase, step
):
    original = getattr(StageOne, phase)
    seen = []

    def interrupted(self, index):
        seen.append(index)
        # The probe's steps come first; the run's own start at 0 again, after them.
        if index == step and seen.count(index) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, index)

    monkeypatch.setattr(StageOne, phase, interrupted)
    monkeypatch.setattr("fusedplanes.planes.plan.PROBE_SECONDS", 0.0)
    with pytest.raises(TrainingInterrupted, match="--resume"):
        train(ellipsoids, tmp_path / "run", config=small_config(), watch_seconds=0, quiet=True)
    stopped = load(tmp_path / "run")  # usable as it is
    assert stopped.render("ellipsoid_0", Cameras.orbit(1, width=16, height=16)).color.isfinite().all()
    monkeypatch.undo()
    train(ellipsoids, tmp_path / "run", config=small_config(), resume=True, watch_seconds=0, quiet=True)
    assert_same(tensors_of(tmp_path / "run"), tensors_of(run))


def test_a_finished_run_resumed_changes_nothing(tmp_path, ellipsoids, small_config):
    config = small_config("tri-planes")
    train(ellipsoids, tmp_path / "run", config=config, watch_seconds=0, quiet=True)
    before = tensors_of(tmp_path / "run")
    train(ellipsoids, tmp_path / "run", config=config, resume=True, watch_seconds=0, quiet=True)
    assert_same(before, tensors_of(tmp_path / "run"))


def test_the_plan_scales_to_the_minutes_asked_for(ellipsoids, small_config):
    plan = make_plan(small_config(), ellipsoids, minutes=3.0)
    assert plan.seconds == pytest.approx(180, rel=0.05)
    assert plan.objects == 5 and plan.disk_bytes > 5 * plan.object_bytes
    assert "5 objects" in plan.text()
    assert json.loads(json.dumps(plan.to_json()))["seconds"] == pytest.approx(plan.seconds)


def test_a_folder_with_something_in_it_is_never_overwritten_silently(tmp_path, run, ellipsoids, small_config):
    with pytest.raises(ConfigError, match="--resume"):
        train(ellipsoids, run, config=small_config(), quiet=True)
    (tmp_path / "thesis.txt").write_text("all of it")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="choose another"):
            train(ellipsoids, tmp_path, config=small_config(), overwrite=overwrite, quiet=True)
    assert (tmp_path / "thesis.txt").exists()


def test_the_class_that_is_asked_for_must_fit_the_run(tmp_path, run, ellipsoids, small_config):
    with pytest.raises(ConfigError, match=r"fusedplanes\.load"):
        TriPlanes.load(run)
    with pytest.raises(CheckpointError, match="no such run"):
        load(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="--data"):
        data_folder(run)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ('{"format": "other"}', "format is 'other'"),
        ('{"format": "fusedplanes-run", "format_version": 99}', "newer"),
        ('{"format": "fusedplanes-run", "format_version": 1, "method": "voxels"}', "voxels"),
    ],
)
def test_a_damaged_configuration_is_named_in_one_line(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises((CheckpointError, ConfigError, DataError), match=message) as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_unknown_objects_and_impossible_sizes_are_refused(run):
    model = load(run)
    with pytest.raises(DataError, match="'chair'"):
        model.render("chair", Cameras.orbit(1, width=16, height=16))
    with pytest.raises(DataError, match="divisible by the autoencoder's 4"):
        model.render("ellipsoid_0", Cameras.orbit(1, width=17, height=16))


def test_planes_geometry_and_interpolation(run):
    model = load(run)
    config = model.config.model
    planes = model.planes("ellipsoid_0")
    assert planes.shape == (3 * config.channels, config.resolution, config.resolution) and planes.is_contiguous()
    last = model.planes("ellipsoid_0", layout="channels_last")
    torch.testing.assert_close(planes.view(3, config.channels, *planes.shape[1:]), last.permute(0, 3, 1, 2))
    geometry = model.geometry("ellipsoid_0", Cameras.orbit(2, width=20, height=14))
    assert geometry.alpha.shape == (2, 14, 20) and geometry.normals.shape == (2, 14, 20, 3)
    lengths = geometry.normals.norm(dim=-1)
    torch.testing.assert_close(lengths, (geometry.depth > 0).float(), atol=1e-4, rtol=0)
    half = model.interpolate("ellipsoid_0", "ellipsoid_1", 0.5)
    assert model.render(half, Cameras.orbit(1, width=16, height=16)).color.shape == (1, 16, 16, 3)
    ends = model.interpolate("ellipsoid_0", "ellipsoid_1", 1.0)
    camera = Cameras.orbit(1, width=16, height=16)
    expected = model.render("ellipsoid_1", camera).color
    torch.testing.assert_close(model.render(ends, camera).color, expected, atol=1e-5, rtol=0)
    with pytest.raises(ConfigError, match="channels_first"):
        model.planes("ellipsoid_0", layout="sideways")


def test_bytes_are_counted_by_hand(run):
    model = load(run)
    config = model.config.model
    own = 3 * config.resolution**2 * config.micro_channels + config.base_planes
    assert model.object_bytes() == 4 * own and model.object_bytes(bytes_per_value=2) == 2 * own
    with_encoder, without = model.shared_bytes(), model.shared_bytes(encoder=False)
    encoder = sum(p.numel() for p in model.shared.autoencoder.encoder_parameters())
    assert with_encoder - without == 4 * encoder > 0


def test_objects_of_different_sizes_or_without_training_views_are_refused(ellipsoids, small_config, tmp_path):
    item = ellipsoids[0]
    no_training = replace(item, split=("test",) * len(item.split))
    with pytest.raises(DataError, match="no view in split 'train'"):
        train([no_training], tmp_path / "run", config=small_config(), watch_seconds=0, quiet=True)
    with pytest.raises(DataError, match="no objects"):
        train([], tmp_path / "run", config=small_config(), watch_seconds=0, quiet=True)


def test_replacing_a_run_with_data_that_cannot_be_read_keeps_the_run(tmp_path, ellipsoids, small_config):
    out = tmp_path / "run"
    train(ellipsoids, out, config=small_config("tri-planes"), watch_seconds=0, quiet=True)
    before = tensors_of(out)
    with pytest.raises(DataError):
        train([], out, config=small_config("tri-planes"), overwrite=True, watch_seconds=0, quiet=True)
    assert_same(before, tensors_of(out))


@pytest.mark.parametrize("minutes", [-1.0, float("nan"), float("inf")])
def test_impossible_durations_are_refused(tmp_path, ellipsoids, small_config, minutes):
    with pytest.raises(ConfigError, match="minutes"):
        train(ellipsoids, tmp_path / "run", config=small_config(), minutes=minutes, quiet=True)
    assert not (tmp_path / "run").exists()
