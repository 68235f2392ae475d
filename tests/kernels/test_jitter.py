"""Counter-based jitter: reproducible, uniform, independent, and the same in compiled kernels."""

import pytest
import torch

from fusedplanes.kernels import jitter_cpu
from fusedplanes.kernels.dispatch import compile_kernel, launch
from fusedplanes.kernels.jitter import hash_to_unit, split_seed, stratified_distances, unit_samples


def test_the_sequence_never_changes():
    numbers = hash_to_unit(0, torch.tensor([[0], [1], [2**31]]), torch.tensor([0, 1, 95]))
    assert (numbers.double() * 2**24).long().tolist() == [
        [4322206, 9654586, 14324599],
        [11644959, 12710429, 3689946],
        [11024469, 13402565, 14760078],
    ]


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**32 - 1, 2**40 + 7, 2**64 + 3])
def test_compiled_kernels_compute_the_same_bits(seed):
    rays = torch.tensor([*range(200), 2**31 - 1, 2**31, 2**32 - 1, 2**33 + 5])
    numbers = torch.zeros(len(rays), 65)
    hash_seed, hash_one = jitter_cpu.hash_seed, jitter_cpu.hash_to_unit

    def fill(numbers, rays, low, high):
        for i in range(numbers.shape[0]):
            for sample in range(numbers.shape[1]):
                numbers[i, sample] = hash_one(hash_seed(low, high), rays[i], sample)

    launch(
        compile_kernel("void(float32[:, ::1], int64[::1], int64, int64)", parallel=False)(fill),
        numbers,
        rays,
        *split_seed(seed),
    )
    assert torch.equal(numbers, hash_to_unit(seed, rays[:, None], torch.arange(65)))


def test_numbers_are_uniform_and_independent_between_seeds_rays_and_samples():
    rays, samples = torch.arange(2000)[:, None], torch.arange(64)
    numbers = hash_to_unit(3, rays, samples)
    assert numbers.min() >= 0 and numbers.max() < 1
    histogram = torch.histc(numbers, 64, 0, 1)
    expected = numbers.numel() / 64
    # Chi-squared with 63 degrees of freedom exceeds 115 once in 10,000 fair draws.
    assert ((histogram - expected) ** 2 / expected).sum() < 115
    for other in (
        hash_to_unit(4, rays, samples),
        hash_to_unit(3, rays + 1, samples),
        hash_to_unit(3, rays, samples + 1),
    ):
        correlation = torch.corrcoef(torch.stack([numbers.flatten(), other.flatten()]))[0, 1]
        assert abs(correlation) < 0.012  # 4 standard deviations


def test_strata_hold_one_sample_each_and_middles_without_a_seed():
    jittered = unit_samples(torch.Size([50]), 16, 5, torch.device("cpu"))
    assert torch.equal((jittered * 16).floor().long(), torch.arange(16).expand(50, 16))
    assert torch.equal(unit_samples(torch.Size([2]), 4, None, torch.device("cpu"))[1] * 8, torch.tensor([1.0, 3, 5, 7]))


def test_rays_are_numbered_through_the_batch():
    flat = unit_samples(torch.Size([6]), 4, 9, torch.device("cpu"))
    assert torch.equal(unit_samples(torch.Size([2, 3]), 4, 9, torch.device("cpu")).view(6, 4), flat)


@pytest.mark.parametrize("seed", [None, 11])
def test_stratified_distances_cover_the_ray_and_a_ray_without_length_stays_where_it_is(seed):
    near, far = torch.tensor([1.0, 0.1, 3.0]), torch.tensor([2.0, 0.1, 3.5])
    distances = stratified_distances(near, far, 48, seed=seed)
    assert (distances.diff(dim=-1) >= 0).all()
    assert (distances >= near[:, None]).all() and (distances <= far[:, None]).all()
    assert (distances[1] == near[1]).all()
    edges = near[:, None] + torch.arange(49) / 48 * (far - near)[:, None]
    assert (distances >= edges[:, :-1] - 1e-6).all() and (distances <= edges[:, 1:] + 1e-6).all()
