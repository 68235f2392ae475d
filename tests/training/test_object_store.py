import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusedplanes.errors import CheckpointError, DataError
from fusedplanes.training import object_format as fmt
from fusedplanes.training import object_store
from fusedplanes.training.object_store import MOMENTS, OBJECT, DiskObjectStore, MemoryObjectStore


def record(seed, *, size=6):
    values = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return {"micro_planes": values.view(1, -1), "weights": values[:3].half(), "none": torch.zeros(2, 0)}


def same(a, b):
    return list(a) == list(b) and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def contents(store):
    return [(id, store.read(id), store.read(id, MOMENTS)) for id in store.ids]


def assert_same_contents(store, expected):
    found, expected = contents(store), contents(expected)
    assert [id for id, *_ in found] == [id for id, *_ in expected]
    for (_, *mine), (_, *others) in zip(found, expected, strict=True):
        assert all(same(a, b) for a, b in zip(mine, others, strict=True))


def committed(store):
    state = store.stage()
    store.commit()
    return state


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return MemoryObjectStore() if request.param == "memory" else DiskObjectStore(tmp_path / "objects", writable=True)


def test_records_come_back_in_the_order_of_their_ids(store):
    records = {f"object {7 - index}": record(index) for index in range(5)}
    store.write_many(records)
    assert store.ids == list(records) and len(store) == 5
    assert "object 7" in store and "object 1" not in store
    back = store.read_many(["object 3", "object 7"])
    assert list(back) == ["object 3", "object 7"]
    assert all(same(back[id], records[id]) for id in back)


def test_a_record_replaces_the_one_before_and_keeps_its_place(store):
    store.write_many({"a": record(1), "b": record(2)})
    store.write_many({"a": record(3, size=9)})
    assert store.ids == ["a", "b"]
    assert same(store.read("a"), record(3, size=9)) and same(store.read("b"), record(2))


def test_moments_are_kept_apart_and_can_be_dropped(store):
    store.write_many({"a": record(1), "b": record(2)})
    store.write_many({"a": {"weights.steps": torch.tensor(4.0)}}, MOMENTS)
    assert store.read("a", MOMENTS)["weights.steps"] == 4 and store.read("b", MOMENTS) == {}
    store.delete(["a", "b", "nobody"], MOMENTS)
    assert store.read("a", MOMENTS) == {} and same(store.read("a"), record(1))
    store.write_many({"a": {"weights.steps": torch.tensor(5.0)}}, MOMENTS)
    store.delete(["a"])
    assert store.ids == ["b"] and "a" not in store
    store.write_many({"a": record(5)})
    assert store.ids == ["b", "a"] and store.read("a", MOMENTS) == {}


def test_what_is_read_is_the_readers_own(store):
    store.write_many({"a": record(1)})
    for tensor in store.read("a").values():
        tensor.zero_()
    assert same(store.read("a"), record(1))


def test_what_is_written_is_a_copy(store):
    values = record(1)
    store.write_many({"a": values})
    values["micro_planes"].zero_()
    assert same(store.read("a"), record(1))


def test_unknown_objects_are_named(store):
    store.write_many({"a": record(1)})
    with pytest.raises(DataError, match="object 'b' is not stored"):
        store.read("b")
    with pytest.raises(DataError, match="object 'b' is not stored"):
        store.write_many({"b": record(1)}, MOMENTS)
    with pytest.raises(DataError, match="object id"):
        store.write_many({"": record(1)})


# On disk --------------------------------------------------------------------------------------------------------------

