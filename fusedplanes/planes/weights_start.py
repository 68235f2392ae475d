"""Where a new object's weights begin: the mix of base planes that explains its views best, by least squares.

A decoded image depends on the weights through a small network, a march along each ray and the image decoder, so the
problem is solved by Gauss-Newton steps (Levenberg-Marquardt): rendering once more for each base plane gives the
derivatives. Known objects say which weights are likely, and one view leaves much open: their mean and covariance are
the prior. Images are compared, not latents, because the joint phase moves what the decoder reads away from what the
encoder writes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.fields import compose_planes
from fusedplanes.planes.model import PlanesModel, render_field_views

VIEWS = 2
ITERATIONS = 3
NUDGE = 0.05
"""Step of the finite differences, in standard deviations of the known weights."""
INDEPENDENT = 0.005
"""Share of the pixels' values that count as independent observations: neighbours see the same surface, and what the
base planes cannot express is no noise."""


@torch.no_grad()
def least_squares_weights(
    model: PlanesModel, images: Tensor, cameras: Cameras, known: Tensor, generator: torch.Generator
) -> Tensor:
    """Weights ``[M]`` of one object whose micro planes are zero.

    Args:
        model: with trained shared parts.
        images: ``[V, H, W, 3]`` over the model's background.
        cameras: ``V`` cameras; at most ``VIEWS`` are looked at.
        known: ``[K, M]`` weights of trained objects, at least one.
        generator: chooses the views.
    """
    chosen = torch.randperm(len(cameras), generator=generator)[:VIEWS]
    wanted = images[chosen].flatten()
    cameras = cameras[chosen].to(model.device)
    known = known.double()
    mean, covariance = known.mean(0), _covariance(known)
    precision = torch.linalg.inv(covariance)
    nudges = NUDGE * covariance.diagonal().sqrt()
    steps = torch.cat([torch.zeros(1, len(nudges), dtype=torch.float64), torch.diag(nudges)])

    def render(weights: Tensor) -> Tensor:
        """Pixels ``[B, V * H * W * 3]`` under weights ``[B, M]``, one mix at a time: they share no computation."""
        return torch.stack([_pixels(model, row, cameras) for row in weights.float()])

    def cost(pixels: Tensor, weights: Tensor) -> float:
        offset = weights - mean
        error = (wanted - pixels).double()
        return float(INDEPENDENT * error.square().sum() / noise + offset @ precision @ offset)

    weights, damping = mean.clone(), 1e-3
    rendered = render(weights + steps)
    # What the base planes cannot express, taken to be a quarter of what they miss at the start.
    noise = float((wanted - rendered[0]).square().mean()) / 4 + 1e-12
    best = cost(rendered[0], weights)
    for _ in range(ITERATIONS):
        jacobian = (rendered[1:] - rendered[:1]).double() / nudges[:, None]
        normal = INDEPENDENT * jacobian @ jacobian.T / noise + precision
        error = (wanted - rendered[0]).double()
        gradient = INDEPENDENT * jacobian @ error / noise + precision @ (mean - weights)
        candidate = weights + torch.linalg.solve(normal + damping * torch.diag(normal.diagonal()), gradient)
        tried = render(candidate[None])
        found = cost(tried[0], candidate)
        if found < best:
            weights, best, damping = candidate, found, damping / 5
            rendered = torch.cat([tried, render(weights + steps[1:])])
        else:
            damping *= 10
    return weights.float()


def _pixels(model: PlanesModel, weights: Tensor, cameras: Cameras) -> Tensor:
    shared, config = model.shared, model.config.model
    side = config.resolution
    micro = torch.zeros(1, 3, side, side, config.micro_channels, dtype=torch.float32, device=model.device)
    planes = compose_planes(micro, weights[None].to(model.device), shared.base_planes)
    background = model.background(cameras)
    output = render_field_views(config, planes, shared.decoder.tensors(), cameras[None], background)
    color = output.color[0] if shared.autoencoder is None else model.decode(output.color[0])
    return color.flatten().cpu()


def _covariance(known: Tensor) -> Tensor:
    """Covariance of ``[K, M]``, drawn towards a multiple of the identity as few objects tell little of it."""
    count, size = known.shape
    offsets = known - known.mean(0)
    sample = offsets.T @ offsets / max(count - 1, 1)
    spread = float(sample.diagonal().mean()) or 1.0 / size
    share = size / (size + count)
    return (1 - share) * sample + share * spread * torch.eye(size, dtype=known.dtype)
