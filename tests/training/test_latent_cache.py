import json
import os
import struct
import zlib

import numpy as np
import pytest
import torch

from fusedplanes.autoencoders.image import ImageAutoencoder, ImageAutoencoderConfig
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import composite_over
from fusedplanes.training.latent_cache import LatentCache, background_latents

WHITE = torch.ones(3)


@pytest.fixture
def autoencoder() -> ImageAutoencoder:
    torch.manual_seed(0)
    return ImageAutoencoder(ImageAutoencoderConfig(latent_channels=5, width=8, encoder_blocks=1, decoder_blocks=0))


@pytest.fixture
def images() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(256, (views, 12, 8, 4), dtype=torch.uint8, generator=generator) for views in (3, 1, 40)]


class Counted:
    """The encoder with a count of the images it saw."""

    def __init__(self, autoencoder):
        self.seen = 0
        autoencoder.encoder.register_forward_pre_hook(self._count)

    def _count(self, _, arguments):
        self.seen += len(arguments[0])


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 2e-3)])
def test_latents_are_those_of_the_encoder(autoencoder, images, tmp_path, stored, dtype, tolerance):
    background = torch.tensor([0.2, 0.5, 0.9])
    path = tmp_path / "run" / "latents" if stored else None
    cache = LatentCache.build(autoencoder, images, background, path=path, dtype=dtype)
    assert len(cache) == 3
    for index, views in enumerate(images):
        expected = autoencoder.encode(composite_over(views.float() / 255, background))
        for found, wanted in zip(cache.read(index), expected):
            assert found.dtype == torch.float32
            assert found.shape == (len(views), 3, 2, 5)
            assert torch.allclose(found, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("stored", [False, True])
def test_standardised_latents_have_mean_zero_and_deviation_one(autoencoder, images, tmp_path, stored):
    autoencoder.encoder.head.bias.data += 50  # far from zero: where careless sums of squares lose the deviation
    path = tmp_path / "latents" if stored else None
    cache = LatentCache.build(autoencoder, images, WHITE, path=path, dtype="float32")
    values = torch.cat([cache.standardised(index).flatten(0, 2) for index in range(len(cache))]).double()
    assert torch.allclose(values.mean(0), torch.zeros(5).double(), atol=1e-4)
    assert torch.allclose(values.std(0, correction=0), torch.ones(5).double(), atol=1e-4)
    assert torch.allclose(cache.restore(cache.standardised(2)), cache.read(2)[0], atol=1e-4)


def test_a_channel_that_never_changes_stays_finite(autoencoder, images):
    for layer in (autoencoder.encoder.head, autoencoder.encoder.linear):
        layer.weight.data[0] = 0
    cache = LatentCache.build(autoencoder, images, WHITE)
    assert cache.standardised(0).isfinite().all()
    assert cache.standardised(0)[..., 0].abs().max() < 1e-3


def test_encodes_every_view_once_and_not_again(autoencoder, images, tmp_path):
    counted = Counted(autoencoder)
    first = LatentCache.build(autoencoder, images, WHITE, path=tmp_path / "latents")
    assert counted.seen == 44
    second = LatentCache.build(autoencoder, images, WHITE, path=tmp_path / "latents")
    assert counted.seen == 44
    assert torch.equal(first.standardised(2), second.standardised(2))
    assert torch.equal(first.mean, second.mean) and torch.equal(first.scale, second.scale)


@pytest.mark.parametrize("change", ["encoder", "pixel", "views", "ids", "background", "dtype", "order"])
def test_whatever_latents_depend_on_makes_them_anew(autoencoder, images, tmp_path, change):
    path = tmp_path / "latents"
    ids, background, dtype = ["a", "b", "c"], WHITE, "float32"
    LatentCache.build(autoencoder, images, background, ids=ids, path=path, dtype=dtype)
    if change == "encoder":
        autoencoder.encoder.head.bias.data[3] += 1e-3
    elif change == "pixel":
        images[1][0, 3, 3] = 255 - images[1][0, 3, 3]
    elif change == "views":
        images[2] = images[2][:39]
    elif change == "ids":
        ids = ["a", "b", "d"]
    elif change == "background":
        background = torch.tensor([1.0, 1.0, 0.99])
    elif change == "dtype":
        dtype = "float16"
    elif change == "order":
        images[0], images[1] = images[1], images[0]
    counted = Counted(autoencoder)
    cache = LatentCache.build(autoencoder, images, background, ids=ids, path=path, dtype=dtype)
    assert counted.seen == sum(map(len, images))
    wanted, _ = autoencoder.encode(composite_over(images[1].float() / 255, background))
    assert torch.allclose(cache.read(1)[0], wanted, atol=2e-3)


def test_the_decoder_may_change(autoencoder, images, tmp_path):
    LatentCache.build(autoencoder, images, WHITE, path=tmp_path / "latents")
    for parameter in autoencoder.decoder_parameters():
        parameter.data += 1
    counted = Counted(autoencoder)
    LatentCache.build(autoencoder, images, WHITE, path=tmp_path / "latents")
    assert counted.seen == 0


def test_a_signature_stands_for_the_images(autoencoder, images, tmp_path):
    class Lazy:
        loaded = 0

        def __len__(self):
            return len(images)

        def __getitem__(self, index):
            self.loaded += 1
            return images[index]

    lazy = Lazy()
    LatentCache.build(autoencoder, lazy, WHITE, path=tmp_path / "latents", data_signature="cars-1")
    assert lazy.loaded == 3
    LatentCache.build(autoencoder, lazy, WHITE, path=tmp_path / "latents", data_signature="cars-1")
    assert lazy.loaded == 3
    LatentCache.build(autoencoder, lazy, WHITE, path=tmp_path / "latents", data_signature="cars-2")
    assert lazy.loaded == 6


def test_a_run_that_dies_leaves_the_old_file(autoencoder, images, tmp_path):
    path = tmp_path / "latents"
    LatentCache.build(autoencoder, images, WHITE, path=path)
    before = path.read_bytes()
    images[2] = images[2][..., :3]
    with pytest.raises(DataError, match="object number 2"):
        LatentCache.build(autoencoder, images, WHITE, path=path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["latents"]


def test_damaged_files_are_made_anew_or_refused(autoencoder, images, tmp_path):
    path = tmp_path / "latents"
    wanted = LatentCache.build(autoencoder, images, WHITE, path=path).standardised(0)
    intact = path.read_bytes()
    random = np.random.default_rng(0)
    lengths = [0, 7, 24, 25, len(intact) // 2, len(intact) - 1]
    mutants = [intact[:length] for length in lengths] + [intact + b"x"]
    for position in random.integers(0, len(intact), 60).tolist() + list(range(0, 24, 5)):
        mutant = bytearray(intact)
        mutant[position] ^= 1 << random.integers(8)
        mutants.append(bytes(mutant))
    for mutant in mutants:
        path.write_bytes(mutant)
        try:
            cache = LatentCache.open(path)
            for index in range(len(cache)):
                cache.read(index)
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
    path.write_bytes(intact[:-1])
    assert torch.equal(LatentCache.build(autoencoder, images, WHITE, path=path).standardised(0), wanted)


def test_a_flipped_bit_in_the_latents_is_found(autoencoder, images, tmp_path):
    path = tmp_path / "latents"
    LatentCache.build(autoencoder, images, WHITE, path=path)
    content = bytearray(path.read_bytes())
    content[24 + 5] ^= 16
    path.write_bytes(content)
    cache = LatentCache.open(path)
    with pytest.raises(DataError, match="object number 0 are damaged"):
        cache.read(0)
    assert cache.read(1)[0].isfinite().all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("latent_shape", [3, 2]),
        ("latent_shape", [1 << 40, 1 << 40, 5]),
        ("latent_shape", [-3, -2, 5]),
        ("views", [44]),
        ("views", "many"),
        ("dtype", "object"),
        ("mean", [0.0]),
        ("mean", [float("nan")] * 5),
        ("scale", [0.0] * 5),
        ("scale", [[1.0]] * 5),
        ("crc32", [0.5, 1, 2]),
        ("fingerprint", 7),
    ],
)
def test_headers_that_lie_are_refused(autoencoder, images, tmp_path, field, value):
    path = tmp_path / "latents"
    LatentCache.build(autoencoder, images, WHITE, path=path)
    rewrite_header(path, {field: value})
    with pytest.raises(DataError, match="damaged"):
        LatentCache.open(path)


def test_newer_formats_are_refused_by_name(autoencoder, images, tmp_path):
    path = tmp_path / "latents"
    LatentCache.build(autoencoder, images, WHITE, path=path)
    rewrite_header(path, {"format_version": 9})
    with pytest.raises(DataError, match="format version 9"):
        LatentCache.open(path)


def rewrite_header(path, changes):
    content = path.read_bytes()
    (offset,) = struct.unpack("<Q", content[8:16])
    header = json.dumps(json.loads(content[offset:]) | changes).encode()
    path.write_bytes(content[:8] + struct.pack("<QQ", offset, len(header)) + content[24:offset] + header)


def test_the_file_is_laid_out_as_documented(autoencoder, images, tmp_path):
    path = tmp_path / "latents"
    cache = LatentCache.build(autoencoder, images, WHITE, path=path, ids=["a", "b", "c"])
    content = path.read_bytes()
    offset, length = struct.unpack("<QQ", content[8:24])
    header = json.loads(content[offset : offset + length])
    assert (header["ids"], header["views"], header["latent_shape"]) == (["a", "b", "c"], [3, 1, 40], [3, 2, 5])
    second = content[24 + 3 * 60 * 2 : 24 + 4 * 60 * 2]
    assert zlib.crc32(second) == header["crc32"][1]
    assert np.array_equal(np.frombuffer(second, "<f2")[:30].reshape(3, 2, 5), cache.read(1)[0][0].half().numpy())


def test_latents_beyond_half_precision_are_refused_with_the_remedy(autoencoder, images):
    autoencoder.encoder.head.bias.data += 1e5
    with pytest.raises(DataError, match="dtype float32"):
        LatentCache.build(autoencoder, images, WHITE)
    LatentCache.build(autoencoder, images, WHITE, dtype="float32")


def test_mistakes_of_the_caller_are_named(autoencoder, images):
    with pytest.raises(ConfigError, match="float64"):
        LatentCache.build(autoencoder, images, WHITE, dtype="float64")
    with pytest.raises(ConfigError, match="2 ids for 3 objects"):
        LatentCache.build(autoencoder, images, WHITE, ids=["a", "b"])
    with pytest.raises(DataError, match="no images"):
        LatentCache.build(autoencoder, [], WHITE)
    with pytest.raises(DataError, match="object number 1"):
        LatentCache.build(autoencoder, [images[0], images[1][:, :8], images[2]], WHITE)


def test_the_background_has_a_code_of_its_own_in_every_cell(autoencoder):
    background = torch.tensor([0.3, 0.6, 0.9])
    code = background_latents(autoencoder, background, width=40, height=32)
    assert code.shape == (8, 10, 5)
    empty = [torch.zeros(1, 32, 40, 4, dtype=torch.uint8)]
    cached = LatentCache.build(autoencoder, empty, background, dtype="float32").read(0)[0][0]
    assert torch.allclose(code, cached, atol=1e-6)
    assert torch.allclose(code[3, 4], code[4, 5], atol=1e-6)  # far from the border all cells agree
    assert not torch.allclose(code[0, 0], code[3, 4], atol=1e-3)
