"""Contact sheets: labelled rows of pictures in one image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fusedplanes.images import to_uint8

MARGIN = 4
INK = (40, 40, 40)


def contact_sheet(
    rows: Sequence[Sequence[Tensor]],
    *,
    columns: Sequence[str] = (),
    captions: Sequence[Sequence[str]] = (),
    scale: int = 1,
) -> Tensor:
    """Lay pictures out in a grid.

    Args:
        rows: pictures ``[H, W, 3]`` in [0, 1], all of one size.
        columns: headings above the columns.
        captions: a line under each picture, in the same arrangement as ``rows``.
        scale: whole-number enlargement without smoothing, so that pixels stay visible.

    Returns:
        ``[height, width, 3]`` float32.

    Example:
        >>> contact_sheet([[torch.zeros(8, 8, 3), torch.ones(8, 8, 3)]]).shape
        torch.Size([12, 28, 3])
    """
    from PIL import Image, ImageDraw, ImageFont

    height, width, _ = rows[0][0].shape
    height, width = height * scale, width * scale
    font = ImageFont.load_default(size=max(10, min(16, width // 9)))
    line = int(font.size * 1.4)
    header = line if columns else 0
    footer = line if captions else 0
    count = max(len(row) for row in rows)
    cell_height = height + footer + MARGIN
    sheet = Image.new("RGB", (count * (width + MARGIN) + MARGIN, header + len(rows) * cell_height + MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    for index, text in enumerate(columns):
        center = MARGIN + index * (width + MARGIN) + width // 2
        draw.text((center, header // 2), text, fill=INK, font=font, anchor="mm")
    for r, row in enumerate(rows):
        for c, picture in enumerate(row):
            pixels = np.kron(to_uint8(picture), np.ones((scale, scale, 1), np.uint8))
            left, top = MARGIN + c * (width + MARGIN), header + MARGIN + r * cell_height
            sheet.paste(Image.fromarray(pixels), (left, top))
            if captions and c < len(captions[r]):
                draw.text((left + width // 2, top + height + footer // 2), captions[r][c], INK, font, "mm")
    return torch.from_numpy(np.asarray(sheet).astype(np.float32) / 255)
