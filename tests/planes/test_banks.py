"""Several classes in one run: banks of base planes, and quality by class."""

import json
from dataclasses import replace

import pytest
import torch

from fusedplanes.cli import evaluate as evaluate_command
from fusedplanes.cli import train as train_command
from fusedplanes.errors import ConfigError
from fusedplanes.planes.add import add
from fusedplanes.planes.banks import bank_mask
from fusedplanes.planes.config import preset, with_banks
from fusedplanes.planes.evaluate import evaluate
from fusedplanes.planes.model import load
from fusedplanes.planes.run import train
from fusedplanes.planes.run_folder import data_folders, read_config


class TwoClasses:
    """A data set whose objects take turns in being of one class or of the other."""

    def __init__(self, dataset):
        self.dataset, self.ids = dataset, dataset.ids
        self.classes = {name: "even" if index % 2 == 0 else "odd" for index, name in enumerate(dataset.ids)}

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, key):
        return self.dataset[key]

    def __iter__(self):
        return iter(self.dataset)


@pytest.fixture(scope="module")
def banked(tmp_path_factory, ellipsoids, small_config):
    out = tmp_path_factory.mktemp("runs") / "banked"
    train(TwoClasses(ellipsoids), out, config=with_banks(small_config(), 2), watch_seconds=0, quiet=True)
    return out


def test_a_mask_gives_every_class_its_bank():
    assert bank_mask(["a", "a"], 4, 1) is None
    assert bank_mask(["a", "b", "a"], 4, 2).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]]
    with pytest.raises(ConfigError, match=r"banks=2, but the objects are of 3 classes \(a, b, c\)"):
        bank_mask(["a", "b", "c"], 4, 2)


def test_objects_mix_their_own_bank_alone_and_its_planes_move(banked, ellipsoids):
    model = load(banked)
    half = model.config.model.base_planes // 2
    assert read_config(banked).model.banks == 2
    for index, name in enumerate(ellipsoids.ids):
        own, other = model.object_planes(name).weights.split(half)[:: 1 if index % 2 == 0 else -1]
        assert own.abs().min() > 0
        assert torch.equal(other, torch.zeros(half))


def test_a_step_of_one_class_leaves_the_other_bank_without_a_gradient(ellipsoids, small_config):
    from fusedplanes.planes.stage_one import StageOne
    from fusedplanes.planes.views import TrainingViews

    stage = StageOne(with_banks(small_config(), 2), TrainingViews.read(TwoClasses(ellipsoids)))
    _, planes, _ = stage._compose(torch.tensor([0]))
    planes.square().sum().backward()
    first, second = stage.shared.base_planes.grad.chunk(2)
    assert first.abs().max() > 0 and torch.equal(second, torch.zeros_like(second))


def test_quality_is_told_by_class(banked, ellipsoids):
    result = evaluate(load(banked), TwoClasses(ellipsoids))
    assert set(result.classes) == {"even", "odd"}
    even = [row.quality.psnr for row in result.objects[::2]]
    assert result.classes["even"].psnr == pytest.approx(sum(even) / len(even))
    assert "  odd" in result.table() and result.to_json()["classes"]["odd"]["ssim"] == result.classes["odd"].ssim
    assert evaluate(load(banked), ellipsoids).classes == {}


def test_an_object_that_is_added_may_mix_from_every_bank(banked, ellipsoids):
    more = type(ellipsoids)(len(ellipsoids) + 1)
    assert add(banked, more, share=0.2, quiet=True).added == (more.ids[-1],)
    weights = load(banked).object_planes(more.ids[-1]).weights
    assert weights.abs().min() > 0


def test_banks_need_base_planes_and_classes():
    config = with_banks(preset("small"), 3)
    assert (config.model.base_planes, config.model.banks) == (48, 3)
    with pytest.raises(ConfigError, match="several data sets"):
        with_banks(preset("small"), 1)
    with pytest.raises(ConfigError, match="has no base planes"):
        with_banks(preset("small", "tri-planes"), 2)
    with pytest.raises(ConfigError, match="banks=3; it must divide base_planes=16"):
        replace(preset("small").model, banks=3)
    with pytest.raises(ConfigError, match="banks=0"):
        replace(preset("small").model, banks=0)


def test_the_command_trains_on_several_folders_and_resumes_from_them(tmp_path, capsys):
    from fusedplanes import datasets

    folders = [tmp_path / name for name in ("mugs", "lamps")]
    for folder in folders:
        datasets.make_class(folder.name, objects=2, views=8, size=16, out=folder, quiet=True)
    out = tmp_path / "run"
    arguments = [*map(str, folders), "--out", str(out), "--preset", "tiny", "--banks", "--minutes", "0.02"]
    train_command.main([*arguments, "--watch", "0", "--quiet"])
    assert data_folders(out) == [folder.resolve() for folder in folders]
    assert read_config(out).model.banks == 2
    evaluate_command.main([str(out), "--json"])
    assert set(json.loads(capsys.readouterr().out)["classes"]) == {"mugs", "lamps"}
    train_command.main([*map(str, folders), "--out", str(out), "--resume", "--json"])
    assert json.loads(capsys.readouterr().out)["objects"] == 4
    with pytest.raises(ConfigError, match="banks of base planes need several data sets"):
        train_command.main([str(folders[0]), "--out", str(tmp_path / "other"), "--banks"])
