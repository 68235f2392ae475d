"""Matrix products, and lookups in planes, held in vector registers, for compiled CPU kernels.

LLVM vectorises a plain triple loop over run-time sizes, but keeps the running sums in memory: every multiply-add then
costs a load and a store. The operations here name their registers explicitly, so a product runs at the speed of the
multiply-add units. They are numba intrinsics: calls to them inside a compiled kernel become straight-line vector code,
on any processor LLVM knows; only the width is chosen for the one at hand.

Matrices are two-dimensional float32 arrays. Rows that are read or written as vectors are contiguous and a multiple of
`LANES` long.

Numba's disk cache watches only the file a kernel is written in: after editing this one, delete ``cpu.*.nbi``.
"""

import math

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.core.registry import cpu_target
from numba.extending import intrinsic

# What numba compiles for: the processor at hand, unless NUMBA_CPU_NAME and NUMBA_CPU_FEATURES say otherwise.
*_, _FEATURES = cpu_target.target_context.codegen().magic_tuple()
_WIDE = "+avx512f" in _FEATURES.split(",")

LANES = 16 if _WIDE else 8
"""float32 elements in one vector."""

TILE_ROWS = 4
"""Row counts handed to `multiply` are multiples of this."""

# With two vectors of columns; a tile's sums must fit the register file, 32 vectors or 16.
_PAIR_ROWS = 8 if _WIDE else 4

PLAIN, SOFTPLUS, SLOPE = 0, 1, 2

PLANE_SHARES = (0, 2), (0, 6), (4, 6)
"""For planes XY, XZ, YZ: where a sample's shares along the plane's width and height begin, see `gather`."""

_FLOAT, _INT32 = ir.FloatType(), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_BITS = ir.VectorType(_INT32, LANES)
# Vectors start at any float: planes may have any number of channels.
_ALIGNMENT = 4

# Vectors to which exp and log are applied side by side.
_CHAINS = 4
_ROUNDING = 1.5 * 2**23
# exp(-87) is the smallest power whose exponent can still be written directly.
_LOWEST = -87.0
# Minimax fits, highest power first: (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2 and (log(1 + u) - u) / u^2 on [0, 1].
_EXP = 0.0013814594, 0.0083687175, 0.04166839, 0.16666521, 0.49999994
_LOG = 0.0053646318, -0.030065024, 0.079203285, -0.13753697, 0.19153605, -0.24857152, 0.33321321, -0.49999648

# Said explicitly: otherwise a caller's flags hold here too, and reassociation would undo the rounding in `_reduce`.
_compiled = numba.njit(error_model="numpy", fastmath={"contract"})


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


def _splat(builder, scalar):
    """A vector with the scalar in every lane."""
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, scalar, _INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, LANES), None))


def _mask(builder, columns):
    """The lanes below ``columns``."""
    lanes = ir.Constant(ir.VectorType(_INT32, LANES), list(range(LANES)))
    return builder.icmp_signed("<", lanes, _splat(builder, builder.trunc(columns, _INT32)))


def _multiply_add(builder, a, b, c):
    # Two instructions that may contract, not llvm.fma: that is a library call on processors without the instruction.
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))


def _constant(value):
    return ir.Constant(_VECTOR, [float(np.float32(value))] * LANES)


# The functions below take lists of vectors and emit every step for the whole list before the next: each step waits for
# the one before, and only independent ones side by side keep the processor's pipelines full.


def _multiply_add_each(builder, a, b, c):
    return [_multiply_add(builder, *terms) for terms in zip(a, b, c)]


def _polynomial(builder, coefficients, xs):
    totals = [_constant(coefficients[0])] * len(xs)
    for coefficient in coefficients[1:]:
        totals = _multiply_add_each(builder, totals, xs, [_constant(coefficient)] * len(xs))
    return totals


def _larger(builder, xs, limit):
    """``max(x, limit)`` that keeps NaN."""
    limit = _constant(limit)
    return [builder.select(builder.fcmp_ordered("<", x, limit), limit, x) for x in xs]


def _reduce(builder, xs):
    """Split ``x = n ln 2 + r``: r, and a float32 whose low bits hold n (adding 1.5 * 2^23 rounds to an integer)."""
    xs = _larger(builder, xs, _LOWEST)
    to_powers, from_powers, rounding = (
        [_constant(value)] * len(xs) for value in (1 / math.log(2), -math.log(2), _ROUNDING)
    )
    shifted = _multiply_add_each(builder, xs, to_powers, rounding)
    powers = [builder.fsub(x, _constant(_ROUNDING)) for x in shifted]
    return _multiply_add_each(builder, powers, from_powers, xs), shifted


