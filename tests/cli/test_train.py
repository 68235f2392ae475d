"""`fusedplanes train`: what the command line may not ask for."""

import json

import pytest

from fusedplanes.cli import evaluate, export, train
from fusedplanes.errors import CheckpointError, ConfigError
from fusedplanes.planes.config import preset, to_json


@pytest.fixture
def run(tmp_path):
    """The settings of a run, as `train` writes them first."""
    (tmp_path / "run").mkdir()
    settings = {"format": "fusedplanes-run", "format_version": 1, **to_json(preset("tiny")), "data": str(tmp_path)}
    (tmp_path / "run/config.json").write_text(json.dumps({**settings, "resampled": 32}))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--preset", "paper"], "--preset paper: the run in .* has tiny"),
        (["--preset=paper"], "--preset paper"),
        (["--method", "ulw"], "--method ulw: the run in .* has fused-planes"),
        (["--seed", "7"], "--seed 7: the run in .* has 0"),
        (["--size", "64"], "--size 64: the run in .* has 32"),
        (["--minutes", "3"], "--minutes 3.0"),
    ],
)
def test_a_run_goes_on_with_its_own_settings(run, option, message):
    before = (run / "config.json").read_bytes()
    with pytest.raises(ConfigError, match=message):
        train.main([str(run.parent), "--out", str(run), "--resume", *option])
    assert (run / "config.json").read_bytes() == before


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_a_seed_must_be_a_number_that_fits(tmp_path, seed):
    from fusedplanes import datasets

    datasets.make_class("mugs", objects=1, views=2, size=16, out=tmp_path / "data", quiet=True)
    with pytest.raises(ConfigError, match=f"seed={seed}"):
        train.main([str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--preset", "tiny", "--seed", seed])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [evaluate, export])
def test_a_folder_without_a_checkpoint_is_named(run, command):
    with pytest.raises(CheckpointError, match=r"no checkpoint\.json here"):
        command.main([str(run)])
