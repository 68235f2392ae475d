"""Classes in the latent space of a published autoencoder: trained, resumed, opened and added to like any other."""

import json
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from fusedplanes.autoencoders.pretrained import KLArchitecture, PretrainedAutoencoderConfig
from fusedplanes.autoencoders.weight_files import WEIGHTS, open_pretrained
from fusedplanes.cameras import Cameras
from fusedplanes.errors import CheckpointError, ConfigError, DataError
from fusedplanes.planes.add import add
from fusedplanes.planes.config import from_json, preset, to_json, with_autoencoder, with_downscale
from fusedplanes.planes.model import load
from fusedplanes.planes.run import make_plan, train
from fusedplanes.planes.run_folder import licences_of, read_config
from fusedplanes.planes.stage_one import StageOne
from fusedplanes.planes.views import TrainingViews
from fusedplanes.training.log import read_log
from fusedplanes.training.loop import TrainingInterrupted

STABLE_DIFFUSION = PretrainedAutoencoderConfig(
    KLArchitecture((128, 256, 512, 512), layers_per_block=2, latent_channels=4, norm_num_groups=32),
    "stable-diffusion-v1-5/stable-diffusion-v1-5",
)


@pytest.fixture(scope="module")
def small(ellipsoids):
    """A function of a number: so many of the ellipsoids, in 8x8 images, four of each to train on."""
    return lambda count=5: type(ellipsoids)(count, views=6, size=8)


@pytest.fixture(scope="module")
def paper_like(published, small_config):
    """Small sizes and few steps, with all that the preset "paper" trains."""

    def config(kind="kl", method="fused-planes", **joint):
        paper, tiny = preset("paper", method).training, small_config(method)
        joint = {"steps": 3, "objects_per_batch": 2, **joint}
        training = replace(
            paper, warm_up=tiny.training.warm_up, joint=replace(paper.joint, **joint), autoencoder_steps=0
        )
        space = open_pretrained(published(kind), accept_licence=True)
        return with_autoencoder(replace(tiny, training=training), space)

    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory, small, paper_like):
    out = tmp_path_factory.mktemp("runs") / "kl"
    train(small(), out, config=paper_like(), watch_seconds=60, quiet=True)
    return out


def tensors_of(run):
    model = load(run)
    records = {name: model.store.read(name) for name in model.object_ids}
    return dict(model.shared.state_dict()) | {f"{a}.{b}": v for a, r in records.items() for b, v in r.items()}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_the_published_training_step_at_full_size(ellipsoids):
    """The preset "paper" as it is, on two objects of four latent cells: random weights take the same steps."""
    config = with_autoencoder(preset("paper"), STABLE_DIFFUSION)
    joint = config.training.joint
    assert (joint.encoder_rate, joint.image_decoder_rate, config.training.autoencoder_steps) == (1e-4, 1e-4, 0)
    views = TrainingViews.read([ellipsoids[0], ellipsoids[1]])
    stage = StageOne(config, views)
    assert sum(p.numel() for p in stage.shared.autoencoder.parameters()) == 83_653_863
    assert [phase.name for phase in stage.phases] == ["warm-up", "joint"]
    before = {name: value.clone() for name, value in stage.shared.state_dict().items()}
    moved = {}
    for phase in stage.phases:
        stage.prepare(phase.name)
        metrics = phase.step(0)
        assert all(bool(torch.isfinite(torch.as_tensor(value))) for value in metrics.values())
        now = stage.shared.state_dict()
        moved[phase.name] = {name for name in now if not torch.equal(now[name], before[name])}
    assert metrics.keys() == {"loss", "psnr", "latent"}
    assert not any(name.startswith("autoencoder") for name in moved["warm-up"])
    assert {"base_planes", "latent_mean", "latent_scale"} <= moved["warm-up"]
    assert any(name.startswith("autoencoder.encoder") for name in moved["joint"])
    assert any(name.startswith("autoencoder.decoder") for name in moved["joint"])
    optimised = {id(parameter) for group in stage.shared_adam("joint").param_groups for parameter in group["params"]}
    resting = {name for name, parameter in stage.shared.named_parameters() if id(parameter) not in optimised}
    assert resting == {
        f"autoencoder.{layer}.{part}" for layer in ("quant_conv", "post_quant_conv") for part in ("weight", "bias")
    }
    assert not any("quant_conv" in name for name in moved["joint"])


@pytest.mark.parametrize(("kind", "method"), [("kl", "fused-planes"), ("tiny", "ulw")])
def test_training_starts_from_the_published_weights(tmp_path, small, paper_like, kind, method):
    # Encoder and decoder at rest: what comes out is what went in.
    config = paper_like(kind, method, encoder_rate=0.0, image_decoder_rate=0.0)
    train(small(), tmp_path / "run", config=config, watch_seconds=0, quiet=True)
    tensors = tensors_of(tmp_path / "run")
    for name, value in load_file(f"{config.model.autoencoder.source}/{WEIGHTS}").items():
        assert torch.equal(tensors[f"autoencoder.{name}"], value), name


def test_there_is_no_autoencoder_phase(run):
    phases = [record.phase for record in read_log(run / "log.jsonl")]
    assert list(dict.fromkeys(phases)) == ["warm-up", "joint"]