names = st.sampled_from([f"object {index}" for index in range(6)])
operations = st.lists(
    st.tuples(
        st.sampled_from(["write", "moments", "delete", "drop", "save", "lose", "fail"]), st.sets(names, max_size=4)
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(operations, st.sampled_from([200, 1 << 20]))
def test_any_history_ends_as_it_does_in_memory(history, size):
    folder = Path(tempfile.mkdtemp())
    before = object_store.SEGMENT_BYTES, object_store.SEALED_BYTES, object_store.SPARE_NUMBERS
    object_store.SEGMENT_BYTES, object_store.SEALED_BYTES, object_store.SPARE_NUMBERS = size, size // 2, 2
    try:
        play(history, folder)
    finally:
        object_store.SEGMENT_BYTES, object_store.SEALED_BYTES, object_store.SPARE_NUMBERS = before
        shutil.rmtree(folder)


def play(history, folder):
    """Do to a store on disk what is done to one in memory; "save" reopens it, "lose" reopens what was saved last."""
    store, mirror, state = DiskObjectStore(folder, writable=True), MemoryObjectStore(), None
    saved = []
    for seed, (operation, ids) in enumerate(history):
        if operation == "write":
            for each in (store, mirror):
                each.write_many({id: record(seed, size=3 + len(id) + seed) for id in sorted(ids)})
        elif operation == "moments":
            for each in (store, mirror):
                each.write_many({id: record(-seed) for id in sorted(ids) if id in each}, MOMENTS)
        elif operation in ("delete", "drop"):
            for each in (store, mirror):
                each.delete(sorted(ids), MOMENTS if operation == "drop" else None)
        elif operation == "fail":
            store.stage()
            store.discard()
        else:
            if operation == "save":
                state = committed(store)
                saved = [(kind, id, mirror.read(id, kind)) for id in mirror.ids for kind in (OBJECT, MOMENTS)]
                assert_same_contents(DiskObjectStore(folder, state), mirror)
            store.close()
            store = DiskObjectStore(folder, state, writable=True)
            store.remove_leftovers()
            mirror = MemoryObjectStore()
            for kind, id, values in saved:
                if kind == OBJECT or values:
                    mirror.write_many({id: values}, kind)
        assert_same_contents(store, mirror)
    store.close()


def test_nothing_that_a_checkpoint_lists_is_overwritten(tmp_path):
    store = DiskObjectStore(tmp_path, writable=True)
    store.write_many({f"object {index}": record(index) for index in range(20)})
    state = committed(store)
    listed = {
        item["file"]: (tmp_path / item["file"]).read_bytes()[: item["bytes"]]
        for item in [*state["segments"], *state["index"]]
    }
    for round in range(3):
        store.write_many({f"object {index}": record(100 + index) for index in range(20)})
        store.write_many({f"new {round}": record(1)})
        store.stage()
    for file, data in listed.items():
        assert (tmp_path / file).read_bytes()[: len(data)] == data
    old = DiskObjectStore(tmp_path, state)
    assert len(old) == 20 and same(old.read("object 3"), record(3))


def test_a_checkpoint_writes_what_was_touched_and_reuses_the_rest(tmp_path):
    store = DiskObjectStore(tmp_path, writable=True)
    store.write_many({f"object {index:05}": record(index) for index in range(3000)})
    first = committed(store)
    (large,) = first["index"]
    assert large["bytes"] <= 3000 * (36 + len("object 00000")) + 24
    before = sum(path.stat().st_size for path in tmp_path.iterdir())
    store.write_many({f"object {index:05}": record(-index) for index in (7, 1500)})
    second = committed(store)
    assert second["index"][0] == large
    assert second["index"][1]["entries"] == 2 and second["index"][1]["bytes"] < 200
    after = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert after - before < 1000
    assert same(DiskObjectStore(tmp_path, second).read("object 01500"), record(-1500))


def test_shards_stay_few_and_halve_in_size(tmp_path):
    store = DiskObjectStore(tmp_path, writable=True)
    store.write_many({f"object {index}": record(index) for index in range(256)})
    rewritten = 0
    for step in range(60):
        known = {path.name for path in tmp_path.glob("index-*")}
        store.write_many({f"object {(step * 37 + k * 61) % 256}": record(step) for k in range(4)})
        sizes = [item["entries"] for item in committed(store)["index"]]
        assert all(older >= 2 * newer for older, newer in pairwise(sizes))
        rewritten += sum(path.stat().st_size for path in tmp_path.glob("index-*") if path.name not in known)
    # 60 checkpoints of 4 entries of some 45 bytes, each entry written again at most log2(256) times.
    assert rewritten < 60 * 4 * 45 * 8 + 256 * 50


def test_dead_records_are_cleared_away(tmp_path, monkeypatch):
    monkeypatch.setattr(object_store, "SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(object_store, "SEALED_BYTES", 5_000)
    store = DiskObjectStore(tmp_path, writable=True)
    ids = [f"object {index}" for index in range(30)]
    one = len(fmt.encode_record(ids[0], 0, 0, record(0, size=200)))
    store.write_many({id: record(0, size=200) for id in ids})
    for step in range(40):
        store.write_many({id: record(step, size=200) for id in ids[step % 4 :: 4]})
        state = committed(store)
        on_disk = sum(path.stat().st_size for path in tmp_path.glob("segment-*"))
        assert on_disk < 2 * 30 * one + 25_000
    assert_same_contents(DiskObjectStore(tmp_path, state), store)
    assert {path.name for path in tmp_path.glob("segment-*")} >= {item["file"] for item in state["segments"]}


def test_gaps_in_the_numbering_close(tmp_path, monkeypatch):
    monkeypatch.setattr(object_store, "SPARE_NUMBERS", 8)
    store = DiskObjectStore(tmp_path, writable=True)
    for step in range(50):
        store.write_many({f"object {step}": record(step)})
        store.delete([f"object {step - 3}"])
        state = committed(store)
        assert state["numbers"] <= 2 * len(store) + 8
    assert store.ids == ["object 47", "object 48", "object 49"]
    assert_same_contents(DiskObjectStore(tmp_path, state), store)


def test_leftovers_of_a_killed_session_are_removed_and_nothing_else(tmp_path):
    store = DiskObjectStore(tmp_path, writable=True)
    store.write_many({"a": record(1)})
    state = committed(store)
    store.write_many({"b": record(2)})
    store.stage()
    store.close()
    (tmp_path / ".index-9.bin.abc").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    store = DiskObjectStore(tmp_path, state, writable=True)
    store.write_many({"c": record(3)})
    store.remove_leftovers()
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"segment-000001.bin", "segment-000002.bin", state["index"][0]["file"], "notes.txt", ".writer"}
    assert store.ids == ["a", "c"]


def test_one_process_writes_at_a_time_and_others_read(tmp_path):
    store = DiskObjectStore(tmp_path, writable=True)
    store.write_many({"a": record(1)})
    state = committed(store)
    with pytest.raises(CheckpointError, match="another process is training"):
        DiskObjectStore(tmp_path, state, writable=True)
    reader = DiskObjectStore(tmp_path, state)
    assert same(reader.read("a"), record(1))
    with pytest.raises(CheckpointError, match="opened for reading only"):
        reader.write_many({"a": record(2)})
    with pytest.raises(CheckpointError, match="opened for reading only"):
        reader.stage()
    store.close()
    DiskObjectStore(tmp_path, state, writable=True).close()


def test_a_reader_whose_files_are_gone_is_told_to_open_again(tmp_path):
    store = DiskObjectStore(tmp_path, writable=True)
    store.write_many({"a": record(1, size=1 << 19)})
    reader = DiskObjectStore(tmp_path, committed(store))
    for seed in (2, 3):
        store.write_many({"a": record(seed)})
        committed(store)
    with pytest.raises(CheckpointError, match="open the run again"):
        reader.read("a")


@pytest.fixture
def saved(tmp_path):
    store = DiskObjectStore(tmp_path / "objects", writable=True)
    store.write_many({"a": record(1), "b": record(2)})
    state = committed(store)
    store.close()
    return tmp_path / "objects", state


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("index"),
        lambda s: s.update(generation=-1),
        lambda s: s.update(generation=True),
        lambda s: s.update(numbers="2"),
        lambda s: s.update(numbers=1 << 40),
        lambda s: s.update(numbers=1),
        lambda s: s.update(numbers=1 << 70),
        lambda s: s.update(segments=3),
        lambda s: s.update(segments=[]),
        lambda s: s["segments"][0].update(file="../../etc/passwd"),
        lambda s: s["segments"][0].update(file="segment-000009.bin"),
        lambda s: s["segments"][0].update(bytes=1 << 50),
        lambda s: s["segments"][0].update(bytes=20),
        lambda s: s["index"][0].update(file="/etc/passwd"),
        lambda s: s["index"][0].update(file="index-77.bin"),
        lambda s: s["index"][0].update(bytes=1 << 50),
        lambda s: s["index"][0].update(entries=1),
        lambda s: s["index"][0].update(checksum="0" * 16),
        lambda s: s["index"].append(dict(s["index"][0], file="segment-000001.bin")),
        lambda s: s.update(index=[None]),
        lambda s: s.update(index={}),
    ],
)
def test_a_state_that_lies_is_refused(saved, change):
    folder, state = saved
    change(state)
    if state.get("index") == {}:
        assert DiskObjectStore(folder, state).ids == []
        return
    with pytest.raises(CheckpointError) as error:
        DiskObjectStore(folder, state)
    assert "\n" not in str(error.value)