def _scale(builder, xs, shifted):
    """``x * 2^n``, by adding n to the exponent."""
    exponents = [builder.shl(builder.bitcast(n, _BITS), ir.Constant(_BITS, [23] * LANES)) for n in shifted]
    return [
        builder.bitcast(builder.add(builder.bitcast(x, _BITS), exponent), _VECTOR) for x, exponent in zip(xs, exponents)
    ]


def _softplus(builder, xs):
    """``log(1 + exp(x))``, as max(x, 0) + log(1 + u) with u = exp(-|x|); error 3e-7 relative."""
    sign = ir.Constant(_BITS, [-(2**31)] * LANES)
    negative = [builder.bitcast(builder.or_(builder.bitcast(x, _BITS), sign), _VECTOR) for x in xs]
    r, shifted = _reduce(builder, negative)
    u = _scale(builder, _polynomial(builder, (*_EXP, 1.0, 1.0), r), shifted)
    return _multiply_add_each(builder, _polynomial(builder, (*_LOG, 1.0), u), u, _larger(builder, xs, 0.0))


def _slope(builder, softplus):
    """The derivative of softplus from its result: ``1 - exp(-softplus)``, without the cancellation near 0."""
    r, shifted = _reduce(builder, [builder.fneg(x) for x in softplus])
    scale = _scale(builder, [_constant(1.0)] * len(r), shifted)
    minus_one = [builder.fmul(p, x) for p, x in zip(_polynomial(builder, (*_EXP, 1.0), r), r)]
    excess = [builder.fsub(x, _constant(1.0)) for x in scale]
    return [builder.fneg(x) for x in _multiply_add_each(builder, scale, minus_one, excess)]


@intrinsic
def unowned(typing_context, arrays):
    """The same array, or named tuple of arrays, without the reference count that every function would keep up to date.

    Whoever holds the original must outlive it: an argument of the running kernel does.
    """

    def strip(context, builder, kind, value):
        view = context.make_array(kind)(context, builder, value)
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    def generate(context, builder, signature, arguments):
        if isinstance(arrays, types.Array):
            return strip(context, builder, arrays, arguments[0])
        parts = cgutils.unpack_tuple(builder, arguments[0])
        stripped = [strip(context, builder, kind, part) for kind, part in zip(arrays.types, parts)]
        return context.make_tuple(builder, arrays, stripped)

    return arrays(arrays), generate


@intrinsic(prefer_literal=True)
def _multiply_tile(typing_context, rows, vectors, finish, left, right, start, out, row, column):
    """``rows`` rows and ``vectors`` vectors of columns of `multiply` and its variants."""
    row_count, vector_count, kind = rows.literal_value, vectors.literal_value, finish.literal_value
    tile = [(i, v) for i in range(row_count) for v in range(vector_count)]

    def generate(context, builder, signature, arguments):
        left, right, start, out = _matrices(context, builder, signature, arguments, 3, 7)
        row, column = arguments[7:]
        rows = [builder.add(row, cgutils.intp_t(i)) for i in range(row_count)]
        sums = {}
        for i, v in tile:
            address = start.address(column) if start.is_row else start.address(rows[i], column)
            first = ir.Constant(_VECTOR, None) if kind == SLOPE else _load(builder, address, v)
            sums[i, v] = cgutils.alloca_once_value(builder, first)
        with cgutils.for_range(builder, left.shape[1]) as loop:
            address = right.address(loop.index, column)
            terms = [_load(builder, address, v) for v in range(vector_count)]
            factors = [_splat(builder, left.element(_FLOAT, i, loop.index)) for i in rows]
            for i, v in tile:
                total = _multiply_add(builder, factors[i], terms[v], builder.load(sums[i, v]))
                builder.store(total, sums[i, v])
        for position in range(0, len(tile), _CHAINS):
            part = tile[position : position + _CHAINS]
            totals = [builder.load(sums[place]) for place in part]
            if kind == SOFTPLUS:
                totals = _softplus(builder, totals)
            elif kind == SLOPE:
                results = [_load(builder, start.address(rows[i], column), v) for i, v in part]
                totals = [builder.fmul(x, slope) for x, slope in zip(totals, _slope(builder, results))]
            for (i, v), total in zip(part, totals):
                _store(builder, total, out.address(rows[i], column), v)
        return context.get_dummy_value()

    return types.void(rows, vectors, finish, left, right, start, out, types.intp, types.intp), generate


@intrinsic
def _strided(typing_context, array):
    """The same array, typed as having any strides: one compiled `multiply` then serves all layouts."""

    def generate(context, builder, signature, arguments):
        return impl_ret_borrowed(context, builder, signature.return_type, arguments[0])

    return array.copy(layout="A")(array), generate


