"""Who may write a run folder, and what must not have changed when a run goes on."""

import contextlib
import json

import pytest

from fusedplanes.cameras import Cameras
from fusedplanes.errors import CheckpointError, ConfigError
from fusedplanes.planes import run_folder
from fusedplanes.planes.model import load
from fusedplanes.planes.run import train
from fusedplanes.training.checkpoint import create_store


def test_two_processes_that_begin_in_one_folder_leave_one_whole_run(tmp_path, ellipsoids, small_config, monkeypatch):
    """The slower one is refused, and what the faster one wrote is what it was."""
    out, began = tmp_path / "run", []
    original = run_folder.begin

    def overtaken(*arguments, **options):
        if not began:
            began.append(True)
            train(ellipsoids, out, config=small_config("tri-planes"), watch_seconds=0, quiet=True)
        return original(*arguments, **options)

    monkeypatch.setattr("fusedplanes.planes.run.begin", overtaken)
    with pytest.raises(ConfigError, match="holds a run already"):
        train(ellipsoids, out, config=small_config(), watch_seconds=0, quiet=True)
    assert load(out).config.method == "tri-planes"
    assert load(out).render(ellipsoids.ids[0], Cameras.orbit(1, width=16, height=16)).color.isfinite().all()


def test_a_run_that_another_process_writes_is_not_touched(tmp_path, ellipsoids, small_config):
    out = tmp_path / "run"
    with contextlib.closing(create_store(out)), pytest.raises(CheckpointError, match="another process"):
        train(ellipsoids, out, config=small_config("tri-planes"), watch_seconds=0, quiet=True)
    assert [path.name for path in out.iterdir()] == ["objects"]
    train(ellipsoids, out, config=small_config("tri-planes"), watch_seconds=0, quiet=True)


def test_what_others_left_in_a_run_without_a_checkpoint_stays(stopped, ellipsoids, small_config):
    (stopped / "checkpoint.json").unlink()
    for path in stopped.glob("shared-*"):
        path.unlink()
    (stopped / "notes.txt").write_text("mine")
    train(ellipsoids, stopped, config=small_config("tri-planes"), watch_seconds=0, quiet=True)
    assert (stopped / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"warm_up": {"steps": 1}}}, "warm_up.steps is 1, the run began with"),
        ({"training": {"warm_up": {"micro_rate": 0.5}}}, "warm_up.micro_rate is 0.5, the run began with"),
        ({"model": {"coarse_samples": 3}}, "coarse_samples is 3, the run began with"),
        ({"data_signature": None}, "data_signature is None, the run began with"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(stopped, ellipsoids, small_config, change, message):
    def merged(old, new):
        return {**old, **{k: merged(old[k], v) if isinstance(v, dict) else v for k, v in new.items()}}

    path = stopped / "config.json"
    path.write_text(json.dumps(merged(json.loads(path.read_text()), change)))
    with pytest.raises(ConfigError, match=message):
        train(ellipsoids, stopped, config=small_config("tri-planes"), resume=True, watch_seconds=0, quiet=True)


@pytest.mark.parametrize("change", [{"hidden": 7}, {"micro_channels": 3}])
def test_a_run_does_not_go_on_with_another_model(stopped, ellipsoids, small_config, change):
    path = stopped / "config.json"
    value = json.loads(path.read_text())
    value["model"].update(change)
    path.write_text(json.dumps(value))
    with pytest.raises((ConfigError, CheckpointError), match=r"the run began with|do not fit config\.json") as error:
        train(ellipsoids, stopped, config=small_config("tri-planes"), resume=True, watch_seconds=0, quiet=True)
    assert "\n" not in str(error.value)


def test_a_folder_that_cannot_be_written_to_is_told_before_the_data_are_read(
    tmp_path, ellipsoids, small_config, monkeypatch
):
    class Unread:
        ids = ("one",)

        def __len__(self):
            return 1

        def __getitem__(self, key):
            raise AssertionError("was read")

        def __iter__(self):
            raise AssertionError("was read")

    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="file is a file; choose another --out"):
        train(Unread(), tmp_path / "file/run", config=small_config(), quiet=True)
    # The superuser, as whom containers run, may write anywhere.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="is read-only for you; choose another --out"):
        train(Unread(), tmp_path / "run", config=small_config(), quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_says_how_objects_that_it_has_not_are_added(tmp_path, ellipsoids, small_config, capsys):
    class Fewer:
        ids = ellipsoids.ids[:3]

        def __len__(self):
            return 3

        def __getitem__(self, key):
            return ellipsoids[key]

        def __iter__(self):
            return (ellipsoids[name] for name in self.ids)

    config = small_config("tri-planes")
    train(Fewer(), tmp_path / "run", config=config, watch_seconds=0, quiet=True)
    train(Fewer(), tmp_path / "run", config=config, watch_seconds=0, resume=True)
    assert capsys.readouterr().err == f"{tmp_path}/run: is finished; nothing is left to train\n"
    train(ellipsoids, tmp_path / "run", config=config, watch_seconds=0, resume=True)
    told = "2 objects are not in it (ellipsoid_3, ellipsoid_4): fusedplanes add"
    assert told in capsys.readouterr().err
