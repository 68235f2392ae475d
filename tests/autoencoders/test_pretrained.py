"""Published autoencoders behind our interface: the same numbers as diffusers gives, in our ranges and shapes."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from fusedplanes.autoencoders.pretrained import (
    TINY_LOG_VARIANCE,
    KLArchitecture,
    PretrainedAutoencoder,
    PretrainedAutoencoderConfig,
    TinyArchitecture,
    architecture_from_json,
)
from fusedplanes.autoencoders.weight_files import load_weights, open_pretrained
from fusedplanes.errors import ConfigError, DataError

KL = KLArchitecture(block_out_channels=(8, 16), layers_per_block=1, latent_channels=4, norm_num_groups=4)
TINY = TinyArchitecture((8, 8), (8, 8), (1, 1), (1, 1), 4)
STABLE_DIFFUSION = KLArchitecture((128, 256, 512, 512), layers_per_block=2, latent_channels=4, norm_num_groups=32)
TAESD = TinyArchitecture((64,) * 4, (64,) * 4, (1, 3, 3, 3), (3, 3, 3, 1), 4)


def opened(folder):
    autoencoder = PretrainedAutoencoder(open_pretrained(folder, accept_licence=True))
    load_weights(autoencoder)
    return autoencoder


@pytest.mark.parametrize(("architecture", "count"), [(STABLE_DIFFUSION, 83_653_863), (TAESD, 2_445_063)])
def test_full_sizes_are_the_published_ones(architecture, count):
    with torch.device("meta"):
        autoencoder = PretrainedAutoencoder(PretrainedAutoencoderConfig(architecture, "someone/something"))
    assert sum(parameter.numel() for parameter in autoencoder.parameters()) == count
    assert (autoencoder.config.downscale, autoencoder.config.latent_channels) == (8, 4)


def test_kl_gives_what_diffusers_gives(published):
    import diffusers

    theirs, ours = diffusers.AutoencoderKL.from_pretrained(published("kl")), opened(published("kl"))
    images = torch.rand(2, 8, 12, 3)
    with torch.no_grad():
        posterior = theirs.encode(2 * images.permute(0, 3, 1, 2) - 1).latent_dist
        decoded = theirs.decode(posterior.mean).sample
        mean, log_variance = ours.encode(images)
        again = ours.decode(mean)
    assert mean.shape == (2, 4, 6, 4)
    torch.testing.assert_close(mean, posterior.mean.permute(0, 2, 3, 1))
    torch.testing.assert_close(log_variance, posterior.logvar.permute(0, 2, 3, 1))
    torch.testing.assert_close(again, (decoded.permute(0, 2, 3, 1) + 1) / 2)


def test_tiny_gives_what_diffusers_gives_and_a_constant_deviation(published):
    import diffusers

    theirs, ours = diffusers.AutoencoderTiny.from_pretrained(published("tiny")), opened(published("tiny"))
    images = torch.rand(2, 8, 12, 3)
    with torch.no_grad():
        latents = theirs.encode(2 * images.permute(0, 3, 1, 2) - 1).latents
        decoded = theirs.decode(latents).sample
        mean, log_variance = ours.encode(images)
        again = ours.decode(mean)
    torch.testing.assert_close(mean, latents.permute(0, 2, 3, 1))
    torch.testing.assert_close(again, (decoded.permute(0, 2, 3, 1) + 1) / 2)
    assert bool((log_variance == TINY_LOG_VARIANCE).all()) and log_variance.shape == mean.shape
    assert float(log_variance.half()[0, 0, 0, 0]) == TINY_LOG_VARIANCE
    rounding = (6 / 255) ** 2 / 12
    assert abs(math.log(rounding) - TINY_LOG_VARIANCE) < 0.1


@pytest.mark.parametrize("architecture", [KL, TINY])
def test_gradients_reach_both_halves_and_no_layer_between_them_is_trained(architecture):
    autoencoder = PretrainedAutoencoder(PretrainedAutoencoderConfig(architecture, "someone/something"))
    mean, _ = autoencoder.encode(torch.rand(1, 4, 4, 3))
    autoencoder.decode(mean).square().mean().backward()
    trained = [*autoencoder.encoder_parameters(), *autoencoder.decoder_parameters()]
    assert all(parameter.grad is not None for parameter in trained)
    rest = {name for name, value in autoencoder.named_parameters() if not any(value is item for item in trained)}
    between = {f"{name}.{part}" for name in ("quant_conv", "post_quant_conv") for part in ("weight", "bias")}
    assert rest == (between if architecture is KL else set())


def test_what_latents_depend_on_has_the_convolution_behind_the_encoder():
    autoencoder = PretrainedAutoencoder(PretrainedAutoencoderConfig(KL, "someone/something"))
    names = autoencoder.encoding_tensors().keys()
    assert "quant_conv.weight" in names and not any(name.startswith(("post", "decoder")) for name in names)


def test_single_precision_and_channels_last_whatever_the_default_is():
    torch.set_default_dtype(torch.float64)
    try:
        autoencoder = PretrainedAutoencoder(PretrainedAutoencoderConfig(TINY, "someone/something"))
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in autoencoder.parameters()} == {torch.float32}
    with pytest.raises(DataError, match="divisible by the autoencoder's 2"):
        autoencoder.encode(torch.rand(1, 5, 4, 3))
    with pytest.raises(DataError, match=r"expected \[B, h, w, 4\]"):
        autoencoder.decode(torch.rand(1, 2, 2, 5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_out_channels": (10**9, 16)}, "block_out_channels=1000000000"),
        ({"block_out_channels": (8,)}, "2 to 6 whole numbers"),
        ({"block_out_channels": (8,) * 10_000}, "2 to 6 whole numbers"),
        ({"block_out_channels": (8, 16.0)}, "block_out_channels=16.0"),
        ({"block_out_channels": (8, True)}, "block_out_channels=True"),
        ({"block_out_channels": (4096,) * 6, "layers_per_block": 16}, "more than 536870912 values"),
        ({"layers_per_block": 10**9}, "layers_per_block=1000000000"),
        ({"layers_per_block": 0}, "layers_per_block=0"),
        ({"latent_channels": 10**9}, "latent_channels=1000000000"),
        ({"norm_num_groups": 3}, "norm_num_groups=3 does not divide"),
        ({"use_quant_conv": 1}, "use_quant_conv=1; expected true or false"),
    ],
)
def test_impossible_kl_sizes_are_refused_before_anything_is_made(change, message):
    with pytest.raises(ConfigError, match=message) as error:
        replace(KL, **change)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder_block_out_channels": (8, 16)}, "all must be the same"),
        ({"decoder_block_out_channels": (8, 8, 8)}, "every part must have 2 levels"),
        ({"num_encoder_blocks": (1, -1)}, "num_encoder_blocks=-1"),
        ({"num_decoder_blocks": (1, 10**9)}, "num_decoder_blocks=1000000000"),
        ({"encoder_block_out_channels": (4096, 4096), "num_encoder_blocks": (16, 16)}, "more than 536870912 values"),
        ({"latent_channels": 0}, "latent_channels=0"),
    ],
)
def test_impossible_tiny_sizes_are_refused_before_anything_is_made(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **change)


def test_the_configuration_that_diffusers_saves_is_understood(published):
    for kind, levels in (("kl", 2), ("tiny", 2)):
        value = json.loads((published(kind) / "config.json").read_text())
        assert architecture_from_json(value).levels == levels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_class_name": "AutoencoderDC"}, "_class_name is 'AutoencoderDC'; only AutoencoderKL and AutoencoderTiny"),
        ({"_class_name": ["AutoencoderKL"]}, "_class_name is"),
        ({"block_out_channels": None}, "block_out_channels=None"),
        ({"layers_per_block": ...}, "layers_per_block is missing"),
        ({"down_block_types": ["AttnDownEncoderBlock2D"] * 2}, "down_block_types is .*; only .* is supported"),
        ({"in_channels": 4}, "in_channels is 4; only 3 is supported"),
        ({"act_fn": "gelu"}, "act_fn is 'gelu'; only 'silu'"),
        ({"custom_code": "run.py"}, "unknown field 'custom_code'"),
    ],
)
def test_configurations_of_diffusers_that_are_not_supported_name_the_field(published, change, message):
    value = json.loads((published("kl") / "config.json").read_text()) | change
    value = {name: item for name, item in value.items() if item is not ...}
    with pytest.raises(ConfigError, match=message) as error:
        architecture_from_json(value)
    assert "\n" not in str(error.value)


def test_without_diffusers_one_line_says_what_to_install():
    code = """
import sys
sys.modules["diffusers"] = None
from fusedplanes.autoencoders.pretrained import PretrainedAutoencoder, PretrainedAutoencoderConfig, TinyArchitecture
try:
    PretrainedAutoencoder(PretrainedAutoencoderConfig(TinyArchitecture((8, 8), (8, 8), (1, 1), (1, 1), 4), "a/b"))
except Exception as error:
    print(type(error).__name__, error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("ConfigError pretrained autoencoders need diffusers") and told.count("\n") == 1
    assert "pip install 'fusedplanes[diffusers]'" in told
