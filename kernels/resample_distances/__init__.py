"""Importance samples along rays."""

from fusedplanes.kernels.resample_distances.op import resample_distances

__all__ = ["resample_distances"]
