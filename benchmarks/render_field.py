"""Time and peak memory of `render_field` against torch's own path, on the views that training renders.

    python benchmarks/render_field.py [--threads 2] [--repeats 9]

The other path is what one writes in plain torch: `grid_sample` of the planes as images, two linear layers,
compositing, all kept for autograd. A pair is timed only after its outputs and gradients agree; its two runs alternate,
so that a busy machine slows both. "both" is forward and backward. Memory is the growth of the resident peak in a
process of its own (Linux).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fusedplanes.cameras import Cameras
from fusedplanes.kernels import composite, render_field
from fusedplanes.rays import Rays
from kernels import Pair, check, grid_sample_triplane, machine, measure, run


def render_with_torch(
    planes: Tensor,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    output_weight: Tensor,
    output_bias: Tensor,
    origins: Tensor,
    directions: Tensor,
    distances: Tensor,
    value_activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    points = origins[..., None, :] + distances[..., None] * directions[..., None, :]
    features = grid_sample_triplane(planes, points.flatten(1, 2))
    output = softplus(features @ hidden_weight.T + hidden_bias) @ output_weight.T + output_bias
    output = output.view(*distances.shape, -1)
    values = output[..., 1:]
    if value_activation == "sigmoid":
        values = 1.002 * torch.sigmoid(values) - 0.001
    return composite(values, output[..., 0], distances, backend="reference")[:3]


def views(name: str, count: int, size: int, samples: int, cells: int, values: int, activation: str) -> Pair:
    """``count`` objects, one camera round each; 32 channels, 64 hidden units."""
    planes = 0.3 * torch.randn(count, 3, cells, cells, 32)
    decoder = (
        torch.randn(64, 32) * 32**-0.5,
        torch.zeros(64),
        torch.randn(1 + values, 64) / 8,
        torch.zeros(1 + values),
    )
    rays = Rays.from_cameras(Cameras.orbit(count, width=size, height=size))
    strata = (torch.arange(samples) + torch.rand(count, size * size, samples)) / samples
    distances = rays.near[..., None] + (rays.far - rays.near)[..., None] * strata
    return Pair(
        name,
        (*(tensor.requires_grad_() for tensor in (planes, *decoder)), rays.origins, rays.directions, distances),
        count,
        "view",
        lambda *inputs: render_field(*inputs, value_activation=activation)[:3],
        lambda *inputs: render_with_torch(*inputs, activation),
    )


def pairs() -> Iterator[Pair]:
    yield views("16 latent views 16 x 16, 96 samples, planes 32 x 32, K=8", 16, 16, 96, 32, 8, "linear")
    yield views("16 latent views 16 x 16, 96 samples, planes 64 x 64, K=8", 16, 16, 96, 64, 8, "linear")
    yield views("16 latent views 16 x 16, 48 samples, planes 64 x 64, K=8", 16, 16, 48, 64, 8, "linear")
    yield views("one colour view 64 x 64, 96 samples, planes 64 x 64, K=3", 1, 64, 96, 64, 3, "sigmoid")


def flops(pair: Pair, backward: bool) -> int:
    """Multiplications and additions in the decoder; backward evaluates it again and goes through it twice."""
    _, hidden_weight, _, output_weight, *_, distances = pair.inputs
    return distances.numel() * 2 * (hidden_weight.numel() + output_weight.numel()) * (4 if backward else 1)


def peak_growth(index: int, path: str, threads: int) -> float:
    """MB that forward and backward add to a fresh process's peak."""
    command = [sys.executable, __file__, "--threads", str(threads), "--peak", str(index), path]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_peak_growth(index: int, path: str) -> None:
    pair = list(pairs())[index]
    small = views("warm-up", 1, 2, 4, 4, 2, "linear")
    function = {"ours": lambda p: p.compiled, "torch": lambda p: p.torchs}[path]
    run(function(small), small.inputs, backward=True)
    before = resident_peak()
    run(function(pair), pair.inputs, backward=True)
    print(resident_peak() - before)


def resident_peak() -> float:
    """MB. Not ``getrusage``, whose peak a child process takes over from its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--peak", nargs=2, metavar=("PAIR", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    if arguments.peak:
        print_peak_growth(int(arguments.peak[0]), arguments.peak[1])
        return
    print(f"{machine()}, {arguments.threads} threads")
    print(f"{'per view':66} {'torch':>10} {'compiled':>10}  ratio  {'decoder':>12}")
    for index, pair in enumerate(pairs()):
        for backward in (False, True):
            check(pair, backward)
            ours, theirs = measure(pair, backward, arguments.repeats)
            label = f"{pair.name}, {'both' if backward else 'forward'}"
            speed = flops(pair, backward) / ours / 1e9
            print(
                f"{label:66} {theirs * 1e3 / pair.items:7.2f} ms {ours * 1e3 / pair.items:7.2f} ms"
                f"  {theirs / ours:5.1f}  {speed:5.0f} GFLOP/s",
                flush=True,
            )
        if not Path("/proc/self/status").exists():
            continue
        ours, theirs = (peak_growth(index, path, arguments.threads) for path in ("ours", "torch"))
        label = f"{pair.name}, peak"
        print(f"{label:66} {theirs:7.0f} MB {ours:7.0f} MB  {theirs / ours:5.1f}", flush=True)


if __name__ == "__main__":
    main()
