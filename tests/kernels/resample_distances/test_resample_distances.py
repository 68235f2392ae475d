"""`resample_distances`: hand-computed placements, then compiled kernels against the reference."""

import pytest
import torch

from fusedplanes.errors import ConfigError, DataError
from fusedplanes.kernels import resample_distances
from fusedplanes.kernels.jitter import hash_to_unit

BACKENDS = ["cpu", "reference"]


def random_inputs(batch, samples):
    return torch.rand(*batch, samples).sort(-1).values * 3 + 0.5, torch.rand(*batch, samples - 1) ** 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_computed_by_hand(backend):
    # Larger of two: 0 0 1 1 0. Mean of two: 0 .5 1 .5. Interior, lifted: .51001 1.01001, of 1.52002 in all.
    # They lie between the middle distances .5, 1.5 and 2.5; the fractions asked for are 1/4 and 3/4.
    coarse, weights = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]), torch.tensor([0.0, 0.0, 1.0, 0.0])
    total = 0.51001 + 1.01001
    first = 0.5 + 0.25 * total / 0.51001
    second = 1.5 + (0.75 * total - 0.51001) / 1.01001
    union = resample_distances(coarse, weights, 2, backend=backend)
    assert union.tolist() == pytest.approx([0.0, 1.0, first, 2.0, second, 3.0, 4.0], abs=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_jitter_moves_every_fraction_within_its_stratum_by_ray(backend):
    # With equal weights the map from fraction to distance is linear: .5 + 4 * fraction.
    coarse, weights = torch.arange(7.0).expand(2, 3, 7), torch.ones(2, 3, 6)
    placed = resample_distances(coarse, weights, 5, seed=21, backend=backend).sort(-1).values
    offsets = hash_to_unit(21, torch.arange(6).view(2, 3, 1), torch.arange(5))
    expected = torch.cat([coarse, 0.5 + 4 * (torch.arange(5) + offsets) / 5], dim=-1).sort(-1).values
    torch.testing.assert_close(placed, expected, rtol=0, atol=2e-6)
    assert not torch.equal(placed, resample_distances(coarse, weights, 5, seed=22, backend=backend))


@pytest.mark.parametrize("seed", [None, 5, 2**63 + 1, -4])
@pytest.mark.parametrize(
    ("batch", "samples", "count"),
    [((1,), 1, 3), ((5,), 2, 4), ((), 3, 1), ((7,), 4, 9), ((3, 11), 17, 23), ((1023,), 48, 48), ((4,), 9, 0)],
)
def test_compiled_kernels_agree_with_the_reference_and_are_sorted(batch, samples, count, seed):
    distances, weights = random_inputs(batch, samples)
    union = resample_distances(distances, weights, count, seed=seed, backend="cpu")
    plain = resample_distances(distances, weights, count, seed=seed, backend="reference")
    exact = resample_distances(distances.double(), weights.double(), count, seed=seed)
    assert union.shape == (*batch, samples + count) and union.dtype == torch.float32
    assert (union.diff(dim=-1) >= 0).all()
    error = (union.double() - exact).abs().max().item()
    assert error <= max(2 * (plain.double() - exact).abs().max().item(), 1e-6)
    for coarse, ray in zip(distances.view(-1, samples), union.view(-1, samples + count)):
        assert torch.isin(coarse, ray).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("samples", [2, 4, 48])
def test_a_ray_without_length_stays_where_it_is(backend, samples):
    distances, weights = random_inputs((3,), samples)
    distances[1] = 0.3
    weights[1] = 0
    union = resample_distances(distances, weights, 16, seed=2, backend=backend)
    assert union.isfinite().all() and (union[1] == torch.tensor(0.3)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_that_are_not_finite_count_as_zero_and_stay_in_their_ray(backend):
    distances, weights = random_inputs((3,), 20)
    broken = weights.clone()
    broken[1, 5], broken[1, 6], broken[1, 7] = float("nan"), float("inf"), -float("inf")
    weights[1, 5:8] = 0
    expected = resample_distances(distances, weights, 16, backend=backend)
    assert torch.equal(resample_distances(distances, broken, 16, backend=backend), expected)


def test_samples_gather_where_the_weight_is():
    distances = torch.linspace(0, 1, 49)
    weights = torch.zeros(48)
    weights[30] = 1.0
    union = resample_distances(distances, weights, 100)
    near = (union > distances[28]) & (union < distances[33])
    assert near.sum() > 70


def test_results_do_not_depend_on_the_number_of_threads(threads):
    distances, weights = random_inputs((500,), 24)
    one = resample_distances(distances, weights, 24, seed=1, backend="cpu")
    threads(2)
    assert torch.equal(resample_distances(distances, weights, 24, seed=1, backend="cpu"), one)


def test_no_gradient_and_no_alias_comes_out():
    distances, weights = random_inputs((3,), 6)
    for backend in BACKENDS:
        union = resample_distances(distances.requires_grad_(), weights.requires_grad_(), 0, backend=backend)
        assert not union.requires_grad and torch.equal(union, distances)
        assert union.data_ptr() != distances.data_ptr()


def test_no_rays_give_no_samples():
    for backend in BACKENDS:
        assert resample_distances(*random_inputs((0,), 6), 4, backend=backend).shape == (0, 10)


def test_the_operator_is_registered_as_torch_demands_and_compiles_as_one_graph():
    distances, weights = random_inputs((2, 3), 6)
    torch.library.opcheck(torch.ops.fusedplanes.resample_distances.default, (distances, weights, 4, True, 1, 2))
    compiled = torch.compile(lambda d, w: resample_distances(d, w, 4, seed=3), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(distances, weights), resample_distances(distances, weights, 4, seed=3))


@pytest.mark.parametrize(
    ("distances", "weights", "count", "error", "words"),
    [
        ((2, 0), (2, 0), 1, DataError, "S at least 1"),
        ((2, 5), (2, 5), 1, DataError, "weights must be [2, 4]"),
        ((2, 5), (4,), 1, DataError, "weights must be [2, 4]"),
        ((2, 5), (2, 4), -1, ConfigError, "count is -1"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(distances, weights, count, error, words):
    with pytest.raises(error) as caught:
        resample_distances(torch.zeros(distances), torch.zeros(weights), count)
    assert words in str(caught.value) and "\n" not in str(caught.value)
