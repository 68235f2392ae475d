import pytest
import torch
from safetensors.torch import load, save

from fusedplanes.autoencoders.image import ImageAutoencoder, ImageAutoencoderConfig
from fusedplanes.errors import ConfigError, DataError


def small(**changes) -> ImageAutoencoder:
    torch.manual_seed(0)
    settings = {"latent_channels": 5, "width": 12, "encoder_blocks": 1, "decoder_blocks": 2} | changes
    autoencoder = ImageAutoencoder(ImageAutoencoderConfig(**settings))
    for parameter in autoencoder.parameters():  # new blocks are the identity, which would hide mistakes in them
        parameter.data += 0.05 * torch.randn(parameter.shape)
    return autoencoder


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_shapes_for_any_size_the_factor_divides(factor):
    autoencoder = small(downscale=factor)
    images = torch.rand(3, 2 * factor, 5 * factor, 3)
    mean, log_variance = autoencoder.encode(images)
    assert mean.shape == log_variance.shape == (3, 2, 5, 5)
    assert autoencoder.decode(mean).shape == images.shape


@pytest.mark.parametrize(("kernel_size", "detail_width"), [(1, 0), (3, 2), (5, 3)])
def test_gradients_agree_with_finite_differences(kernel_size, detail_width):
    settings = {"kernel_size": kernel_size, "detail_width": detail_width}
    autoencoder = small(downscale=2, latent_channels=2, width=4, **settings).double()
    images = torch.rand(1, 4, 6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(autoencoder.encode, images)
    latents = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(autoencoder.decode, latents)


def test_moving_an_image_by_whole_cells_moves_its_latents():
    autoencoder = small(downscale=4)
    images = torch.rand(1, 64, 64, 3)
    mean, _ = autoencoder.encode(images)
    moved, _ = autoencoder.encode(images.roll((8, -4), (1, 2)))
    inner = slice(6, -6)
    assert torch.allclose(moved[:, inner, inner], mean.roll((2, -1), (1, 2))[:, inner, inner], atol=1e-5)
    decoded = autoencoder.decode(mean.roll((2, -1), (1, 2)))[:, 24:-24, 24:-24]
    assert torch.allclose(decoded, autoencoder.decode(mean).roll((8, -4), (1, 2))[:, 24:-24, 24:-24], atol=1e-5)


def test_an_image_does_not_depend_on_its_batch():
    autoencoder = small()
    images = torch.rand(4, 16, 16, 3)
    together, _ = autoencoder.encode(images)
    alone, _ = autoencoder.encode(images[2:3])
    assert torch.allclose(together[2:3], alone, atol=1e-5)


def test_rows_and_columns_keep_their_places():
    """A bright pixel changes what is decoded around it, at every place, and nothing far away."""
    autoencoder = small(downscale=4, encoder_blocks=0, decoder_blocks=0, detail_width=0)
    images = torch.rand(1, 48, 48, 3)
    brighter = images.clone()
    brighter[0, 9, 37] += 1
    difference = autoencoder.decode(autoencoder.encode(brighter)[0]) - autoencoder.decode(autoencoder.encode(images)[0])
    rows, columns = difference[0].abs().amax(-1).gt(1e-6).nonzero(as_tuple=True)
    # Cell (2, 9); three convolutions of 3x3 reach three cells to each side.
    assert (rows.min().item(), rows.max().item()) == (0, 23)
    assert (columns.min().item(), columns.max().item()) == (24, 47)


def test_the_linear_start_is_the_best_linear_autoencoder():
    """No other eight directions leave less of the patches out (Eckart and Young 1936)."""
    autoencoder = small(downscale=2, latent_channels=8)
    for network in (autoencoder.encoder, autoencoder.decoder):
        torch.nn.init.zeros_(network.head.weight)
        torch.nn.init.zeros_(network.head.bias)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(6, 16, 20, 3, generator=generator).cumsum(1).cumsum(2) % 1
    autoencoder.start_linear(images)
    with torch.no_grad():
        mean, _ = autoencoder.encode(images)
        error = (autoencoder.decode(mean) - images).square().sum().item()
    patches = images.view(6, 8, 2, 10, 2, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, 12).double()
    left_out = torch.linalg.svdvals(patches - patches.mean(0))[8:].square().sum().item()
    assert error == pytest.approx(left_out, rel=1e-4)
    values = mean.flatten(0, 2)
    assert torch.allclose(values.mean(0), torch.zeros(8), atol=1e-4)
    assert torch.allclose(values.T @ values / len(values), torch.eye(8), atol=1e-3)


def test_the_linear_start_of_plain_images_is_finite():
    autoencoder = small()
    images = torch.tensor([0.9, 0.5, 0.1]).expand(2, 16, 16, 3)
    autoencoder.start_linear(images)
    assert all(parameter.isfinite().all() for parameter in autoencoder.parameters())
    for network in (autoencoder.encoder, autoencoder.decoder):
        torch.nn.init.zeros_(network.head.weight)
        torch.nn.init.zeros_(network.head.bias)
    assert torch.allclose(autoencoder.decode(autoencoder.encode(images)[0]), images, atol=1e-5)


def test_decoded_images_are_not_clamped():
    autoencoder = small()
    decoded = autoencoder.decode(100 * torch.randn(1, 8, 8, 5))
    assert decoded.min() < 0 and decoded.max() > 1


def test_weights_survive_safetensors():
    autoencoder, other = small(), small()
    for parameter in other.parameters():
        parameter.data.zero_()
    other.load_state_dict(load(save({name: value.contiguous() for name, value in autoencoder.state_dict().items()})))
    images = torch.rand(1, 16, 16, 3)
    assert torch.equal(other.decode(other.encode(images)[0]), autoencoder.decode(autoencoder.encode(images)[0]))


def test_encoder_and_decoder_parameters_are_all_and_disjoint():
    autoencoder = small()
    encoder, decoder = (
        {id(p) for p in group} for group in (autoencoder.encoder_parameters(), autoencoder.decoder_parameters())
    )
    assert not encoder & decoder
    assert encoder | decoder == {id(p) for p in autoencoder.parameters()}
    autoencoder.decode(torch.randn(1, 2, 2, 5)).sum().backward()
    assert all(p.grad is not None for p in autoencoder.decoder_parameters())
    assert all(p.grad is None for p in autoencoder.encoder_parameters())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("downscale", 3),
        ("downscale", 16),
        ("latent_channels", 0),
        ("width", -1),
        ("decoder_blocks", -1),
        ("kernel_size", 4),
        ("detail_width", -4),
    ],
)
def test_impossible_settings_are_named(field, value):
    with pytest.raises(ConfigError, match=f"{field}={value}") as caught:
        ImageAutoencoderConfig(**{field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(1, 18, 16, 3), (1, 16, 17, 3), (1, 0, 16, 3), (1, 16, 16, 4), (16, 16, 3)])
def test_images_that_do_not_fit_are_refused(shape):
    with pytest.raises(DataError) as caught:
        small().encode(torch.zeros(shape))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(1, 4, 4, 4), (4, 4, 5)])
def test_latents_that_do_not_fit_are_refused(shape):
    with pytest.raises(DataError, match="expected"):
        small().decode(torch.zeros(shape))
