"""Alpha compositing of samples along rays."""

from fusedplanes.kernels.composite.op import composite

__all__ = ["composite"]
