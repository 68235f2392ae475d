"""Run folders: what is saved, resumed, refused."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.errors import CheckpointError, ConfigError, DataError
from fusedplanes.planes import run_folder as reading
from fusedplanes.planes.model import FusedPlanes, TriPlanes, load
from fusedplanes.planes.run import make_plan, train
from fusedplanes.planes.run_folder import data_folders, image_size, read_config
from fusedplanes.planes.stage_one import StageOne
from fusedplanes.training import checkpoint as checkpoint_files
from fusedplanes.training.checkpoint import load_checkpoint, save_checkpoint
from fusedplanes.training.log import read_log
from fusedplanes.training.loop import TrainingInterrupted
from fusedplanes.training.object_store import MemoryObjectStore


@pytest.fixture(scope="module")
def run(tmp_path_factory, ellipsoids, small_config):
    out = tmp_path_factory.mktemp("runs") / "ellipsoids"
    train(ellipsoids, out, config=small_config(), watch_seconds=60, quiet=True)
    return out


class Listed(list):
    """A data set of given objects."""

    @property
    def ids(self):
        return [item.id for item in self]

    def __getitem__(self, key):
        return super().__getitem__(self.ids.index(key) if isinstance(key, str) else key)


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
    first = train(ellipsoids, tmp_path / "run", config=config, quiet=True)
    assert first.held_out_psnr > 5
    run = tmp_path / "run"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    again = train(ellipsoids, run, config=config, resume=True, quiet=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert again == first


def test_the_plan_scales_to_the_minutes_asked_for(ellipsoids, small_config):
    plan = make_plan(small_config(), ellipsoids, minutes=3.0)
    assert plan.seconds == pytest.approx(180, rel=0.05)
    assert plan.objects == 5 and plan.disk_bytes > 5 * plan.object_bytes
    assert "5 objects" in plan.text()
    assert json.loads(json.dumps(plan.to_json()))["seconds"] == pytest.approx(plan.seconds)


@pytest.mark.parametrize("method", ["fused-planes", "tri-planes"])
def test_the_plan_counts_what_every_object_keeps_in_memory(ellipsoids, small_config, monkeypatch, method):
    monkeypatch.setattr("fusedplanes.planes.plan.peak_memory", lambda: 0)
    monkeypatch.setattr("fusedplanes.planes.plan.PROBE_OBJECTS", 2)
    plan = make_plan(small_config(method), ellipsoids)
    views, cells, channels = 12, 4 * 4, 4
    latents = views * cells * channels * (4 + 2 + 2) + views * cells  # standardised, mean, log-variance; covered or not
    cached = latents if method == "fused-planes" else views * 16 * 16
    assert plan.peak_memory_bytes == 3 * (3 * plan.object_bytes + cached)


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
    with pytest.raises(CheckpointError, match="no run folder"):
        load(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="--data"):
        data_folders(run)


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


def test_runs_of_before_licences_were_kept_say_that_they_are_unknown(tmp_path, run):
    out = shutil.copytree(run, tmp_path / "run")
    value = json.loads((out / "config.json").read_text())
    del value["data_licences"]
    (out / "config.json").write_text(json.dumps({**value, "data": str(tmp_path / "cars")}))
    (record,) = load(out).licences
    assert (record.kind, record.name, record.licence) == ("data", "cars", "unknown")


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
    training_only = Listed([replace(item, split=("train",) * len(item.split))])
    with pytest.raises(DataError, match="no view in split 'test' to preview"):
        train(training_only, tmp_path / "run", config=small_config(), quiet=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match="no objects"):
        train([], tmp_path / "run", config=small_config(), watch_seconds=0, quiet=True)


def test_replacing_a_run_with_data_that_cannot_be_read_keeps_the_run(tmp_path, ellipsoids, small_config):
    out = tmp_path / "run"
    train(ellipsoids, out, config=small_config("tri-planes"), watch_seconds=0, quiet=True)
    before = tensors_of(out)
    with pytest.raises(DataError):
        train([], out, config=small_config("tri-planes"), overwrite=True, watch_seconds=0, quiet=True)
    assert_same(before, tensors_of(out))


@pytest.mark.parametrize("name", ["minutes", "watch_seconds"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_durations_are_refused(tmp_path, ellipsoids, small_config, name, value):
    with pytest.raises(ConfigError, match=name.split("_")[0]):
        train(ellipsoids, tmp_path / "run", config=small_config(), quiet=True, **{name: value})
    assert not (tmp_path / "run").exists()


# What a run was started with ------------------------------------------------------------------------------------------


def darker(item):
    return replace(item, images=item.images * 0.9)


def fewer_views(item):
    keep = torch.arange(len(item.split) - 5)
    return replace(item, images=item.images[keep], cameras=item.cameras[keep], split=item.split[:-5])


def moved(item):
    poses = item.cameras.camera_to_world.clone()
    poses[:, 0, 3] += 1e-3
    return replace(item, cameras=replace(item.cameras, camera_to_world=poses))


@pytest.mark.parametrize(
    "change",
    [
        lambda items: [darker(items[0]), *items[1:]],
        lambda items: [moved(items[0]), *items[1:]],
        lambda items: [fewer_views(item) for item in items],
        lambda items: items[::-1],
        lambda items: items[:-1],
        lambda items: [*items, replace(items[0], id="extra")],
    ],
)
def test_a_run_does_not_go_on_with_other_data(stopped, ellipsoids, small_config, change):
    data = Listed(change(list(ellipsoids)))
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"the data set in memory.* has changed since the run began"):
        train(data, stopped, config=small_config("tri-planes"), resume=True, watch_seconds=0, quiet=True)
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_stopped_before_its_first_checkpoint_begins_anew(tmp_path, ellipsoids, small_config, resume):
    out = tmp_path / "run"
    config = small_config("tri-planes")
    train(ellipsoids, out, config=config, watch_seconds=0, quiet=True)
    expected = tensors_of(out)
    for path in out.iterdir():
        if path.name not in ("config.json", "objects"):
            path.unlink()
    train(ellipsoids, out, config=config, resume=resume, watch_seconds=0, quiet=True)
    assert_same(expected, tensors_of(out))


@pytest.mark.parametrize(("resume", "error"), [(True, CheckpointError), (False, ConfigError)])
def test_a_run_that_has_lost_its_manifest_is_not_thrown_away(stopped, ellipsoids, small_config, resume, error):
    (stopped / "checkpoint.json").unlink()
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(error, match=r"no checkpoint\.json here|holds a run already"):
        train(ellipsoids, stopped, config=small_config("tri-planes"), resume=resume, watch_seconds=0, quiet=True)
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


def test_a_run_that_is_being_written_is_not_replaced(stopped, ellipsoids, small_config):
    from fusedplanes.training.object_store import hold_for_writing

    with hold_for_writing(stopped / "objects"), pytest.raises(CheckpointError, match="another process is training"):
        train(ellipsoids, stopped, config=small_config("tri-planes"), overwrite=True, watch_seconds=0, quiet=True)
    assert load(stopped).object_ids == ellipsoids.ids


# Files that were changed from outside ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("autoencoder", {"width": 10**12}, "width=1000000000000; it must be at most"),
        ("autoencoder", {"width": 10**400}, "not a valid value|at most"),
        ("autoencoder", {"decoder_blocks": 10**12}, "decoder_blocks=1000000000000"),
        ("autoencoder", {"kernel_size": 1001}, "kernel_size=1001"),
        ("autoencoder", {"width": 4096, "encoder_blocks": 64}, "blocks hold more than"),
        ("autoencoder", {"width": 1024}, "the shared tensors do not fit"),
        (None, {"background": [1.0, 1.0]}, "background"),
        (None, {"background": [1.0, 1.0, 1.0, 1.0]}, "background"),
        (None, {"background": [1.0, float("nan"), 1.0]}, "background"),
        (None, {"background": [-5, 0, 0]}, "background"),
        (None, {"background": [10**400, 0, 0]}, "background"),
    ],
)
def test_impossible_sizes_are_refused_before_anything_is_made(tmp_path, run, part, change, message):
    out = tmp_path / "run"
    shutil.copytree(run, out)
    value = json.loads((out / "config.json").read_text())
    (value["model"] if part is None else value["model"][part]).update(change)
    (out / "config.json").write_text(json.dumps(value))
    with pytest.raises((ConfigError, CheckpointError), match=message) as error:
        load(out)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("micro_planes", None, "micro_planes"),
        ("weights", None, "weights"),
        ("micro_planes", lambda t: t[:, :4], "has shape"),
        ("weights", lambda t: t[:-1], "has shape"),
        ("weights", lambda t: t.long(), "expected a tensor of floats"),
        ("micro_planes", lambda t: t * float("nan"), "not finite"),
        ("decoder.hidden_weight", lambda _: torch.zeros(2, 2), "decoder.hidden_weight"),
    ],
)
def test_records_that_do_not_fit_the_model_are_refused(run, name, change, message):
    model = load(run)
    record = dict(model.store.read("ellipsoid_0"))
    if change is None:
        del record[name]
    else:
        record[name] = change(record.get(name))
    other = load(run)
    other.store = MemoryObjectStore()
    other.store.write_many({"ellipsoid_0": record})
    with pytest.raises(CheckpointError, match=message):
        other.render("ellipsoid_0", Cameras.orbit(1, width=16, height=16))


@pytest.mark.parametrize("value", [-1.0, 0.0])
def test_shared_tensors_with_impossible_values_are_refused(tmp_path, run, value):
    out = tmp_path / "run"
    shutil.copytree(run, out)
    checkpoint = load_checkpoint(out)
    shared = dict(checkpoint.shared())
    shared["latent_scale"] = torch.full_like(shared["latent_scale"], value)
    with contextlib.closing(checkpoint.store(writable=True)) as store:
        save_checkpoint(out, store, phase="finished", step=0, shared=shared)
    with pytest.raises(CheckpointError, match="'latent_scale' holds impossible values"):
        load(out)


# Whatever the caller's process looks like -----------------------------------------------------------------------------


def everything(model):
    cameras = Cameras.orbit(2, width=16, height=16)
    output, surface = model.render("ellipsoid_1", cameras), model.geometry("ellipsoid_1", cameras)
    return {"color": output.color, "alpha": output.alpha, "depth": output.depth, "normals": surface.normals}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_torch_s_default_dtype_changes_nothing(tmp_path, run, ellipsoids, small_config, dtype):
    expected = everything(load(run))
    torch.set_default_dtype(dtype)
    try:
        assert_same(everything(load(run)), expected)
        train(ellipsoids, tmp_path / "run", config=small_config("tri-planes"), quiet=True)
        trained = load(tmp_path / "run")
        assert trained.render("ellipsoid_0", Cameras.orbit(1, width=16, height=16)).color.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_autocast_and_inference_mode_change_nothing(run):
    expected = everything(load(run))
    with torch.autocast("cpu"):
        assert_same(everything(load(run)), expected)
    with torch.inference_mode():
        model = load(run)
        assert_same(everything(model), expected)
    assert_same(everything(model), expected)


FORK = """
import sys, torch, multiprocessing
import fusedplanes as fp
model = fp.load(sys.argv[1])
cameras = fp.Cameras.orbit(1, width=16, height=16)
expected = model.render("ellipsoid_0", cameras).color