def _compile_multiply(finish):
    @_compiled
    def multiply_strided(left, right, start, out):
        rows, columns = out.shape
        column = 0
        while _WIDE and column + 4 * LANES <= columns:
            for row in range(0, rows, 4):
                _multiply_tile(4, 4, finish, left, right, start, out, row, column)
            column += 4 * LANES
        while column + 2 * LANES <= columns:
            for row in range(0, rows - _PAIR_ROWS + 1, _PAIR_ROWS):
                _multiply_tile(_PAIR_ROWS, 2, finish, left, right, start, out, row, column)
            if rows % _PAIR_ROWS:
                _multiply_tile(4, 2, finish, left, right, start, out, rows - 4, column)
            column += 2 * LANES
        if column < columns:
            for row in range(0, rows - 7, 8):
                _multiply_tile(8, 1, finish, left, right, start, out, row, column)
            if rows % 8:
                _multiply_tile(4, 1, finish, left, right, start, out, rows - 4, column)

    @_compiled
    def multiply(left, right, start, out):
        multiply_strided(_strided(left), _strided(right), _strided(start), _strided(out))

    return multiply


# multiply(left, right, start, out): ``out = start + left @ right``.
#     left: ``[m, k]`` with any strides; m is a multiple of `TILE_ROWS`.
#     right: ``[k, n]``; n is a multiple of `LANES`.
#     start: ``[n]``, added to every row, or ``[m, n]``, which may be ``out`` itself.
#     out: ``[m, n]``; overlaps neither ``left`` nor ``right``.
multiply = _compile_multiply(PLAIN)
# ``out = softplus(start + left @ right)``.
multiply_softplus = _compile_multiply(SOFTPLUS)
# ``out = (left @ right) * (1 - exp(-start))``: the gradient before a softplus whose results are ``start [m, n]``.
multiply_slope = _compile_multiply(SLOPE)


@intrinsic
def _transpose_tile(typing_context, matrix, out, row, column):
    """``out[column:, row:] = matrix[row:, column:].T`` for a square of `LANES`."""

    def generate(context, builder, signature, arguments):
        matrix, out = _matrices(context, builder, signature, arguments, 0, 2)
        row, column = arguments[2:]
        indices = [cgutils.intp_t(i) for i in range(LANES)]
        rows = [_load(builder, matrix.address(builder.add(row, i), column)) for i in indices]
        distance = 1
        while distance < LANES:
            # Swap the off-diagonal blocks of every square of twice the distance.
            for low in range(LANES):
                if low & distance:
                    continue
                upper, lower = rows[low], rows[low + distance]
                picks = [
                    [lane ^ distance | LANES if lane & distance else lane for lane in range(LANES)],
                    [lane | LANES if lane & distance else lane ^ distance for lane in range(LANES)],
                ]
                rows[low], rows[low + distance] = (
                    builder.shuffle_vector(upper, lower, ir.Constant(ir.VectorType(_INT32, LANES), pick))
                    for pick in picks
                )
            distance *= 2
        for i, vector in zip(indices, rows):
            _store(builder, vector, out.address(builder.add(column, i), row))
        return context.get_dummy_value()

    return types.void(matrix, out, types.intp, types.intp), generate


@_compiled
def transpose(matrix, out):
    """``out [n, m] = matrix [m, n].T``, both m and n multiples of `LANES`."""
    for row in range(0, matrix.shape[0], LANES):
        for column in range(0, matrix.shape[1], LANES):
            _transpose_tile(matrix, out, row, column)


def _each_columns(builder, columns, body):
    """Emit ``body(vectors, column, mask)`` for pairs of vectors, for one more, and for what is left of one."""
    pairs, left = builder.udiv(columns, cgutils.intp_t(2 * LANES)), builder.urem(columns, cgutils.intp_t(LANES))
    with cgutils.for_range(builder, pairs) as loop:
        body(2, builder.mul(loop.index, cgutils.intp_t(2 * LANES)), None)
    column = builder.mul(pairs, cgutils.intp_t(2 * LANES))
    with builder.if_then(builder.icmp_unsigned(">=", builder.sub(columns, column), cgutils.intp_t(LANES))):
        body(1, column, None)
    with builder.if_then(cgutils.is_not_null(builder, left)):
        body(1, builder.sub(columns, left), _mask(builder, left))


class _Corners:
    """The four cells of one plane round a sample: their addresses and their bilinear weights."""

    def __init__(self, builder, table, cells, shares, steps, plane, sample, column):
        across, down = PLANE_SHARES[plane]
        first = builder.sext(cells.element(_INT32, cgutils.intp_t(plane), sample), cgutils.intp_t)
        share = {i: shares.element(_FLOAT, cgutils.intp_t(i), sample) for i in (across, across + 1, down, down + 1)}
        self.addresses, self.weights = [], []
        for row in range(2):
            for step in range(2):
                cell = first
                if step:
                    cell = builder.add(cell, steps[0])
                if row:
                    cell = builder.add(cell, steps[1])
                self.addresses.append(table.address(cell, column))
                self.weights.append(_splat(builder, builder.fmul(share[across + step], share[down + row])))


