"""Interpolated features of three axis-aligned planes."""

from fusedplanes.kernels.sample_triplane.op import sample_triplane

__all__ = ["sample_triplane"]
