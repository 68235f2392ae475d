"""Volume rendering of tri-plane fields.

Two passes along every ray: stratified samples between the ray's entry into and exit from the box, then samples placed
where the first pass found weight; the sorted union of both is marched with the midpoint rule (see
`fusedplanes.kernels.render_field`). With ``seed=None`` all samples sit at the middle of their stratum, so evaluation is
deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.rays import Rays

MINIMUM_ALPHA = 1e-4
"""Below this coverage a ray has no depth: it is reported as 0."""


@dataclass(frozen=True)
class RenderOutput:
    """What a renderer returns.

    Attributes:
        color: ``[*b, H, W, K]``, composited over the background.
        alpha: ``[*b, h, w]`` coverage in [0, 1].
        depth: ``[*b, h, w]`` expected camera-z depth in world units, 0 where ``alpha < 1e-4``.

    ``h`` and ``w`` equal ``H`` and ``W`` except for latent models, whose alpha and depth are marched at the resolution
    of the latent image.
    """

    color: Tensor
    alpha: Tensor
    depth: Tensor


@dataclass(frozen=True)
class MarchedRays:
    """Result of `render_rays`.

    Attributes:
        values: ``[*b, R, K]`` sum of weights times values, without background.
        alpha: ``[*b, R]``.
        distance: ``[*b, R]`` sum of weights times Euclidean distance (not divided by alpha).
    """

    values: Tensor
    alpha: Tensor
    distance: Tensor


def render_rays(
    planes: Tensor,
    decoder: dict[str, Tensor],
    rays: Rays,
    *,
    coarse_samples: int = 48,
    fine_samples: int = 48,
    value_activation: str = "linear",
    seed: int | None = None,
) -> MarchedRays:
    """March rays through composed planes.

    Args:
        planes: ``[*b, 3, H, W, C]``.
        decoder: the four tensors of `fusedplanes.fields.FieldDecoder`, shared or with leading ``*b``.
        rays: ``[*b, R]``.
        coarse_samples: stratified samples of the first pass.
        fine_samples: importance samples of the second; 0 renders in one pass.
        value_activation: "linear" for latents, "sigmoid" for colours.
        seed: jitters the samples within their strata; None puts them in the middle.
    """
    from fusedplanes.kernels import render_field, resample_distances
    from fusedplanes.kernels.jitter import stratified_distances

    with torch.no_grad():
        distances = stratified_distances(rays.near, rays.far, coarse_samples, seed=seed)
        if fine_samples:
            *_, weights = _render(render_field, planes, decoder, rays, distances, value_activation)
            fine_seed = None if seed is None else seed + 1
            distances = resample_distances(distances, weights, fine_samples, seed=fine_seed)
    values, alpha, distance, _ = _render(render_field, planes, decoder, rays, distances, value_activation)
    return MarchedRays(values, alpha, distance)


def _render(render_field, planes, decoder, rays, distances, value_activation):
    return render_field(
        planes,
        decoder["hidden_weight"],
        decoder["hidden_bias"],
        decoder["output_weight"],
        decoder["output_bias"],
        rays.origins,
        rays.directions,
        distances,
        value_activation=value_activation,
    )


def render_cameras(
    planes: Tensor,
    decoder: dict[str, Tensor],
    cameras: Cameras,
    background: Tensor,
    *,
    rays: Rays | None = None,
    **march,
) -> RenderOutput:
    """Render whole images.

    Args:
        planes: ``[*b, 3, H, W, C]``.
        cameras: ``[*b, V]`` views of each.
        background: broadcastable to ``[*b, V, height, width, K]``.
        rays: the cameras' rays, if the caller has them already.
        march: sample counts, activation and seed of `render_rays`.

    Returns:
        ``color [*b, V, height, width, K]``, ``alpha`` and ``depth`` ``[*b, V, height, width]``.
    """
    if rays is None:
        rays = Rays.from_cameras(cameras)
    marched = render_rays(planes, decoder, rays.flatten(-2, -1), **march)
    image = (*cameras.batch_shape, cameras.height, cameras.width)
    alpha = marched.alpha.view(image)
    color = marched.values.view(*image, -1) + (1 - alpha[..., None]) * background
    cosine = (rays.directions * cameras.forward[..., None, :]).sum(-1).view(image)
    expected = marched.distance.view(image) / alpha.clamp_min(MINIMUM_ALPHA)
    depth = torch.where(alpha >= MINIMUM_ALPHA, expected * cosine, 0.0)
    return RenderOutput(color, alpha, depth)
