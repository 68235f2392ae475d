import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusedplanes.errors import CheckpointError, ConfigError
from fusedplanes.training import checkpoint as checkpoints
from fusedplanes.training import object_store
from fusedplanes.training.checkpoint import create_store, load_checkpoint, load_objects, save_checkpoint
from fusedplanes.training.object_optimizer import ObjectAdam, ObjectTable
from fusedplanes.training.object_store import MOMENTS


def save(run, store, step=10, **options):
    shared = {"base_planes": torch.full((2, 3), float(step))}
    save_checkpoint(run, store, **{"phase": "warm-up", "step": step, "shared": shared} | options)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def files(run):
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()} - {"objects/.writer"}


# What is saved --------------------------------------------------------------------------------------------------------


def test_a_checkpoint_gives_back_what_was_saved(run):
    nested = {"a": [1, 2.5, None, True, ("x", torch.arange(3))], 7: {"b": torch.tensor(0.5, dtype=torch.float64)}}
    save(run, create_store(run), optimizer=nested, metadata={"preset": "tiny", "losses": [1, 2]})
    checkpoint = load_checkpoint(run)
    assert (checkpoint.phase, checkpoint.step) == ("warm-up", 10)
    assert checkpoint.metadata == {"preset": "tiny", "losses": [1, 2]}
    assert torch.equal(checkpoint.shared()["base_planes"], torch.full((2, 3), 10.0))
    back = checkpoint.optimizer()
    assert list(back) == ["a", 7] and back["a"][:4] == [1, 2.5, None, True]
    assert back["a"][4][0] == "x" and torch.equal(back["a"][4][1], torch.arange(3))
    assert back[7]["b"].dtype == torch.float64 and back[7]["b"] == 0.5


def test_tensors_that_share_memory_or_have_the_same_path_are_told_apart(run):
    both = torch.arange(4.0)
    nested = {"a.b": both[:2], "a": {"b": both[2:]}, "structure": both, "structure_": both + 1}
    save(run, create_store(run), optimizer=nested, shared={"x": both, "y": both[1:]})
    checkpoint = load_checkpoint(run)
    back = checkpoint.optimizer()
    assert back["a.b"].tolist() == [0, 1] and back["a"]["b"].tolist() == [2, 3]
    assert back["structure"].tolist() == [0, 1, 2, 3] and back["structure_"].tolist() == [1, 2, 3, 4]
    assert checkpoint.shared()["y"].tolist() == [1, 2, 3]


def test_random_numbers_go_on_where_they_stood(run):
    torch.manual_seed(5)
    own, numpy_own = torch.Generator().manual_seed(6), np.random.default_rng(7)
    save(run, create_store(run), generators={"own": own, "numpy": numpy_own})

    def draw(own, numpy_own):
        return torch.rand(3).tolist(), torch.rand(3, generator=own).tolist(), numpy_own.random(3).tolist()

    expected = draw(own, numpy_own)
    torch.manual_seed(0)
    own, numpy_own = torch.Generator(), np.random.default_rng()
    load_checkpoint(run).restore_random_numbers({"own": own, "numpy": numpy_own})
    assert draw(own, numpy_own) == expected
    with pytest.raises(CheckpointError, match="random numbers does not fit"):
        load_checkpoint(run).restore_random_numbers({"other": own})
    with pytest.raises(CheckpointError, match="random numbers does not fit"):
        load_checkpoint(run).restore_random_numbers({"numpy": own})


