"""Objects of a run: listed, deleted, merged, and never lost."""

import json
import shutil

import pytest
import torch

from fusedplanes.cameras import Cameras
from fusedplanes.cli import objects as command
from fusedplanes.errors import CheckpointError, ConfigError, DataError
from fusedplanes.planes import objects
from fusedplanes.planes.add import add
from fusedplanes.planes.model import load
from fusedplanes.planes.run import train
from fusedplanes.planes.run_folder import licences_of
from fusedplanes.training import checkpoint as checkpoints


class First:
    """The first objects of a data set."""

    def __init__(self, dataset, count):
        self.dataset, self.ids = dataset, dataset.ids[:count]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, key):
        return self.dataset[key]

    def __iter__(self):
        return (self.dataset[name] for name in self.ids)


@pytest.fixture(scope="module")
def original(tmp_path_factory, ellipsoids, small_config):
    run = tmp_path_factory.mktemp("objects") / "run"
    train(First(ellipsoids, 3), run, config=small_config("ulw"), watch_seconds=0, quiet=True)
    return run


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture
def grown(original, tmp_path, ellipsoids):
    """A copy of the run that objects were added to elsewhere."""
    grown = shutil.copytree(original, tmp_path / "grown")
    add(grown, ellipsoids, quiet=True)
    return grown


def content(run):
    return {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def test_objects_are_listed(run, capsys):
    assert objects.list_objects(run) == ["ellipsoid_0", "ellipsoid_1", "ellipsoid_2"]
    command.main(["list", str(run)])
    assert capsys.readouterr().out == "ellipsoid_0\nellipsoid_1\nellipsoid_2\n"
    command.main(["list", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)["objects"][2] == "ellipsoid_2"


def test_a_deleted_object_is_gone_and_the_others_render_as_before(run, capsys):
    cameras = Cameras.orbit(1, width=16, height=16)
    before = load(run).render("ellipsoid_2", cameras).color
    command.main(["delete", str(run), "ellipsoid_0", "ellipsoid_1"])
    assert "2 objects deleted" in capsys.readouterr().out
    model = load(run)
    assert model.object_ids == ["ellipsoid_2"]
    assert model.stage_one_objects == 3
    assert torch.equal(model.render("ellipsoid_2", cameras).color, before)
    with pytest.raises(DataError, match="'ellipsoid_0' is not in this model"):
        model.render("ellipsoid_0", cameras)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (["ellipsoid_0", "ellipsoid_9"], DataError, "no object 'ellipsoid_9'"),
        (["ellipsoid_0", "ellipsoid_1", "ellipsoid_2"], ConfigError, "all of its objects"),
    ],
)
def test_what_cannot_be_deleted_changes_nothing(run, ids, error, message):
    before = content(run)
    with pytest.raises(error, match=message):
        objects.delete_objects(run, ids)
    assert content(run) == before


def test_what_a_copy_was_given_elsewhere_is_merged(run, grown, capsys):
    command.main(["merge", str(run), str(grown), "--json"])
    assert json.loads(capsys.readouterr().out) == {"merged": ["ellipsoid_3", "ellipsoid_4"]}
    first, second = load(run), load(grown)
    assert first.object_ids == second.object_ids
    for name in first.object_ids:
        a, b = first.store.read(name), second.store.read(name)
        assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
    assert objects.merge_objects(run, grown) == ()


def test_merged_objects_bring_the_licences_of_their_data(run, original, tmp_path, ellipsoids):
    ellipsoids = type(ellipsoids)(5)
    ellipsoids.licences = {"more": "CC-BY-4.0"}
    grown = shutil.copytree(original, tmp_path / "grown")
    add(grown, ellipsoids, quiet=True)
    assert [record.licence for record in licences_of(grown)] == ["unknown", "CC-BY-4.0"]
    assert [record.licence for record in licences_of(run)] == ["unknown"]
    objects.merge_objects(run, grown)
    assert licences_of(run) == licences_of(grown) == load(run).licences
    assert licences_of(run)[1].name == "more"
    before = content(run)
    assert add(run, ellipsoids, quiet=True).added == () and objects.merge_objects(run, grown) == ()
    assert content(run)[run / "config.json"] == before[run / "config.json"]


def test_only_copies_of_one_run_are_merged(run, grown, tmp_path, ellipsoids, small_config, original):
    with pytest.raises(ConfigError, match="with itself"):
        objects.merge_objects(run, run)
    train(First(ellipsoids, 2), tmp_path / "other", config=small_config("ulw"), watch_seconds=0, quiet=True)
    with pytest.raises(ConfigError, match="other shared parts"):
        objects.merge_objects(run, tmp_path / "other")
    train(First(ellipsoids, 2), tmp_path / "kind", config=small_config("tri-planes"), watch_seconds=0, quiet=True)
    with pytest.raises(ConfigError, match="another configuration"):
        objects.merge_objects(run, tmp_path / "kind")
    different = shutil.copytree(original, tmp_path / "different")
    add(different, ellipsoids, seed=5, share=2, quiet=True)
    with pytest.raises(DataError, match=r"'ellipsoid_3' differs"):
        objects.merge_objects(grown, different)
    with pytest.raises(CheckpointError, match="no run folder"):
        objects.merge_objects(run, tmp_path / "nothing")


def test_a_change_that_cannot_be_saved_changes_nothing(run, grown, monkeypatch):
    before = load(run).object_ids

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    for change in (lambda: objects.delete_objects(run, ["ellipsoid_0"]), lambda: objects.merge_objects(run, grown)):
        with pytest.raises(CheckpointError, match=r"No space left|full"):
            change()
        assert load(run).object_ids == before
    monkeypatch.undo()
    objects.delete_objects(run, ["ellipsoid_0"])
    assert load(run).object_ids == before[1:]


def test_wrong_words_are_one_line(run):
    with pytest.raises(ConfigError, match="no command 'objects drop'"):
        command.main(["drop", str(run)])
    with pytest.raises(ConfigError, match=r"Missing|name the objects"):
        command.main(["delete", str(run)])
