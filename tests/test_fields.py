"""Composition of planes and the field decoder."""

import pytest
import torch

from fusedplanes.errors import DataError
from fusedplanes.fields import FieldDecoder, ObjectPlanes, compose_planes, query_field


def test_composition_is_micro_beside_the_weighted_sum_of_bases():
    micro = torch.randn(2, 3, 4, 5, 3, dtype=torch.float64)
    weights = torch.randn(2, 6, dtype=torch.float64)
    base = torch.randn(6, 3, 4, 5, 2, dtype=torch.float64)
    planes = compose_planes(micro, weights, base)
    for i in range(2):
        macro = sum(weights[i, k] * base[k] for k in range(6))
        torch.testing.assert_close(planes[i], torch.cat([micro[i], macro], -1))


def test_without_bases_or_without_micro_planes_only_the_other_is_left():
    micro = torch.randn(2, 3, 4, 4, 5)
    assert compose_planes(micro, torch.zeros(2, 0), torch.zeros(0, 3, 4, 4, 0)) is micro
    base = torch.randn(3, 3, 4, 4, 2)
    planes = compose_planes(torch.zeros(2, 3, 4, 4, 0), torch.eye(3)[:2], base)
    torch.testing.assert_close(planes, base[:2])


def test_gradients_reach_micro_planes_weights_and_bases():
    micro = torch.randn(2, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    base = torch.randn(3, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(compose_planes, (micro, weights, base))


def test_decoder_has_the_published_number_of_parameters():
    latent, colour = FieldDecoder(32, 64, 4), FieldDecoder(32, 64, 3)
    assert sum(p.numel() for p in latent.parameters()) == 2437
    assert sum(p.numel() for p in colour.parameters()) == 2372


def test_query_is_linear_softplus_linear_of_the_sampled_feature():
    from fusedplanes.kernels import sample_triplane

    planes = torch.randn(3, 8, 8, 4, dtype=torch.float64)
    decoder = {name: value.double() for name, value in FieldDecoder.initial(4, 16, 2).items()}
    points = torch.rand(10, 3, dtype=torch.float64) * 2 - 1
    density, values = query_field(planes, decoder, points)
    feature = sample_triplane(planes, points)
    hidden = torch.log1p(torch.exp(feature @ decoder["hidden_weight"].T + decoder["hidden_bias"]))
    output = hidden @ decoder["output_weight"].T + decoder["output_bias"]
    torch.testing.assert_close(density, output[:, 0])
    torch.testing.assert_close(values, output[:, 1:])


def test_interpolation_ends_at_both_objects():
    a = ObjectPlanes(torch.randn(3, 4, 4, 2), torch.randn(5))
    b = ObjectPlanes(torch.randn(3, 4, 4, 2), torch.randn(5))
    torch.testing.assert_close(a.interpolate(b, 0.0).weights, a.weights)
    torch.testing.assert_close(a.interpolate(b, 1.0).micro_planes, b.micro_planes)
    torch.testing.assert_close(a.interpolate(b, 0.25).weights, 0.75 * a.weights + 0.25 * b.weights)
    with pytest.raises(DataError, match="shapes"):
        a.interpolate(ObjectPlanes(torch.randn(3, 8, 8, 2), torch.randn(5)), 0.5)