class TinyRun:
    """Everything a real run has: shared parameters with torch's Adam, objects with their own, random numbers."""

    def __init__(self, run):
        self.run, self.store = run, create_store(run)
        torch.manual_seed(0)
        self.base = torch.nn.Parameter(torch.randn(4, 5))
        self.adam = torch.optim.Adam([self.base], lr=0.05, betas=(0.8, 0.99))
        self.generator, self.numbers = torch.Generator().manual_seed(1), np.random.default_rng(2)
        self.table = ObjectTable([f"o{i}" for i in range(6)], {"weights": torch.randn(6, 4), "offset": torch.zeros(6)})
        self.object_adam = ObjectAdam(self.table)
        self.first_step = 0

    def resume(self):
        checkpoint = load_checkpoint(self.run)
        resumed = TinyRun.__new__(TinyRun)
        resumed.run, resumed.store = self.run, checkpoint.store(writable=True)
        resumed.base = torch.nn.Parameter(checkpoint.shared()["base"])
        resumed.adam = torch.optim.Adam([resumed.base], lr=1.0)
        resumed.adam.load_state_dict(checkpoint.optimizer()["shared"])
        resumed.generator, resumed.numbers = torch.Generator(), np.random.default_rng()
        checkpoint.restore_random_numbers({"torch": resumed.generator, "numpy": resumed.numbers})
        resumed.table, resumed.object_adam = load_objects(resumed.store)
        resumed.first_step = checkpoint.step
        return resumed

    def train(self, last_step):
        for _ in range(self.first_step, last_step):
            rows = torch.randperm(6, generator=self.generator)[:3]
            leaves = {name: tensor[rows].requires_grad_() for name, tensor in self.table.tensors.items()}
            target = torch.rand(3, 5) + float(self.numbers.random())
            loss = (leaves["weights"] @ self.base + leaves["offset"][:, None] - target).square().mean()
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
            for name, leaf in leaves.items():
                self.object_adam.step(name, rows, leaf.grad, 0.02)
        self.first_step = last_step
        return self

    def save(self):
        save_checkpoint(
            self.run,
            self.store,
            phase="warm-up",
            step=self.first_step,
            shared={"base": self.base},
            optimizer={"shared": self.adam.state_dict()},
            table=self.table,
            object_adam=self.object_adam,
            generators={"torch": self.generator, "numpy": self.numbers},
        )
        self.store.close()
        return self


def test_ten_steps_saved_and_ten_more_are_twenty_bit_for_bit(tmp_path):
    straight = TinyRun(tmp_path / "straight").train(20)
    stopped = TinyRun(tmp_path / "stopped").train(10).save()
    torch.manual_seed(99)
    resumed = stopped.resume()
    assert resumed.first_step == 10 and resumed.table.dirty == set() and resumed.table.ids == straight.table.ids
    resumed.train(20)
    assert torch.equal(resumed.base, straight.base)
    for name, tensor in straight.table.tensors.items():
        assert torch.equal(resumed.table.tensors[name], tensor)
    for id in straight.table.ids:
        expected = straight.object_adam.state(id)
        assert all(torch.equal(resumed.object_adam.state(id)[name], value) for name, value in expected.items())


def test_only_touched_objects_are_written_and_finished_ones_lose_their_moments(run):
    tiny = TinyRun(run)
    written = []
    tiny.store.write_many = lambda records, kind="object": (
        written.append((kind, sorted(records))) or type(tiny.store).write_many(tiny.store, records, kind)
    )
    options = {"shared": {"base": tiny.base}, "table": tiny.table, "object_adam": tiny.object_adam}
    save(run, tiny.store, **options)
    assert written == [("object", tiny.table.ids), ("moments", [])] and tiny.table.dirty == set()
    written.clear()
    for name in ("weights", "offset"):
        gradients = torch.ones(2, *tiny.table.tensors[name].shape[1:])
        tiny.object_adam.step(name, torch.tensor([4, 1]), gradients, 0.1)
    save(run, tiny.store, **options)
    assert written == [("object", ["o1", "o4"]), ("moments", ["o1", "o4"])]
    written.clear()
    tiny.object_adam.drop(["o4"])
    save(run, tiny.store, **options)
    assert written == [("object", ["o4"]), ("moments", [])]
    store = load_checkpoint(run).store()
    assert store.read("o1", MOMENTS)["weights.steps"] == 1 and store.read("o4", MOMENTS) == {}
    assert torch.equal(store.read("o4")["weights"], tiny.table.tensors["weights"][4])