def test_a_run_needs_no_file_of_weights_but_its_own(tmp_path, small, published, paper_like):
    weights = shutil.copytree(published("kl"), tmp_path / "weights")
    space = open_pretrained(weights, accept_licence=True)
    config = with_autoencoder(paper_like(), space)
    train(small(3), tmp_path / "run", config=config, watch_seconds=0, quiet=True)
    shutil.rmtree(weights)
    model = load(tmp_path / "run")
    assert model.config == config
    assert model.render("ellipsoid_1", Cameras.orbit(2, width=8, height=6)).color.shape == (2, 6, 8, 3)
    old = tensors_of(tmp_path / "run")
    assert add(tmp_path / "run", small(), quiet=True).added == ("ellipsoid_3", "ellipsoid_4")
    assert_same(old, {name: value for name, value in tensors_of(tmp_path / "run").items() if name in old})
    item = small()[4]
    fitted = load(tmp_path / "run").fit(item.images, item.cameras)
    assert model.render(fitted, Cameras.orbit(1, width=8, height=8)).color.isfinite().all()
    with pytest.raises(DataError, match="weights: no such folder"):
        train(small(), tmp_path / "again", config=config, watch_seconds=0, quiet=True)


@pytest.mark.parametrize(("phase", "step"), [("_warm_up_step", 2), ("_joint_step", 1)])
def test_stopped_and_resumed_is_the_same_as_straight_through(
    tmp_path, small, published, paper_like, run, monkeypatch, phase, step
):
    original, seen = getattr(StageOne, phase), []

    def interrupted(self, index):
        seen.append(index)
        if index == step and seen.count(index) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, index)

    weights = shutil.copytree(published("kl"), tmp_path / "weights")
    config = paper_like()
    config = with_autoencoder(config, replace(config.model.autoencoder, source=str(weights)))
    monkeypatch.setattr(StageOne, phase, interrupted)
    with pytest.raises(TrainingInterrupted, match="--resume"):
        train(small(), tmp_path / "run", config=config, watch_seconds=0, quiet=True)
    monkeypatch.setattr(StageOne, phase, original)
    shutil.rmtree(weights)
    train(small(), tmp_path / "run", config=config, resume=True, watch_seconds=0, quiet=True)
    assert_same(tensors_of(tmp_path / "run"), tensors_of(run))


def test_a_plan_needs_no_weights(small, paper_like):
    config = paper_like()
    space = replace(config.model.autoencoder, source="someone/something")
    plan = make_plan(with_autoencoder(config, space), small(), minutes=1.0)
    assert [phase.name for phase in plan.phases] == ["warm-up", "joint"]


# Configurations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "small", "paper"])
@pytest.mark.parametrize("method", ["fused-planes", "ulw"])
@pytest.mark.parametrize("kind", ["kl", "tiny"])
def test_configurations_survive_json(published, name, method, kind):
    space = open_pretrained(published(kind), accept_licence=True)
    config = with_autoencoder(preset(name, method), space)
    assert config.training.autoencoder_steps == 0
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_what_has_no_latent_space_or_another_one_is_refused():
    with pytest.raises(ConfigError, match="tri-planes has no latent space"):
        with_autoencoder(preset("paper", "tri-planes"), STABLE_DIFFUSION)
    with pytest.raises(ConfigError, match="latent cells of the pretrained autoencoder are 8 pixels"):
        with_downscale(with_autoencoder(preset("small"), STABLE_DIFFUSION), 4)
    with pytest.raises(ConfigError, match="autoencoder_steps=60; a pretrained autoencoder has no phase"):
        config = preset("tiny")
        replace(config, model=replace(config.model, autoencoder=STABLE_DIFFUSION))


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("architecture", {"block_out_channels": [10**12, 8]}, "block_out_channels=1000000000000"),
        ("architecture", {"block_out_channels": [8, 1e308]}, "not a valid value"),
        ("architecture", {"block_out_channels": [10**400, 8]}, "not a valid value"),
        ("architecture", {"layers_per_block": 10**12}, "layers_per_block=1000000000000"),
        ("architecture", {"layers_per_block": 2}, "the shared tensors do not fit"),
        ("architecture", {"class_name": "AutoencoderDC"}, r"architecture\.class_name: 'AutoencoderDC'"),
        ("architecture", {"custom_pipeline": "run.py"}, r"architecture: unknown field 'custom_pipeline'"),
        ("architecture", {"FIXED": {"in_channels": 3}}, r"architecture: unknown field 'FIXED'"),
        (None, {"source": 5}, r"autoencoder\.source: 5 is not"),
        (None, {"revision": ["main"]}, r"autoencoder\.revision"),
        (None, {"licence_accepted": "yes"}, r"autoencoder\.licence_accepted"),
        (None, {"trust_remote_code": True}, "unknown field 'trust_remote_code'"),
        (None, {"architecture": None}, "architecture"),
        (None, {"architecture": "AutoencoderKL"}, "expected an object"),
        (None, {"architecture": {}}, "architecture"),
    ],
)
def test_configurations_changed_from_outside_are_refused_before_anything_is_made(tmp_path, run, part, change, message):
    out = shutil.copytree(run, tmp_path / "run")
    value = json.loads((out / "config.json").read_text())
    autoencoder = value["model"]["autoencoder"]
    (autoencoder if part is None else autoencoder[part]).update(change)
    (out / "config.json").write_text(json.dumps(value))
    with pytest.raises((ConfigError, CheckpointError), match=message) as error:
        load(out)
    assert "\n" not in str(error.value)


# Licences -------------------------------------------------------------------------------------------------------------


def test_the_run_keeps_what_it_was_made_from(run, published):
    weights, data = licences_of(run)
    assert (weights.kind, weights.name, weights.licence, weights.accepted) == (
        "weights",
        published("kl").name,
        "unknown",
        True,
    )
    assert (data.kind, data.name, data.licence) == ("data", "images in memory", "unknown")
    assert load(run).licences == (weights, data)
    assert read_config(run).model.autoencoder.licence_accepted
