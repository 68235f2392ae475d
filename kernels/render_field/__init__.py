"""Rays marched through tri-plane fields: sampling, decoder and compositing in one pass."""

from fusedplanes.kernels.render_field.op import render_field

__all__ = ["render_field"]