def test_values_that_are_not_finite_are_never_saved(run):
    tiny = TinyRun(run)
    options = {"shared": {"base": tiny.base}, "table": tiny.table, "object_adam": tiny.object_adam}
    save(run, tiny.store, **options)
    before = files(run)
    tiny.table.tensors["weights"][3, 1] = torch.nan
    tiny.table.mark(torch.tensor([3]))
    with pytest.raises(CheckpointError, match="object 'o3': 'weights' holds values that are not finite"):
        save(run, tiny.store, **options)
    with pytest.raises(CheckpointError, match="'base' holds values that are not finite"):
        save(run, tiny.store, shared={"base": torch.tensor([torch.inf])})
    assert files(run) == before and load_checkpoint(run).store().read("o3")["weights"].isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": {"a": [object()]}}, r"'optimizer\.a\.0' is a object"),
        ({"optimizer": {"lr": float("nan")}}, r"'optimizer\.lr' is nan"),
        ({"metadata": {"a": float("inf")}}, "metadata is no JSON"),
        ({"metadata": {"a": {1, 2}}}, "metadata is no JSON"),
        ({"generators": {"old": np.random.Generator(np.random.MT19937(0))}}, "is a ndarray"),
    ],
)
def test_what_cannot_be_saved_is_named(run, options, message):
    with pytest.raises(ConfigError, match=message):
        save(run, create_store(run), **options)


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_run_holds_the_files_of_one_checkpoint(run):
    store = create_store(run)
    store.write_many({"a": {"weights": torch.ones(3)}})
    for step in (10, 20):
        save(run, store, step)
        (run / ".shared-30.safetensors.xyz").write_bytes(b"of a killed session")
    save(run, store, 30)
    expected = {"checkpoint.json", "shared-30.safetensors", "optimizer-30.safetensors"}
    assert files(run) == expected | {"objects/index-1.bin", "objects/segment-000001.bin"}


def test_a_step_number_may_come_again(run):
    store = create_store(run)
    for value in (1.0, 2.0, 3.0):
        save(run, store, 10, shared={"x": torch.tensor([value])})
        assert load_checkpoint(run).shared()["x"] == value
    assert len(files(run)) == 3


def test_a_run_is_not_begun_over_another_nor_saved_by_two(run):
    store = create_store(run)
    with pytest.raises(CheckpointError, match="another process"):
        create_store(run)
    save(run, store)
    with pytest.raises(CheckpointError, match="another process"):
        load_checkpoint(run).store(writable=True)
    store.close()
    with pytest.raises(CheckpointError, match="holds a run already"):
        create_store(run)
    load_checkpoint(run).store(writable=True).close()


def test_a_checkpoint_that_was_overtaken_is_not_trained_on(run):
    store = create_store(run)
    store.write_many({"a": {"weights": torch.ones(3)}, "b": {"weights": torch.ones(3)}})
    save(run, store)
    stale = load_checkpoint(run)
    store.write_many({"a": {"weights": torch.zeros(3)}})
    save(run, store, 20)
    store.close()
    assert len(stale.store().read_many(["b"])) == 1
    with pytest.raises(CheckpointError, match="was trained on while it was opened; open it again"):
        stale.store(writable=True)
    assert load_checkpoint(run).store(writable=True).read("a")["weights"].tolist() == [0, 0, 0]


def edit(run, **changes):
    path = run / "checkpoint.json"
    value = json.loads(path.read_text()) | changes
    value["checksum"] = checkpoints._manifest_checksum({key: item for key, item in value.items() if key != "checksum"})
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format_version 2 is newer than the 1"),
        ({"format_version": "1"}, "format_version is '1'"),
        ({"format": "something"}, "format is 'something'"),
        ({"step": "ten"}, "'step' is 'ten'"),
        ({"step": True}, "'step' is True"),
        ({"objects": None}, "'objects' is None"),
        ({"shared": {"file": "../../x.safetensors", "bytes": 1, "checksum": ""}}, "'shared' names the file"),
        ({"optimizer": {"file": "shared-10.safetensors", "bytes": 1, "checksum": ""}}, "'optimizer' names the file"),
        ({"shared": {"bytes": 1}}, "'shared' names no file"),
    ],
)
def test_a_manifest_that_lies_is_refused(run, changes, message):
    save(run, create_store(run))
    edit(run, **changes)
    with pytest.raises(CheckpointError, match=message) as error:
        load_checkpoint(run)
    assert "checkpoint.json" in str(error.value) and "\n" not in str(error.value)


def test_no_run_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(CheckpointError, match=r"no checkpoint\.json here"):
            load_checkpoint(path)
    (tmp_path / "checkpoint.json").mkdir()
    with pytest.raises(CheckpointError, match="no ordinary file"):
        load_checkpoint(tmp_path)


