"""`fusedplanes.kernels.jitter.hash_to_unit` for use inside compiled kernels: the same bits, one number a call."""

import numba
import numpy as np

from fusedplanes.kernels import jitter

_SALT = np.uint32(jitter.SALT)
_RAY_STEP, _SAMPLE_STEP = np.uint32(jitter.RAY_STEP), np.uint32(jitter.SAMPLE_STEP)
_FIRST, _SECOND = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
_8, _15, _16 = np.uint32(8), np.uint32(15), np.uint32(16)
_UNIT = np.float32(2.0**-24)


@numba.njit(error_model="numpy")
def _mix(bits):
    bits = np.uint32((bits ^ (bits >> _16)) * _FIRST)
    bits = np.uint32((bits ^ (bits >> _15)) * _SECOND)
    return np.uint32(bits ^ (bits >> _16))


@numba.njit(error_model="numpy")
def hash_seed(low, high):
    """The bits that every number of one seed starts from, given the seed's two halves (`jitter.split_seed`)."""
    return _mix(np.uint32(_mix(np.uint32(np.uint32(low) ^ _SALT)) ^ np.uint32(high)))


@numba.njit(error_model="numpy")
def hash_to_unit(seed_bits, ray, sample):
    """A float32 in [0, 1) from the result of `hash_seed`, a ray index and a sample index."""
    bits = _mix(np.uint32(seed_bits + np.uint32(ray) * _RAY_STEP))
    bits = _mix(np.uint32(bits + np.uint32(sample) * _SAMPLE_STEP))
    return np.float32(bits >> _8) * _UNIT