@intrinsic
def gather(typing_context, table, cells, shares, step, row_step, samples, out):
    """Bilinear lookups in three planes, summed.

    Args:
        table: ``[N, C]`` cells of all planes.
        cells: ``[3, S]`` int32, for every plane the first of the four cells round a sample.
        shares: ``[8, S]`` shares of the first and second cell along x in the width of XY and XZ, y in the height of XY,
            y in the width of YZ, z in the height of XZ and YZ; a corner's weight is a product of two.
        step, row_step: from a cell to its neighbours along width and height, in rows of the table.
        samples: how many of the S to look up.
        out: ``[S, C+]``, C rounded up to `LANES`; the excess is set to 0.
    """

    def generate(context, builder, signature, arguments):
        table, cells, shares = _matrices(context, builder, signature, arguments, 0, 3)
        *steps, samples = arguments[3:6]
        (out,) = _matrices(context, builder, signature, arguments, 6, 7)

        def look_up(vectors, column, mask):
            with cgutils.for_range(builder, samples) as loop:
                sums = [ir.Constant(_VECTOR, None)] * vectors
                for plane in range(3):
                    corners = _Corners(builder, table, cells, shares, steps, plane, loop.index, column)
                    for address, weight in zip(corners.addresses, corners.weights):
                        cell = [_load(builder, address, v, mask) for v in range(vectors)]
                        sums = _multiply_add_each(builder, [weight] * vectors, cell, sums)
                for v, total in enumerate(sums):
                    _store(builder, total, out.address(loop.index, column), v)

        _each_columns(builder, table.shape[1], look_up)
        return context.get_dummy_value()

    return types.void(table, cells, shares, types.intp, types.intp, types.intp, out), generate


@intrinsic
def scatter(typing_context, terms, cells, shares, step, row_step, samples, table):
    """Add every sample's ``terms [S, C+]`` to the cells `gather` reads for it, by the same weights."""

    def generate(context, builder, signature, arguments):
        terms, cells, shares = _matrices(context, builder, signature, arguments, 0, 3)
        *steps, samples = arguments[3:6]
        (table,) = _matrices(context, builder, signature, arguments, 6, 7)

        def add(vectors, column, mask):
            with cgutils.for_range(builder, samples) as loop:
                term = [_load(builder, terms.address(loop.index, column), v) for v in range(vectors)]
                for plane in range(3):
                    corners = _Corners(builder, table, cells, shares, steps, plane, loop.index, column)
                    for address, weight in zip(corners.addresses, corners.weights):
                        cell = [_load(builder, address, v, mask) for v in range(vectors)]
                        for v, total in enumerate(_multiply_add_each(builder, [weight] * vectors, term, cell)):
                            _store(builder, total, address, v, mask)

        _each_columns(builder, table.shape[1], add)
        return context.get_dummy_value()

    return types.void(terms, cells, shares, types.intp, types.intp, types.intp, table), generate


@intrinsic
def probe(typing_context, terms, table, cells, shares, step, row_step, samples, out):
    """Add to ``out [12, S]`` the products of ``terms [S, C+]`` with the twelve cells `gather` reads for each sample."""

    def generate(context, builder, signature, arguments):
        terms, table, cells, shares = _matrices(context, builder, signature, arguments, 0, 4)
        *steps, samples = arguments[4:7]
        (out,) = _matrices(context, builder, signature, arguments, 7, 8)
        kind = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
        add_lanes = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32")

        def multiply_cells(vectors, column, mask):
            with cgutils.for_range(builder, samples) as loop:
                term = [_load(builder, terms.address(loop.index, column), v) for v in range(vectors)]
                for plane in range(3):
                    corners = _Corners(builder, table, cells, shares, steps, plane, loop.index, column)
                    for corner, address in enumerate(corners.addresses):
                        total = ir.Constant(_VECTOR, None)
                        for v in range(vectors):
                            total = _multiply_add(builder, term[v], _load(builder, address, v, mask), total)
                        where = cgutils.intp_t(4 * plane + corner), loop.index
                        dot = builder.call(add_lanes, [out.element(_FLOAT, *where), total], fastmath=("reassoc",))
                        builder.store(dot, builder.bitcast(out.address(*where), _FLOAT.as_pointer()))

        _each_columns(builder, table.shape[1], multiply_cells)
        return context.get_dummy_value()

    return types.void(terms, table, cells, shares, types.intp, types.intp, types.intp, out), generate
