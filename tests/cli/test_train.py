"""`fusedplanes train`: what the command line may not ask for."""

import json

import pytest
from safetensors import safe_open

from fusedplanes.cli import evaluate, export, train
from fusedplanes.errors import CheckpointError, ConfigError, DataError
from fusedplanes.licences import records_to_json
from fusedplanes.planes.config import preset, to_json
from fusedplanes.planes.run_folder import licences_of


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


def test_a_run_goes_on_with_its_own_autoencoder(run):
    with pytest.raises(ConfigError, match=r"--autoencoder someone/other: the run in .* has its own"):
        train.main([str(run.parent), "--out", str(run), "--resume", "--autoencoder", "someone/other"])


@pytest.fixture
def data(tmp_path):
    from fusedplanes import datasets

    datasets.make_class("mugs", objects=1, views=6, size=16, out=tmp_path / "mugs", quiet=True)
    return tmp_path / "mugs"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["stable-diffusion-v1-5/stable-diffusion-v1-5"],
            "CreativeML OpenRAIL-M, which restricts use; .*--accept-licence",
        ),
        (["someone/something"], "is unknown here; .*--accept-licence"),
        (["madebyollin/taesd", "--method", "tri-planes"], "tri-planes has no latent space"),
        (["nothing/at/all"], "no such folder, and no hub id"),
    ],
)
def test_an_autoencoder_that_may_not_be_used_is_one_line(data, options, message):
    with pytest.raises((ConfigError, DataError), match=message) as error:
        train.main([str(data), "--out", str(data.parent / "run"), "--preset", "paper", "--autoencoder", *options])
    assert "\n" not in str(error.value)
    assert not (data.parent / "run").exists()


def test_a_local_autoencoder_is_used_once_its_licence_is_accepted(data, published, capsys):
    out, weights = data.parent / "run", str(published("tiny"))
    command = [str(data), "--out", str(out), "--preset", "tiny", "--autoencoder", weights, "--minutes", "0.01"]
    with pytest.raises(ConfigError, match="is unknown here"):
        train.main(command)
    with pytest.raises(ConfigError, match="latent cells of the pretrained autoencoder are 2 pixels"):
        train.main([*command, "--accept-licence", "--downscale", "4"])
    train.main([*command, "--accept-licence", "--quiet"])
    assert [(record.name, record.licence, record.accepted) for record in licences_of(out)] == [
        ("published-tiny", "unknown", True),
        ("mugs", "CC0-1.0", False),
    ]
    train.main([str(data), "--out", str(out), "--resume", "--autoencoder", weights, "--quiet"])
    export.main([str(out), "--out", str(data.parent / "mug.safetensors"), "--json"])
    with safe_open(data.parent / "mug.safetensors", "pt") as file:
        assert json.loads(file.metadata()["licences"]) == records_to_json(licences_of(out))


def test_a_licence_of_nothing_is_refused(data):
    with pytest.raises(ConfigError, match="--accept-licence: no weights are named"):
        train.main([str(data), "--out", str(data.parent / "run"), "--preset", "tiny", "--accept-licence"])


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999"])
def test_a_seed_must_be_a_number_that_fits(tmp_path, seed):
    from fusedplanes import datasets

    datasets.make_class("mugs", objects=1, views=2, size=16, out=tmp_path / "data", quiet=True)
    with pytest.raises(ConfigError, match=f"--seed {seed}: choose"):
        train.main([str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--preset", "tiny", "--seed", seed])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [evaluate, export])
def test_a_folder_without_a_checkpoint_is_named(run, command):
    with pytest.raises(CheckpointError, match=r"no checkpoint\.json here"):
        command.main([str(run)])
