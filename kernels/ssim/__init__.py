"""Structural similarity of images."""

from fusedplanes.kernels.ssim.op import ssim

__all__ = ["ssim"]
