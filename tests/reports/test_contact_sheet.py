"""Contact sheets: pictures stand where they are said to stand, pixel for pixel."""

import torch

from fusedplanes.reports.contact_sheet import MARGIN, contact_sheet


def test_pictures_are_laid_out_in_rows_and_enlarged_without_smoothing():
    generator = torch.Generator().manual_seed(0)
    pictures = [[torch.rand(5, 7, 3, generator=generator) for _ in range(3)] for _ in range(2)]
    sheet = contact_sheet(pictures, scale=2)
    height, width = 10, 14
    assert sheet.shape == (2 * (height + MARGIN) + MARGIN, 3 * (width + MARGIN) + MARGIN, 3)
    top, left = MARGIN + height + MARGIN, MARGIN + 2 * (width + MARGIN)
    cell = sheet[top : top + height, left : left + width]
    expected = pictures[1][2].repeat_interleave(2, 0).repeat_interleave(2, 1)
    torch.testing.assert_close(cell, expected, atol=0.5 / 255 + 1e-6, rtol=0)


def test_headings_and_captions_leave_ink_outside_the_pictures():
    picture = torch.ones(40, 80, 3)
    plain = contact_sheet([[picture]])
    labelled = contact_sheet([[picture]], columns=["truth"], captions=[["21.3 dB"]])
    assert plain.min() == 1
    assert labelled.shape[0] > plain.shape[0] and labelled.min() < 0.5
