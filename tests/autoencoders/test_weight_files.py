"""Published weights: where they are looked for, and everything that may be wrong with them."""

import json
import shutil
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from fusedplanes.autoencoders.pretrained import PretrainedAutoencoder
from fusedplanes.autoencoders.weight_files import CONFIG, WEIGHTS, load_weights, open_pretrained
from fusedplanes.errors import ConfigError, DataError


@pytest.fixture
def folder(tmp_path, published):
    """A copy of a small AutoencoderKL, to be spoilt."""
    return shutil.copytree(published("kl"), tmp_path / "vae")


def refused(source, kind=DataError):
    with pytest.raises(kind) as error:
        open_pretrained(source, accept_licence=True)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_pipeline_s_folder_serves_as_the_autoencoder_s_own(folder):
    own, pipeline = (open_pretrained(place, accept_licence=True) for place in (folder, folder.parent))
    assert own.architecture == pipeline.architecture
    assert own.source == str(folder) and own.revision is None
    assert (own.licence, own.licence_accepted) == ("unknown", True)


def test_attention_layers_of_old_files_have_today_s_names(folder):
    tensors = load_file(folder / WEIGHTS)
    old = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}
    renamed = {}
    for name, tensor in tensors.items():
        for new, before in old.items():
            name = name.replace(new, before)
        renamed[name] = tensor
    assert renamed.keys() != tensors.keys()
    save_file(renamed, folder / WEIGHTS)
    autoencoder = PretrainedAutoencoder(open_pretrained(folder, accept_licence=True))
    load_weights(autoencoder)
    for name, tensor in autoencoder.state_dict().items():
        assert torch.equal(tensor, tensors[name]), name


def test_a_tensor_under_its_old_and_its_new_name_is_refused(folder):
    tensors = load_file(folder / WEIGHTS)
    name = next(name for name in tensors if ".to_q." in name)
    save_file({**tensors, name.replace(".to_q.", ".query."): tensors[name] + 1}, folder / WEIGHTS)
    assert f"and '{name}', two names of one tensor" in refused(folder)


def test_half_precision_files_are_read_as_single(folder):
    save_file({name: tensor.half() for name, tensor in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)
    autoencoder = PretrainedAutoencoder(open_pretrained(folder, accept_licence=True))
    load_weights(autoencoder)
    assert {tensor.dtype for tensor in autoencoder.state_dict().values()} == {torch.float32}


# What is missing ------------------------------------------------------------------------------------------------------


def test_pickled_weights_are_not_read(folder):
    torch.save(load_file(folder / WEIGHTS), folder / "diffusion_pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    message = refused(folder)
    assert "diffusion_pytorch_model.bin: is a pickle" in message and WEIGHTS in message


def test_folders_without_an_autoencoder_are_named(folder, tmp_path):
    (folder / WEIGHTS).unlink()
    assert f"holds no {WEIGHTS}" in refused(folder)
    (folder / CONFIG).unlink()
    assert "no config.json here or in vae/" in refused(folder)
    assert "no such folder" in refused(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_class_name": "UNet2DModel"}, "_class_name is 'UNet2DModel'"),
        ({"norm_num_groups": 3}, "norm_num_groups=3 does not divide"),
    ],
)
def test_what_is_wrong_in_config_json_is_named_with_the_file(folder, change, message):
    value = json.loads((folder / CONFIG).read_text()) | change
    (folder / CONFIG).write_text(json.dumps(value))
    told = refused(folder, ConfigError)
    assert told.startswith(f"{folder / CONFIG}: ") and message in told


def test_shapes_that_do_not_fit_are_named(folder):
    value = json.loads((folder / CONFIG).read_text()) | {"block_out_channels": [8, 32]}
    (folder / CONFIG).write_text(json.dumps(value))
    assert "has shape" in refused(folder) and "its config.json asks for" in refused(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda tensors: tensors.pop("decoder.conv_out.bias"), "tensor 'decoder.conv_out.bias' is missing"),
        (lambda tensors: tensors.update(extra=torch.ones(1)), "'extra' is not part of the architecture"),
        (lambda tensors: tensors.update({"quant_conv.bias": torch.ones(8).int()}), "'quant_conv.bias' is described as"),
    ],
)
def test_tensors_that_do_not_belong_are_named(folder, spoil, message):
    tensors = load_file(folder / WEIGHTS)
    spoil(tensors)
    save_file(tensors, folder / WEIGHTS)
    assert message in refused(folder)