def forged(folder, state, change):
    """The state with an index in which ``change`` was made to the entries, all checksums in order."""
    (item,) = state["index"]
    entries, ids = fmt.decode_index((folder / item["file"]).read_bytes(), folder)
    entries = entries.copy()
    ids = [id.encode() for id in ids if id is not None]
    change(entries, ids)
    data = fmt.encode_index(entries, ids, 1)
    (folder / item["file"]).write_bytes(data)
    item.update(bytes=len(data), checksum=f"{fmt.checksum(data):016x}", entries=len(entries))
    return state


@pytest.mark.parametrize(
    "change",
    [
        lambda e, ids: e.__setitem__("segment", [9, 1]),
        lambda e, ids: e.__setitem__("offset", [16, (1 << 64) - 8]),
        lambda e, ids: e.__setitem__("length", [100, 0xFFFF_FFFF]),
        lambda e, ids: e.__setitem__("object", [0, 0xFFFF_FFFF]),
        lambda e, ids: e.__setitem__("object", [1, 1]),
        lambda e, ids: e.__setitem__("kind", [0, 2]),
        lambda e, ids: (e.__setitem__("id_bytes", [1, 0]), ids.pop()),
        lambda e, ids: ids.__setitem__(1, b"a"),
    ],
)
def test_an_index_that_lies_is_refused(saved, change):
    folder, state = saved
    with pytest.raises(CheckpointError):
        DiskObjectStore(folder, forged(folder, state, change))


def test_an_index_that_points_at_another_record_gives_no_wrong_data(saved):
    folder, state = saved

    def swap(entries, ids):
        for field in ("offset", "length", "checksum"):
            entries[field] = entries[field][::-1].copy()

    store = DiskObjectStore(folder, forged(folder, state, swap))
    with pytest.raises(CheckpointError, match="record of object 'a' is damaged"):
        store.read("a")


def test_opening_reads_the_index_and_not_the_objects(tmp_path):
    store = DiskObjectStore(tmp_path, writable=True)
    store.write_many({f"{index:032x}": record(index) for index in range(200)})
    state = committed(store)
    (tmp_path / state["segments"][0]["file"]).write_bytes(bytes(state["segments"][0]["bytes"]))
    reader = DiskObjectStore(tmp_path, state)
    assert len(reader) == 200
    with pytest.raises(CheckpointError, match="not an object segment"):
        reader.read(reader.ids[0])
