"""Orbit videos."""

from __future__ import annotations

import numbers
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import ConfigError, DataError
from fusedplanes.files import write_atomically
from fusedplanes.images import to_uint8

FORMATS = (".mp4", ".gif", ".webm")


def save_video(path: str | Path, frames: Tensor, *, frames_per_second: int = 24) -> None:
    """Write frames ``[T, H, W, 3]`` in [0, 1] as .mp4 (H.264), .webm or .gif; the file appears whole or not at all.

    Raises:
        ConfigError: another suffix.
        DataError: frames of another shape or none, or the file cannot be written (a full disk, a path that cannot be).
    """
    import imageio.v2 as imageio

    path = Path(path)
    _check(path, frames_per_second)
    if frames.dim() != 4 or frames.shape[-1] != 3 or 0 in frames.shape:
        raise DataError(f"{path}: frames of shape {tuple(frames.shape)}; expected [T, H, W, 3], none of them 0")
    pixels = to_uint8(frames)
    # Codecs with subsampled colour need even sides.
    pad_height, pad_width = pixels.shape[1] % 2, pixels.shape[2] % 2
    if path.suffix.lower() != ".gif" and (pad_height or pad_width):
        import numpy as np

        pixels = np.pad(pixels, ((0, 0), (0, pad_height), (0, pad_width), (0, 0)), mode="edge")
    temporary = None
    try:
        if path.suffix.lower() == ".gif":
            # In memory first: a writer that meets a full disk would try again, loudly, when it is thrown away.
            data = imageio.mimwrite("<bytes>", list(pixels), format="GIF", duration=1000 / frames_per_second, loop=0)
            return write_atomically(path, data)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
        os.close(handle)
        options = {"fps": frames_per_second, "macro_block_size": 1, "quality": 8}
        imageio.mimsave(temporary, list(pixels), format="FFMPEG", **options)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except (OSError, ValueError) as error:  # ValueError: a name no file system takes
        reason = " ".join(str(getattr(error, "strerror", None) or error or type(error).__name__).split())[:200]
        raise DataError(f"{str(path)!r}: the video could not be written ({reason})") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _check(path: Path, frames_per_second: float) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: cannot write '{path.suffix}' videos; choose one of {', '.join(FORMATS)}")
    if not isinstance(frames_per_second, numbers.Real) or not 0 < frames_per_second <= 1000:
        raise ConfigError(f"frames_per_second is {frames_per_second!r}; expected a number above 0, at most 1000")


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

    Raises:
        ConfigError: no object, another suffix, or a rate that is not above 0.
        DataError: ``frames``, ``size``, ``elevation`` or ``radius`` make no orbit, or the file cannot be written.

    Example:
        >>> save_orbit(model, model.object_ids[:4], "orbit.mp4")  # doctest: +SKIP
    """
    items = [items] if not isinstance(items, list | tuple) else list(items)
    if not items:
        raise ConfigError("orbit: no object was named")
    _check(Path(path), frames_per_second)
    if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
        raise DataError(f"orbit: frames is {frames!r}; expected a whole number of at least 1")
    cameras = Cameras.orbit(frames, elevation=elevation, radius=radius, width=size, height=size)
    turns = torch.stack([model.render(item, cameras).color.cpu() for item in items])  # [N, T, H, W, 3]
    columns = min(len(items), 4)
    rows = -(-len(items) // columns)
    grid = torch.ones(frames, rows * size, columns * size, 3)
    for index, turn in enumerate(turns):
        top, left = (index // columns) * size, (index % columns) * size
        grid[:, top : top + size, left : left + size] = turn
    save_video(path, grid, frames_per_second=frames_per_second)
