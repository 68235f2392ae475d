"""Time every compiled CPU kernel against torch's own path, side by side in one process.

    python benchmarks/kernels.py [--threads 1 2] [--repeats 15] [--csv results.csv]

A pair is timed only after its outputs and gradients agree. The two runs of a pair alternate, so that a busy machine
slows both; the table gives medians. "forward" runs without autograd, "both" is forward and backward.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numba
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, softplus

from fusedplanes.kernels import composite, render_field, resample_distances, sample_triplane


@dataclass(frozen=True)
class Pair:
    """One op with its inputs: what we run and what a user of plain torch would run."""

    name: str
    inputs: tuple[Tensor, ...]
    items: int
    unit: str
    compiled: Callable[..., Tensor | tuple[Tensor, ...]]
    torchs: Callable[..., Tensor | tuple[Tensor, ...]]


def grid_sample_triplane(planes: Tensor, points: Tensor) -> Tensor:
    """The usual tri-plane lookup: three calls' worth of points stacked into one ``grid_sample``, then summed."""
    entries, _, height, width, channels = planes.shape
    images = planes.permute(0, 1, 4, 2, 3).reshape(entries * 3, channels, height, width)
    grid = torch.stack([points[..., [0, 1]], points[..., [0, 2]], points[..., [1, 2]]], dim=1)
    sampled = grid_sample(images, grid.flatten(0, 1)[:, None], align_corners=False)
    return sampled.view(entries, 3, channels, -1).sum(1).mT.contiguous()


def triplane_pair(entries: int, points: int, channels: int) -> Pair:
    planes = torch.randn(entries, 3, 64, 64, channels)
    coordinates = torch.rand(entries, points // entries, 3) * 2 - 1
    return Pair(
        f"sample_triplane {entries} x {points // entries} points, C={channels}",
        (planes.requires_grad_(), coordinates),
        points,
        "point",
        sample_triplane,
        grid_sample_triplane,
    )


def composite_pair(rays: int, samples: int, channels: int) -> Pair:
    distances = torch.rand(rays, samples).sort(-1).values
    values, densities = torch.randn(rays, samples, channels), torch.randn(rays, samples)
    return Pair(
        f"composite {rays} rays x {samples}, C={channels}",
        (values.requires_grad_(), densities.requires_grad_(), distances),
        rays * samples,
        "sample",
        lambda *inputs: composite(*inputs)[:3],
        lambda *inputs: composite(*inputs, backend="reference")[:3],
    )


def resample_pair(rays: int, samples: int) -> Pair:
    distances, weights = torch.rand(rays, samples).sort(-1).values, torch.rand(rays, samples - 1)
    return Pair(
        f"resample_distances {rays} rays x {samples} + {samples}",
        (distances, weights),
        rays * samples * 2,
        "sample",
        lambda *inputs: resample_distances(*inputs, samples, seed=1),
        lambda *inputs: resample_distances(*inputs, samples, seed=1, backend="reference"),
    )


def render_pair(entries: int, rays: int, samples: int, channels: int, hidden: int, values: int) -> Pair:
    planes = 0.3 * torch.randn(entries, 3, 64, 64, channels)
    decoder = (
        torch.randn(hidden, channels) * channels**-0.5,
        torch.zeros(hidden),
        torch.randn(1 + values, hidden) * hidden**-0.5,
        torch.zeros(1 + values),
    )
    origins = torch.nn.functional.normalize(torch.randn(entries, rays, 3), dim=-1) * 2
    directions = torch.nn.functional.normalize(0.3 * torch.randn(entries, rays, 3) - origins, dim=-1)
    distances = (1 + 2 * torch.rand(entries, rays, samples)).sort(-1).values

    def plain(planes, hidden_weight, hidden_bias, output_weight, output_bias, origins, directions, distances):
        points = origins[..., None, :] + distances[..., None] * directions[..., None, :]
        features = grid_sample_triplane(planes, points.flatten(1, 2))
        output = softplus(features @ hidden_weight.T + hidden_bias) @ output_weight.T + output_bias
        output = output.view(*distances.shape, -1)
        return composite(output[..., 1:], output[..., 0], distances, backend="reference")[:3]

    inputs = planes.requires_grad_(), *(tensor.requires_grad_() for tensor in decoder)
    return Pair(
        f"render_field {entries} x {rays} rays x {samples}, C={channels}, hidden {hidden}, K={values}",
        (*inputs, origins, directions, distances),
        entries * rays * samples,
        "sample",
        lambda *inputs: render_field(*inputs)[:3],
        plain,
    )


def pairs() -> Iterator[Pair]:
    """The benchmarked sizes: a batch of points, and the batches of rays that training works through."""
    yield triplane_pair(1, 200_000, 32)
    yield triplane_pair(8, 200_000, 32)
    yield triplane_pair(1, 200_000, 10)
    yield composite_pair(4096, 96, 4)
    yield composite_pair(4096, 96, 32)
    yield resample_pair(4096, 48)
    yield render_pair(8, 256, 96, 32, 64, 4)


def run(function: Callable, inputs: tuple[Tensor, ...], backward: bool) -> list[Tensor]:
    """Outputs, or gradients of their sum of squares by every input that wants one."""
    if not backward:
        with torch.no_grad():
            outputs = function(*inputs)
            return list(outputs) if isinstance(outputs, tuple) else [outputs]
    outputs = function(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    return list(torch.autograd.grad(outputs, wanted, [output.detach() for output in outputs]))


def check(pair: Pair, backward: bool) -> None:
    """Stop if the two paths differ: a wrong kernel has no speed."""
    results = (run(function, pair.inputs, backward) for function in (pair.compiled, pair.torchs))
    for ours, theirs in zip(*results):
        error = (ours - theirs).norm() / theirs.norm().clamp_min(1e-12)
        if not error < 1e-4:
            sys.exit(f"{pair.name}: the two paths differ by {error:.1e} of their size")


def measure(pair: Pair, backward: bool, repeats: int) -> tuple[float, float]:
    """Median seconds of our path and of torch's, alternating."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for times, function in zip(seconds, (pair.compiled, pair.torchs)):
            start = time.perf_counter()
            run(function, pair.inputs, backward)
            times.append(time.perf_counter() - start)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def machine() -> str:
    """What the numbers were measured on."""
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        models = [
            line.split(":", 1)[1].strip() for line in information.read_text().splitlines() if "model name" in line
        ]
        processor = f"{len(models)} x {models[0]}" if models else processor
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"{processor}, torch {torch.__version__}, numba {numba.__version__}, commit {commit.stdout.strip() or '?'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--csv", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print(machine())
    print(f"{'':74} threads  {'torch':>10} {'compiled':>10}  ratio")
    rows = []
    for pair in pairs():
        differentiable = any(tensor.requires_grad for tensor in pair.inputs)
        for backward in [False, True] if differentiable else [False]:
            check(pair, backward)
            for threads in arguments.threads:
                torch.set_num_threads(threads)
                ours, theirs = (seconds * 1e9 / pair.items for seconds in measure(pair, backward, arguments.repeats))
                what = f"{pair.name}, {'both' if backward else 'forward'}"
                print(f"{what:74} {threads:7}  {theirs:7.1f} ns {ours:7.1f} ns  {theirs / ours:5.1f}  per {pair.unit}")
                rows.append([what, threads, f"ns per {pair.unit}", f"{theirs:.2f}", f"{ours:.2f}"])
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["op", "threads", "unit", "torch", "compiled"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