def test_an_older_version_can_be_read():
    checkpoint = load_checkpoint(Path(__file__).parents[1] / "golden" / "run_format_version_1")
    assert (checkpoint.phase, checkpoint.step, checkpoint.metadata) == ("warm-up", 2, {"preset": "tiny"})
    assert checkpoint.shared()["base_planes"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert checkpoint.optimizer() == {"rate": 0.25}
    table, adam = load_objects(checkpoint.store())
    assert table.ids == ["chair", "tisch-ä"]
    assert table.tensors["weights"].tolist() == [[1.0, 2.0], [-3.0, 4.0]]
    assert table.tensors["micro_planes"].dtype == torch.float16 and table.tensors["micro_planes"].sum() == 6
    assert adam.state("tisch-ä")["weights.steps"] == 1 and adam.state("chair") == {}


# Damage ---------------------------------------------------------------------------------------------------------------


def everything(run):
    """All that a run holds, as plain values."""
    checkpoint = load_checkpoint(run)
    store = checkpoint.store()
    state = checkpoint._state()
    return repr(
        (
            checkpoint.phase,
            checkpoint.step,
            checkpoint.metadata,
            {name: tensor.tolist() for name, tensor in checkpoint.shared().items()},
            state["optimizer"]["rate"].tolist(),
            state["random"]["torch"].sum(),
            [
                (id, kind, {name: tensor.tolist() for name, tensor in record.items()})
                for kind in ("object", "moments")
                for id, record in store.read_many(store.ids, kind).items()
            ],
        )
    )


@pytest.fixture(scope="module")
def damaged_run():
    run = Path(tempfile.mkdtemp()) / "run"
    store = create_store(run)
    store.write_many({f"o{index}": {"weights": torch.arange(3.0) + index} for index in range(5)})
    store.write_many({"o1": {"weights.steps": torch.tensor(2.0)}}, MOMENTS)
    save(run, store, 10)
    store.write_many({"o3": {"weights": torch.arange(4.0)}})
    save(run, store, 20, optimizer={"rate": torch.tensor(0.5)}, metadata={"preset": "tiny"})
    store.close()
    yield run, everything(run), sorted(files(run))
    shutil.rmtree(run.parent)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_an_error_of_one_line_or_harmless(damaged_run, data):
    run, expected, names = damaged_run
    assert {name.split("-")[0] for name in names} == {
        "checkpoint.json",
        "shared",
        "optimizer",
        "objects/index",
        "objects/segment",
    }
    path = run / data.draw(st.sampled_from(names))
    good = path.read_bytes()
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    bad = bad[: data.draw(st.just(len(bad)) | st.integers(0, len(bad)))] + data.draw(
        st.just(b"") | st.binary(max_size=9)
    )
    path.write_bytes(bad)
    try:
        assert everything(run) == expected
    except CheckpointError as error:
        assert "\n" not in str(error)
    finally:
        path.write_bytes(good)


def test_a_missing_file_is_named(damaged_run):
    run, expected, names = damaged_run
    for name in names:
        good = (run / name).read_bytes()
        (run / name).unlink()
        with pytest.raises(CheckpointError, match=name.split("/")[-1]):
            everything(run)
        (run / name).write_bytes(good)
    assert everything(run) == expected


# Failing disks and killed processes -----------------------------------------------------------------------------------


def test_a_failure_at_any_moment_leaves_the_checkpoint_before_it(tmp_path, monkeypatch):
    """Every call that can fail for want of space fails once, each in a save of its own."""
    run, calls = tmp_path / "run", {"left": -1, "count": 0}

    def failing(function):
        def call(*arguments, **options):
            calls["count"] += 1
            calls["left"] -= 1
            if calls["left"] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(object_store, "SEALED_BYTES", 100)
    monkeypatch.setattr(object_store, "_write_at", failing(object_store._write_at))
    for module, name in ((os, "fsync"), (os, "replace"), (tempfile, "mkstemp")):
        monkeypatch.setattr(module, name, failing(getattr(module, name)))
    store = create_store(run)

    def write(step):
        store.write_many({f"o{index}": {"weights": torch.full((9,), float(step + index))} for index in range(4)})
        save(run, store, step)

    def holds(step):
        checkpoint = load_checkpoint(run)
        weights = [record["weights"] for record in checkpoint.store().read_many(checkpoint.store().ids).values()]
        return (
            checkpoint.step == step
            and torch.equal(checkpoint.shared()["base_planes"], torch.full((2, 3), float(step)))
            and torch.equal(torch.stack(weights), (step + torch.arange(4.0))[:, None].expand(4, 9))
        )

    write(1)
    calls["count"] = 0
    write(2)
    moments, step = calls["count"], 2
    assert moments > 12
    for moment in range(1, moments + 1):
        before = files(run)
        calls["left"] = moment
        with pytest.raises(CheckpointError, match="No space left on device") as error:
            write(step + 1)
        assert "\n" not in str(error.value)
        # The last call makes the rename durable: when it fails, the new checkpoint is in place already.
        assert holds(step + 1 if moment == moments else step)
        added = files(run) - before
        assert moment == moments or not [name for name in added if "segment" not in name]
        step += 2
        write(step)
        assert holds(step)
    assert len(files(run)) <= 6
    store.close()
    load_checkpoint(run).store(writable=True).close()


# Forks one trainer after another, so that torch is imported once.
TRAINERS = """
import os, sys, torch
from fusedplanes.training import object_store
from fusedplanes.training.checkpoint import create_store, load_checkpoint, save_checkpoint
object_store.SEALED_BYTES = 4000

def train(run):
    if os.path.exists(run + "/checkpoint.json"):
        checkpoint = load_checkpoint(run)
        store, step = checkpoint.store(writable=True), checkpoint.step
    else:
        store, step = create_store(run), 0
    print(os.getpid(), flush=True)
    while True:
        step += 1
        touched = range(20) if step == 1 else ((step * 7) % 20, (step * 3) % 20)
        store.write_many({f"o{index}": {"weights": torch.full((100,), float(step))} for index in touched})
        save_checkpoint(run, store, phase="warm-up", step=step, shared={"x": torch.full((500,), float(step))})
        print("saved", flush=True)

for line in sys.stdin:
    trainer = os.fork()
    if trainer == 0:
        train(sys.argv[1])
    os.waitpid(trainer, 0)
    print("dead", flush=True)
"""


def test_a_kill_at_any_moment_leaves_one_checkpoint_or_the_next(tmp_path):
    run, last = tmp_path / "run", 0
    command = [sys.executable, "-c", TRAINERS, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainers:
        for saves, seconds in ((0, 0.004), (1, 0.11), (2, 0.05), (1, 0.023), (3, 0.17), (0, 0.009)):
            trainers.stdin.write("another\n")
            trainers.stdin.flush()
            trainer = int(trainers.stdout.readline())
            for _ in range(saves):
                assert trainers.stdout.readline() == "saved\n"
            time.sleep(seconds)
            os.kill(trainer, signal.SIGKILL)
            while trainers.stdout.readline() != "dead\n":
                pass
            if not (run / "checkpoint.json").exists():
                assert saves == 0
                continue
            checkpoint = load_checkpoint(run)
            assert checkpoint.step >= last + saves
            last = checkpoint.step
            assert checkpoint.shared()["x"].tolist() == [float(last)] * 500
            expected = [1.0] * 20
            for step in range(2, last + 1):
                expected[(step * 7) % 20] = expected[(step * 3) % 20] = float(step)
            store = checkpoint.store()
            found = [store.read(f"o{index}")["weights"] for index in range(20)]
            assert torch.equal(torch.stack(found), torch.tensor(expected)[:, None].expand(20, 100))
        trainers.stdin.close()
    assert last >= 7


def test_a_write_cut_short_by_the_system_is_undone(run):
    store = create_store(run)
    save(run, store, 1)
    large = torch.ones(60_000)
    # No file may grow beyond this: writes are cut short and then refused, as on a disk without space.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"segment-000001\.bin: cannot be written \(File too large\)"):
            store.write_many({"a": {"weights": large}})
        with pytest.raises(CheckpointError, match=r"cannot be written \(File too large\)"):
            save(run, store, 2, shared={"x": large})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert load_checkpoint(run).step == 1
    save(run, store, 3)
    assert load_checkpoint(run).step == 3 and len(load_checkpoint(run).store()) == 0
    assert not [name for name in files(run) if "/." in name or name.startswith(".")]
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < 20_000
