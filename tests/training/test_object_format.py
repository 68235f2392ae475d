import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusedplanes.errors import CheckpointError, DataError
from fusedplanes.training import object_format as fmt

TENSORS = {
    "micro_planes": torch.randn(3, 4, 5, 2, generator=torch.Generator().manual_seed(0)),
    "weights": torch.arange(7, dtype=torch.float16),
    "empty": torch.zeros(3, 0, 2),
    "steps": torch.tensor(12, dtype=torch.int64),
}


def decode(data, id="car_001", kind=0, generation=3):
    return fmt.decode_record(bytearray(data), id, kind, generation, "segment")


def test_the_first_bytes_are_the_format_as_written_down():
    data = fmt.encode_record("ab", 1, 5, {"w": torch.tensor([1.0, 2.0])})
    head = b"FPOB" + bytes([1, 1]) + struct.pack("<HI", 2, 5) + b"ab" + bytes([1, 1, 1]) + b"w" + struct.pack("<I", 2)
    assert data == head + b"\0" * (-len(head) % 8) + struct.pack("<2f", 1, 2)


@pytest.mark.parametrize("dtype", [*fmt._TYPES])
def test_every_type_comes_back_bit_for_bit(dtype):
    tensor = (torch.arange(30) * 1.25).to(dtype).view(2, 3, 5)
    back = decode(fmt.encode_record("car_001", 0, 3, {"x": tensor}))["x"]
    assert back.dtype == dtype and torch.equal(back, tensor)


def test_shapes_names_and_order_come_back():
    back = decode(fmt.encode_record("car_001", 0, 3, TENSORS))
    assert list(back) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype and torch.equal(back[name], tensor)
    transposed = decode(fmt.encode_record("car_001", 0, 3, {"x": TENSORS["micro_planes"].transpose(0, 2)}))["x"]
    assert torch.equal(transposed, TENSORS["micro_planes"].transpose(0, 2))


@pytest.mark.parametrize("other", [{"id": "car_002"}, {"kind": 1}, {"generation": 4}])
def test_the_record_of_another_is_not_taken(other):
    with pytest.raises(CheckpointError, match=r"record of object 'car_00\d' is damaged"):
        decode(fmt.encode_record("car_001", 0, 3, TENSORS), **other)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_records_raise_nothing_but_a_checkpoint_error(data):
    record = bytearray(fmt.encode_record("car_001", 0, 3, TENSORS))
    for _ in range(data.draw(st.integers(1, 4))):
        # The head, where every byte means something, more often than the values.
        at = data.draw(st.integers(0, 90) | st.integers(0, len(record) - 1))
        record[at] = data.draw(st.integers(0, 255))
    record = record[: data.draw(st.integers(0, len(record)) | st.just(len(record)))]
    try:
        tensors = decode(record)
    except CheckpointError as error:
        assert "\n" not in str(error)
    else:
        assert sum(tensor.nbytes for tensor in tensors.values()) <= len(record)


def test_a_promise_of_more_than_there_is_allocates_nothing():
    record = fmt.encode_record("car_001", 0, 3, {"x": torch.zeros(2, 2)})
    at = record.index(b"x") + 1
    with pytest.raises(CheckpointError):
        decode(record[:at] + struct.pack("<2I", 0xFFFF_FFFF, 0xFFFF_FFFF) + record[at + 8 :])
    with pytest.raises(CheckpointError):
        decode(record[:at] + struct.pack("<2I", 2, 1) + record[at + 8 :])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": torch.zeros(2, dtype=torch.complex64)}, "type torch.complex64"),
        ({"x": torch.zeros([1] * 9)}, "does not fit"),
        ({"x" * 256: torch.zeros(1)}, "does not fit"),
        ({str(index): torch.zeros(1) for index in range(256)}, "256 tensors"),
    ],
)
def test_what_a_record_cannot_hold_is_named(tensors, message):
    with pytest.raises(DataError, match=f"object 'car'.*{message}"):
        fmt.encode_record("car", 0, 0, tensors)


def index_bytes(generation=9):
    entries = np.zeros(3, fmt.ENTRY)
    entries["object"], entries["kind"] = [0, 0, 7], [0, 1, 0]
    entries["length"], entries["id_bytes"] = [100, 200, 300], [1, 0, 4]
    return entries, fmt.encode_index(entries, [b"a", "köt".encode()], generation)


def test_an_index_comes_back_and_an_entry_takes_36_bytes(tmp_path):
    entries, data = index_bytes()
    assert fmt.ENTRY.itemsize == 36 and len(data) == 24 + 3 * 36 + 5
    back, ids = fmt.decode_index(data, tmp_path)
    assert np.array_equal(back, entries) and ids == ["a", None, "köt"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_indexes_raise_nothing_but_a_checkpoint_error(data):
    _, good = index_bytes()
    damaged = bytearray(good)
    damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(good)) | st.just(len(good)))]
    try:
        entries, ids = fmt.decode_index(bytes(damaged), "index")
    except CheckpointError as error:
        assert "\n" not in str(error)
    else:
        assert len(entries) == len(ids) == 3


@pytest.mark.parametrize(
    "id", ["", "../../evil", "a/b", "a\\b", ".hidden", "nul\0x", "line\nbreak", "\x1b[31m", "c:d", "x" * 201, "\ud800"]
)
def test_an_id_that_could_not_name_a_file_is_neither_written_nor_read(id):
    with pytest.raises(DataError, match="object id"):
        fmt.encode_id(id)
    entries = np.zeros(1, fmt.ENTRY)
    data = id.encode(errors="surrogatepass")
    entries["id_bytes"] = len(data)
    if data:
        with pytest.raises(CheckpointError, match="not an object index"):
            fmt.decode_index(fmt.encode_index(entries, [data], 1), Path("index-1.bin"))
