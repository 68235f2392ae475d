"""Matrix products and sparse row sums held in vector registers, for compiled CPU kernels.

LLVM vectorises a plain triple loop over run-time sizes, but keeps the running sums in memory: every multiply-add then
costs a load and a store. The three operations here name their registers explicitly, so a product runs at the speed of
the multiply-add units. They are numba intrinsics: calls to them inside a compiled kernel become straight-line vector
code, on any processor LLVM knows; only the width is chosen for the one at hand.

Matrices are two-dimensional float32 arrays. Rows that are read or written as vectors are contiguous and a multiple of
`LANES` long.
"""

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_FEATURES = llvmlite.binding.get_host_cpu_features()
_WIDE = bool(_FEATURES.get("avx512f"))

LANES = 16 if _WIDE else 8
"""float32 elements in one vector."""

TILE_ROWS = 8
"""Row counts handed to `multiply` are multiples of this."""

# A tile's sums, one row of the right matrix and a broadcast element must fit the register file: 32 or 16 registers.
_VECTORS, _ROWS = (4, 4) if _WIDE else (2, 4)

_FLOAT, _INT32 = ir.FloatType(), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
# Vectors start at any float: planes may have any number of channels.
_ALIGNMENT = 4


class _Matrix:
    """Addresses of the elements of a numba array argument."""

    def __init__(self, context, builder, kind, value):
        array = context.make_array(kind)(context, builder, value)
        self.builder = builder
        self.is_row = kind.ndim == 1
        self.base = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        self.shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
        self.strides = cgutils.unpack_tuple(builder, array.strides, kind.ndim)

    def address(self, *indices):
        address = self.base
        for index, stride in zip(indices, self.strides):
            address = self.builder.gep(address, [self.builder.mul(index, stride)])
        return address

    def element(self, kind, *indices):
        return self.builder.load(self.builder.bitcast(self.address(*indices), kind.as_pointer()))


def _matrices(context, builder, signature, arguments, first, last):
    return [_Matrix(context, builder, signature.args[i], arguments[i]) for i in range(first, last)]


def _vector_pointer(builder, address, position):
    address = builder.gep(address, [cgutils.intp_t(4 * LANES * position)])
    return builder.bitcast(address, _VECTOR.as_pointer())


def _load(builder, address, position=0, mask=None):
    pointer = _vector_pointer(builder, address, position)
    if mask is None:
        return builder.load(pointer, align=_ALIGNMENT)
    kind = ir.FunctionType(_VECTOR, [pointer.type, _INT32, mask.type, _VECTOR])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
    return builder.call(function, [pointer, _INT32(_ALIGNMENT), mask, ir.Constant(_VECTOR, None)])


def _store(builder, vector, address, position=0, mask=None):
    pointer = _vector_pointer(builder, address, position)
    if mask is None:
        builder.store(vector, pointer, align=_ALIGNMENT)
        return
    kind = ir.FunctionType(ir.VoidType(), [_VECTOR, pointer.type, _INT32, mask.type])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
    builder.call(function, [vector, pointer, _INT32(_ALIGNMENT), mask])


def _broadcast(builder, scalar):
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, scalar, _INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, LANES), None))


def _mask(builder, columns):
    """The lanes below ``columns``."""
    lanes = ir.Constant(ir.VectorType(_INT32, LANES), list(range(LANES)))
    return builder.icmp_signed("<", lanes, _broadcast(builder, builder.trunc(columns, _INT32)))


def _multiply_add(builder, a, b, c):
    # Two instructions that may contract, not llvm.fma: that is a library call on processors without the instruction.
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))


@intrinsic(prefer_literal=True)
def _multiply_tile(typing_context, rows, vectors, left, right, start, out, row, column):
    """``out = start + left @ right`` for ``rows`` rows and ``vectors`` vectors of columns."""
    row_count, vector_count = rows.literal_value, vectors.literal_value
    tile = [(i, v) for i in range(row_count) for v in range(vector_count)]

    def generate(context, builder, signature, arguments):
        left, right, start, out = _matrices(context, builder, signature, arguments, 2, 6)
        row, column = arguments[6:]
        rows = [builder.add(row, cgutils.intp_t(i)) for i in range(row_count)]
        sums = {}
        for i, v in tile:
            address = start.address(column) if start.is_row else start.address(rows[i], column)
            sums[i, v] = cgutils.alloca_once_value(builder, _load(builder, address, v))
        with cgutils.for_range(builder, left.shape[1]) as loop:
            address = right.address(loop.index, column)
            terms = [_load(builder, address, v) for v in range(vector_count)]
            factors = [_broadcast(builder, left.element(_FLOAT, i, loop.index)) for i in rows]
            for i, v in tile:
                total = _multiply_add(builder, factors[i], terms[v], builder.load(sums[i, v]))
                builder.store(total, sums[i, v])
        for i, v in tile:
            _store(builder, builder.load(sums[i, v]), out.address(rows[i], column), v)
        return context.get_dummy_value()

    return types.void(rows, vectors, left, right, start, out, types.intp, types.intp), generate