class Views(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return model.render("ellipsoid_0", cameras).color

for color in torch.utils.data.DataLoader(Views(), num_workers=1, multiprocessing_context="fork"):
    torch.testing.assert_close(color[0], expected, atol=1e-4, rtol=0)
"""


def test_a_forked_loader_renders_in_plain_torch(run):
    subprocess.run([sys.executable, "-c", FORK, str(run)], check=True, timeout=120)


# Killed, interrupted twice, read meanwhile ----------------------------------------------------------------------------


@pytest.mark.parametrize("left", [(), (".config.json.ab12cd34",), (".first-checkpoint-pending",)])
def test_a_run_killed_before_it_wrote_its_configuration_can_be_resumed(tmp_path, ellipsoids, small_config, run, left):
    out = tmp_path / "run"
    if left:
        out.mkdir()
    for name in left:
        (out / name).write_text("half")
    train(ellipsoids, out, config=small_config(), resume=True, watch_seconds=0, quiet=True)
    assert_same(tensors_of(out), tensors_of(run))
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_killed_inside_its_first_checkpoint_begins_anew(tmp_path, ellipsoids, small_config, monkeypatch, resume):
    out, config = tmp_path / "run", small_config("tri-planes")

    def killed(path, data, original=checkpoint_files.write_atomically):
        if path.name == "checkpoint.json":
            raise KeyboardInterrupt
        original(path, data)

    monkeypatch.setattr(checkpoint_files, "write_atomically", killed)
    # A kill does not clean up.
    monkeypatch.setattr("pathlib.Path.unlink", lambda path, missing_ok=False: None)
    with pytest.raises(KeyboardInterrupt):
        train(ellipsoids, out, config=config, watch_seconds=0, quiet=True)
    monkeypatch.undo()
    assert any(out.glob("shared-*")) and not (out / "checkpoint.json").exists()
    train(ellipsoids, out, config=config, resume=resume, watch_seconds=0, quiet=True)
    train(ellipsoids, tmp_path / "peace", config=config, watch_seconds=0, quiet=True)
    assert_same(tensors_of(out), tensors_of(tmp_path / "peace"))


@pytest.mark.parametrize("moment", ["removing", "writing"])
@pytest.mark.parametrize("go_on", ["resume", "overwrite"])
def test_a_run_that_was_replaced_by_half_begins_anew(stopped, ellipsoids, small_config, monkeypatch, moment, go_on):
    unlink, removed = Path.unlink, []

    def killed(path, *arguments, **options):
        if moment == "writing" or len(removed) == 3:
            raise KeyboardInterrupt
        removed.append(path)
        unlink(path, *arguments, **options)

    config = small_config("tri-planes")
    if moment == "removing":
        monkeypatch.setattr(Path, "unlink", killed)
    else:
        monkeypatch.setattr(reading, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        train(ellipsoids, stopped, config=config, overwrite=True, watch_seconds=0, quiet=True)
    monkeypatch.undo()
    train(ellipsoids, stopped, config=config, watch_seconds=0, quiet=True, **{go_on: True})
    assert load(stopped).object_ids == ellipsoids.ids


def test_a_second_interruption_while_the_run_is_saved_leaves_it_usable(
    tmp_path, ellipsoids, small_config, run, monkeypatch
):
    step, out = StageOne._joint_step, tmp_path / "run"

    def interrupted(self, index):
        if (out / "checkpoint.json").exists():
            signal.raise_signal(signal.SIGINT)
            monkeypatch.setattr(checkpoint_files, "sync_folder", lambda folder: signal.raise_signal(signal.SIGINT))
        return step(self, index)

    monkeypatch.setattr(StageOne, "_joint_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(ellipsoids, out, config=small_config(), watch_seconds=0, quiet=True)
    monkeypatch.undo()
    assert load_checkpoint(out).phase == "warm-up"
    train(ellipsoids, out, config=small_config(), resume=True, watch_seconds=0, quiet=True)
    assert_same(tensors_of(out), tensors_of(run))


def test_a_run_that_is_saved_while_it_is_opened_is_opened_again(tmp_path, run, monkeypatch):
    out = shutil.copytree(run, tmp_path / "run")
    original, saved = reading.read_shared, []

    def overtaken(config, checkpoint):
        if not saved:
            saved.append(True)
            with contextlib.closing(checkpoint.store(writable=True)) as store:
                save_checkpoint(out, store, phase="finished", step=0, shared=checkpoint.shared())
        return original(config, checkpoint)

    monkeypatch.setattr(reading, "read_shared", overtaken)
    assert load(out).object_ids == load(run).object_ids
    next(out.glob("shared-*")).unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(out)
