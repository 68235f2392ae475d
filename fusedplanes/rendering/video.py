"""Orbit videos."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.images import to_uint8

FORMATS = (".mp4", ".gif", ".webm")


def save_video(path: str | Path, frames: Tensor, *, frames_per_second: int = 24) -> None:
    """Write frames ``[T, H, W, 3]`` in [0, 1] as .mp4 (H.264), .webm or .gif; the file appears whole or not at all.

    Raises:
        ConfigError: another suffix.
        DataError: the encoder failed (for example on a full disk).
    """
    import imageio.v2 as imageio

    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: cannot write '{path.suffix}' videos; choose one of {', '.join(FORMATS)}")
    pixels = to_uint8(frames)
    # Codecs with subsampled colour need even sides.
    pad_height, pad_width = pixels.shape[1] % 2, pixels.shape[2] % 2
    if path.suffix.lower() != ".gif" and (pad_height or pad_width):
        import numpy as np

        pixels = np.pad(pixels, ((0, 0), (0, pad_height), (0, pad_width), (0, 0)), mode="edge")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=path.suffix)
    os.close(handle)
    try:
        if path.suffix.lower() == ".gif":
            imageio.mimsave(temporary, list(pixels), duration=1000 / frames_per_second, loop=0)
        else:
            options = {"fps": frames_per_second, "macro_block_size": 1, "quality": 8}
            imageio.mimsave(temporary, list(pixels), format="FFMPEG", **options)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"{path}: the video could not be written ({str(error).splitlines()[0]})") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def save_orbit(
    model,
    items: str | list[str],
    path: str | Path,
    *,
    frames: int = 72,
    size: int = 128,
    elevation: float = 25.0,
    radius: float = 2.7,
    frames_per_second: int = 24,
) -> None:
    """Render one turn round one or several objects, side by side in a grid, as a video.

    Args:
        model: a model with ``render(item, cameras)``.
        items: object ids, or objects as the model accepts them.
        path: .mp4, .webm or .gif.
        frames: views on the full circle.
        size: side of an object's picture in pixels.
        elevation: degrees above the horizon.
        radius: distance to the origin in world units.

    Example:
        >>> save_orbit(model, model.object_ids[:4], "orbit.mp4")  # doctest: +SKIP
    """
    items = [items] if not isinstance(items, list | tuple) else list(items)
    if not items:
        raise ConfigError("orbit: no object was named")
    cameras = Cameras.orbit(frames, elevation=elevation, radius=radius, width=size, height=size)
    turns = torch.stack([model.render(item, cameras).color.cpu() for item in items])  # [N, T, H, W, 3]
    columns = min(len(items), 4)
    rows = -(-len(items) // columns)
    grid = torch.ones(frames, rows * size, columns * size, 3)
    for index, turn in enumerate(turns):
        top, left = (index // columns) * size, (index % columns) * size
        grid[:, top : top + size, left : left + size] = turn
    save_video(path, grid, frames_per_second=frames_per_second)