def test_weights_that_are_not_finite_are_refused(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors["quant_conv.bias"][0] = float("nan")
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(DataError, match=r"'quant_conv\.bias' has values that are not finite"):
        load_weights(PretrainedAutoencoder(open_pretrained(folder, accept_licence=True)))


# Hostile files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 5, 8, 100, 0.5, -1])
def test_truncated_files_are_refused(folder, kept):
    data = (folder / WEIGHTS).read_bytes()
    end = round(kept * len(data)) if isinstance(kept, float) else kept
    (folder / WEIGHTS).write_bytes(data[:end])
    assert WEIGHTS in refused(folder)


def header_of(*, length=None, **entries):
    """The bytes of a safetensors file that has a header only."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


@pytest.mark.parametrize(
    "data",
    [
        header_of(length=2**63),
        header_of(length=0),
        struct.pack("<Q", 4) + b"{]{]",
        struct.pack("<Q", 4) + b"1234",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        header_of(a={"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4 * 10**18]}),
        header_of(a={"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}),
        header_of(a={"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}),
        header_of(a={"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}),
        header_of(a={"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}),
        header_of(a={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
        header_of(a={"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}),
        header_of(a={"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}),
        header_of(a=[]),
    ],
)
def test_files_that_state_impossible_sizes_are_refused(folder, data):
    (folder / WEIGHTS).write_bytes(data)
    assert refused(folder).startswith(str(folder / WEIGHTS))


def test_tensors_that_lie_over_each_other_are_refused(folder):
    data = (folder / WEIGHTS).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    first, second = sorted(
        (n for n in header if header[n].get("shape") == [8]), key=lambda n: header[n]["data_offsets"]
    )[:2]
    header[first]["data_offsets"] = header[second]["data_offsets"]
    text = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    with pytest.raises(DataError, match="not a safetensors file"):
        load_weights(PretrainedAutoencoder(open_pretrained(folder, accept_licence=True)))


def test_a_random_byte_anywhere_in_the_header_never_escapes_as_another_error(folder):
    data = bytearray((folder / WEIGHTS).read_bytes())
    length = int.from_bytes(data[:8], "little")
    generator = torch.Generator().manual_seed(0)
    for place in torch.randint(8 + length, (40,), generator=generator).tolist():
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        (folder / WEIGHTS).write_bytes(changed)
        try:
            load_weights(PretrainedAutoencoder(open_pretrained(folder, accept_licence=True)))
        except DataError as error:
            assert "\n" not in str(error)


# The hub --------------------------------------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub's client, which is offline."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def put_in_cache(cache, hub_id, files, subfolder=""):
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text(COMMIT)
    place = repository / "snapshots" / COMMIT / subfolder
    place.mkdir(parents=True)
    for path in files:
        shutil.copy(path, place)


@pytest.mark.parametrize("subfolder", ["", "vae"])
def test_what_the_cache_has_needs_no_hub(cache, published, subfolder):
    put_in_cache(cache, "madebyollin/taesd", published("tiny").iterdir(), subfolder)
    config = open_pretrained("madebyollin/taesd")
    assert (config.source, config.revision) == ("madebyollin/taesd", COMMIT)
    assert (config.licence, config.licence_accepted) == ("MIT", False)
    load_weights(PretrainedAutoencoder(config))


def test_a_hub_that_does_not_answer_is_named(cache, published):
    assert "madebyollin/taesd: the hub does not answer" in refused("madebyollin/taesd")
    put_in_cache(cache, "madebyollin/taesd", [published("tiny") / CONFIG])
    message = refused("madebyollin/taesd")
    assert f"its cache has no {WEIGHTS}" in message and "name a local folder" in message


def test_what_the_hub_has_not_is_named(monkeypatch, published):
    import huggingface_hub
    from huggingface_hub.utils import EntryNotFoundError

    def give(hub_id, name, **_):
        if hub_id == "someone/gone":
            raise OSError("404 Client Error.\n\nRepository not found.")
        if hub_id == "someone/pickles" and name == CONFIG:
            return str(published("kl") / CONFIG)
        raise EntryNotFoundError("404")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", give)
    assert "the hub does not give config.json (404 Client Error.)" in refused("someone/gone")
    assert "has neither config.json nor vae/config.json" in refused("someone/empty")
    assert f"has no {WEIGHTS}; no other format is read" in refused("someone/pickles")


@pytest.mark.parametrize("source", ["taesd", "./vae", "a/b/c", "http://hub/a", "/a/b", ""])
def test_what_is_neither_folder_nor_hub_id_is_not_asked_for(source):
    assert "no such folder, and no hub id (owner/name)" in refused(source)


def test_a_mistyped_folder_is_not_asked_of_the_hub(tmp_path, monkeypatch):
    (tmp_path / "autoencoders").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "no such folder in autoencoders" in refused("autoencoders/tiny")
