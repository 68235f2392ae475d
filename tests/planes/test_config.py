"""Presets and their JSON."""

import json

import pytest

from fusedplanes.errors import ConfigError
from fusedplanes.planes.config import ModelConfig, from_json, preset, to_json, with_downscale


@pytest.mark.parametrize("name", ["tiny", "small", "paper"])
@pytest.mark.parametrize("method", ["fused-planes", "ulw", "tri-planes"])
def test_presets_survive_json(name, method):
    config = preset(name, method)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_paper_sizes_are_the_published_ones():
    fused, ulw, plain = (preset("paper", method).model for method in ("fused-planes", "ulw", "tri-planes"))
    assert (fused.resolution, fused.micro_channels, fused.macro_channels, fused.base_planes) == (64, 10, 22, 50)
    assert 4 * 3 * 64 * 64 * fused.micro_channels == 491_520  # micro planes
    assert fused.object_values - fused.base_planes == 3 * 64 * 64 * 10
    assert (ulw.micro_channels, ulw.macro_channels, 4 * ulw.object_values) == (0, 32, 200)
    assert 4 * 3 * 64 * 64 * plain.channels == 1_572_864
    assert plain.autoencoder is None and plain.base_planes == 0 and not plain.shared_decoder
    assert (fused.coarse_samples, fused.fine_samples) == (48, 48)


def test_paper_loss_weights_are_the_published_ones():
    training = preset("paper").training
    assert (training.latent_loss, training.color_loss, training.autoencoder_loss) == (1.0, 1.0, 0.1)
    assert training.total_variation == 1e-4


def test_methods_without_a_latent_space_have_no_downscale():
    assert with_downscale(preset("small"), 8).model.autoencoder.downscale == 8
    plain = preset("small", "tri-planes")
    assert with_downscale(plain, 8) == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"micro_channels": 0, "macro_channels": 0, "base_planes": 0}, "at least one channel"),
        ({"base_planes": 0}, "macro planes need both"),
        ({"resolution": 1}, "resolution=1"),
        ({"fine_samples": -1}, "fine_samples=-1"),
        ({"resolution": 10**9}, "at most 4096"),
        ({"hidden": 10**9}, "at most 4096"),
    ],
)
def test_models_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**change)


def test_json_of_a_newer_version_or_with_wrong_values_is_refused():
    good = to_json(preset("tiny"))
    with pytest.raises(ConfigError, match="unknown field 'wings'"):
        from_json({**good, "wings": 2})
    with pytest.raises(ConfigError, match=r"config\.model\.resolution"):
        from_json({**good, "model": {**good["model"], "resolution": "32"}})
    with pytest.raises(ConfigError, match=r"config\.method"):
        from_json({**good, "method": "voxels"})
    with pytest.raises(ConfigError, match="model"):
        from_json({name: value for name, value in good.items() if name != "model"})


def test_unknown_names_list_the_choices():
    with pytest.raises(ConfigError, match="tiny, small or paper"):
        preset("huge")
    with pytest.raises(ConfigError, match="fused-planes, ulw or tri-planes"):
        preset("tiny", "voxels")