@numba.njit(error_model="numpy")
def multiply(left, right, start, out):
    """``out = start + left @ right``.

    Args:
        left: ``[m, k]`` with any strides; m is a multiple of `TILE_ROWS`.
        right: ``[k, n]``; n is a multiple of `LANES`.
        start: ``[n]``, added to every row, or ``[m, n]``, which may be ``out`` itself.
        out: ``[m, n]``; overlaps neither ``left`` nor ``right``.
    """
    rows, columns = out.shape
    column = 0
    while column + _VECTORS * LANES <= columns:
        for row in range(0, rows, _ROWS):
            _multiply_tile(_ROWS, _VECTORS, left, right, start, out, row, column)
        column += _VECTORS * LANES
    while column + 2 * LANES <= columns:
        for row in range(0, rows, 8):
            _multiply_tile(8, 2, left, right, start, out, row, column)
        column += 2 * LANES
    if column < columns:
        for row in range(0, rows, 8):
            _multiply_tile(8, 1, left, right, start, out, row, column)


@intrinsic(prefer_literal=True)
def _gather_tile(typing_context, vectors, partial, cells, offsets, weights, count, row, column, columns, out):
    vector_count, is_partial = vectors.literal_value, partial.literal_value

    def generate(context, builder, signature, arguments):
        cells, offsets, weights = _matrices(context, builder, signature, arguments, 2, 5)
        count, row, column, columns = arguments[5:9]
        (out,) = _matrices(context, builder, signature, arguments, 9, 10)
        mask = _mask(builder, builder.sub(columns, column)) if is_partial else None
        sums = [cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, None)) for _ in range(vector_count)]
        with cgutils.for_range(builder, count) as loop:
            factor = _broadcast(builder, weights.element(_FLOAT, row, loop.index))
            address = cells.address(builder.add(offsets.element(cgutils.intp_t, row, loop.index), column))
            for v, total in enumerate(sums):
                term = _load(builder, address, v, mask)
                builder.store(_multiply_add(builder, factor, term, builder.load(total)), total)
        for v, total in enumerate(sums):
            _store(builder, builder.load(total), out.address(row, column), v)
        return context.get_dummy_value()

    integer = types.intp
    arguments = (vectors, partial, cells, offsets, weights, integer, integer, integer, integer, out)
    return types.void(*arguments), generate


@numba.njit(error_model="numpy")
def gather(cells, columns, offsets, weights, count, row, out):
    """``out[row] = sum over t < count of weights[row, t] * cells[offsets[row, t] : + columns]``.

    Args:
        cells: ``[n]`` a flat array.
        columns: how many elements every term has.
        offsets: ``[m, t]`` int64.
        weights: ``[m, t]``.
        count: terms of this row.
        row: the row.
        out: ``[m, columns rounded up to LANES]``; the excess is set to 0.
    """
    column = 0
    while column + 2 * LANES <= columns:
        _gather_tile(2, 0, cells, offsets, weights, count, row, column, columns, out)
        column += 2 * LANES
    if column + LANES <= columns:
        _gather_tile(1, 0, cells, offsets, weights, count, row, column, columns, out)
        column += LANES
    if column < columns:
        _gather_tile(1, 1, cells, offsets, weights, count, row, column, columns, out)


@intrinsic(prefer_literal=True)
def _scatter_tile(typing_context, vectors, partial, terms, offsets, weights, count, row, column, columns, cells):
    vector_count, is_partial = vectors.literal_value, partial.literal_value

    def generate(context, builder, signature, arguments):
        terms, offsets, weights = _matrices(context, builder, signature, arguments, 2, 5)
        count, row, column, columns = arguments[5:9]
        (cells,) = _matrices(context, builder, signature, arguments, 9, 10)
        mask = _mask(builder, builder.sub(columns, column)) if is_partial else None
        vectors = [_load(builder, terms.address(row, column), v) for v in range(vector_count)]
        with cgutils.for_range(builder, count) as loop:
            factor = _broadcast(builder, weights.element(_FLOAT, row, loop.index))
            address = cells.address(builder.add(offsets.element(cgutils.intp_t, row, loop.index), column))
            for v, vector in enumerate(vectors):
                total = _multiply_add(builder, factor, vector, _load(builder, address, v, mask))
                _store(builder, total, address, v, mask)
        return context.get_dummy_value()

    integer = types.intp
    arguments = (vectors, partial, terms, offsets, weights, integer, integer, integer, integer, cells)
    return types.void(*arguments), generate


@numba.njit(error_model="numpy")
def scatter(terms, columns, offsets, weights, count, row, cells):
    """``cells[offsets[row, t] : + columns] += weights[row, t] * terms[row]`` for every t below count."""
    column = 0
    while column + 2 * LANES <= columns:
        _scatter_tile(2, 0, terms, offsets, weights, count, row, column, columns, cells)
        column += 2 * LANES
    if column + LANES <= columns:
        _scatter_tile(1, 0, terms, offsets, weights, count, row, column, columns, cells)
        column += LANES
    if column < columns:
        _scatter_tile(1, 1, terms, offsets, weights, count, row, column, columns, cells)
