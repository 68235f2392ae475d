import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusedplanes.errors import DataError
from fusedplanes.training.object_optimizer import ObjectAdam, ObjectTable

SHAPES = {"micro_planes": (3, 4, 4, 2), "weights": (5,), "bias": ()}


def fresh_table(objects, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(objects, *shape, generator=generator) for name, shape in SHAPES.items()}
    return ObjectTable([f"object {index}" for index in range(objects)], tensors)


def gradients(table, rows, step):
    generator = torch.Generator().manual_seed(1000 + step)
    return {
        name: torch.randn(len(rows), *tensor.shape[1:], generator=generator) for name, tensor in table.tensors.items()
    }


def take(adam, rows, step, rate=1e-2):
    for name, gradient in gradients(adam.table, rows, step).items():
        adam.step(name, torch.tensor(rows), gradient, rate)


@pytest.mark.parametrize("rate", [1e-2, 1.0])
def test_with_every_object_in_every_batch_it_is_torchs_adam(rate):
    table = fresh_table(6)
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in table.tensors.items()}
    reference = torch.optim.Adam(parameters.values(), lr=rate)
    adam = ObjectAdam(table)
    for step in range(25):
        rows = list(range(6))
        for name, gradient in gradients(table, rows, step).items():
            parameters[name].grad = gradient
        reference.step()
        take(adam, rows, step, rate)
    for name, parameter in parameters.items():
        torch.testing.assert_close(table.tensors[name], parameter.detach(), rtol=1e-6, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sets(st.integers(0, 4), max_size=5), max_size=8))
def test_every_object_moves_as_if_it_were_trained_alone(batches):
    table = fresh_table(5)
    alone = [{name: tensor[row].clone().requires_grad_() for name, tensor in table.tensors.items()} for row in range(5)]
    optimizers = [torch.optim.Adam(item.values(), lr=0.05) for item in alone]
    adam = ObjectAdam(table)
    for step, batch in enumerate(batches):
        rows = sorted(batch, key=lambda row: (row * 7 + step) % 5)
        for name, gradient in gradients(table, rows, step).items():
            adam.step(name, torch.tensor(rows, dtype=torch.long), gradient, 0.05)
            for row, own in zip(rows, gradient, strict=True):
                alone[row][name].grad = own
        for row in rows:
            optimizers[row].step()
    for row in range(5):
        for name, expected in alone[row].items():
            torch.testing.assert_close(table.tensors[name][row], expected.detach(), rtol=1e-6, atol=1e-6)


def test_objects_outside_the_batch_stay_bit_for_bit_and_only_the_batch_is_dirty():
    table = fresh_table(50)
    before = {name: tensor.clone() for name, tensor in table.tensors.items()}
    adam = ObjectAdam(table)
    table.dirty.clear()
    take(adam, [3, 40], 0)
    others = [row for row in range(50) if row not in (3, 40)]
    for name, tensor in table.tensors.items():
        assert torch.equal(tensor[others], before[name][others])
        assert not torch.equal(tensor[[3, 40]], before[name][[3, 40]])
    assert table.dirty == {3, 40}
    assert adam.state("object 0") == {}


def test_a_step_moves_the_tables_own_storage():
    table = fresh_table(3)
    pointers = {name: tensor.data_ptr() for name, tensor in table.tensors.items()}
    take(ObjectAdam(table), [0, 2], 0)
    assert {name: tensor.data_ptr() for name, tensor in table.tensors.items()} == pointers


def test_learning_rate_and_float_type_of_gradients_are_taken_as_they_come():
    table = ObjectTable(["a"], {"weights": torch.zeros(1, 2)})
    adam = ObjectAdam(table)
    adam.step("weights", torch.tensor([0]), torch.ones(1, 2, dtype=torch.float16), 0.25)
    moved = table.tensors["weights"].clone()
    torch.testing.assert_close(moved, torch.full((1, 2), -0.25))
    adam.step("weights", torch.tensor([0]), torch.ones(1, 2), 0.0)
    assert torch.equal(table.tensors["weights"], moved)


def test_saved_moments_go_on_bit_for_bit():
    straight, table = fresh_table(6), fresh_table(6)
    batches = [[0, 3], [3, 5], [1, 0], [2, 4], [5, 1], [0, 5]]
    adam = ObjectAdam(straight)
    for step, rows in enumerate(batches):
        take(adam, rows, step)
    adam = ObjectAdam(table)
    for step, rows in enumerate(batches[:3]):
        take(adam, rows, step)
    resumed_table = ObjectTable(table.ids, {name: tensor.clone() for name, tensor in table.tensors.items()})
    resumed = ObjectAdam(resumed_table)
    for id in reversed(table.ids):
        resumed.load_state(id, {name: value.clone() for name, value in adam.state(id).items()})
    for step, rows in enumerate(batches[3:]):
        take(resumed, rows, step + 3)
    for name, tensor in straight.tensors.items():
        assert torch.equal(resumed_table.tensors[name], tensor)


def test_dropped_objects_start_afresh_and_their_memory_serves_others():
    table, single = fresh_table(4), fresh_table(4)
    adam = ObjectAdam(table)
    take(adam, [0, 1], 0)
    adam.drop(["object 0", "object 3"])
    assert adam.state("object 0") == {}
    for tensors in (table.tensors, single.tensors):
        for tensor in tensors.values():
            tensor[2:] = 0.5
            tensor[0] = 0.5
    take(adam, [2], 1)
    take(adam, [0], 2)
    reference = ObjectAdam(single)
    take(reference, [2], 1)
    take(reference, [0], 2)
    for row in (0, 2):
        for name, tensor in table.tensors.items():
            assert torch.equal(tensor[row], single.tensors[name][row])
    assert len(adam._state["weights.first_moment"]) <= 4


def test_moments_of_one_tensor_do_not_need_the_others():
    table = fresh_table(8)
    adam = ObjectAdam(table)
    adam.step("weights", torch.tensor([0]), torch.ones(1, 5), 0.1)
    adam.step("bias", torch.arange(8), torch.ones(8), 0.1)
    state = adam.state("object 7")
    assert state["bias.steps"] == 1 and state["weights.steps"] == 0
    assert not any(name.startswith("micro_planes") for name in state)


def test_new_objects_join_with_moments_of_their_own():
    table = fresh_table(2)
    adam = ObjectAdam(table)
    take(adam, [0, 1], 0)
    table.dirty.clear()
    kept = {name: tensor.clone() for name, tensor in table.tensors.items()}
    rows = table.append(["new", "newer"], {name: torch.zeros(2, *shape) for name, shape in SHAPES.items()})
    assert rows.tolist() == [2, 3] and table.dirty == {2, 3} and "newer" in table and len(table) == 4
    assert all(torch.equal(table.tensors[name][:2], value) for name, value in kept.items())
    adam.step("weights", torch.tensor([3, 0]), torch.ones(2, 5), 0.1)
    torch.testing.assert_close(table.record("newer")["weights"], torch.full((5,), -0.1))
    assert adam.state("object 0")["weights.steps"] == 2 and adam.state("newer")["weights.steps"] == 1


def test_tensors_without_elements_are_passed_over():
    table = ObjectTable(["a", "b"], {"micro_planes": torch.zeros(2, 3, 4, 4, 0), "weights": torch.zeros(2, 3)})
    adam = ObjectAdam(table)
    adam.step("micro_planes", torch.tensor([0]), torch.zeros(1, 3, 4, 4, 0), 0.1)
    assert adam.state("a") == {}


def test_mistakes_are_named():
    table = fresh_table(3)
    adam = ObjectAdam(table)
    with pytest.raises(DataError, match=r"twice in the batch of rows \[1, 1\]"):
        adam.step("weights", torch.tensor([1, 1]), torch.ones(2, 5), 0.1)
    with pytest.raises(DataError, match=r"gradients of 'weights' have shape \(2, 4\)"):
        adam.step("weights", torch.tensor([0, 1]), torch.ones(2, 4), 0.1)
    with pytest.raises(DataError, match="no object 'nobody' among its 3"):
        table.rows(["nobody"])
    with pytest.raises(DataError, match="'object 1' is there twice"):
        table.append(["object 1"], {name: torch.zeros(1, *shape) for name, shape in SHAPES.items()})
    with pytest.raises(DataError, match="'x' is there twice"):
        table.append(["x", "x"], {name: torch.zeros(2, *shape) for name, shape in SHAPES.items()})
    with pytest.raises(DataError, match=r"new objects need the tensors .*'weights' \[K, 5\]"):
        table.append(["x"], {"weights": torch.zeros(1, 5)})
    with pytest.raises(DataError, match="'weights' has shape"):
        ObjectTable(["a", "b"], {"weights": torch.zeros(3, 5)})
    assert len(table) == 3
    take(adam, [0], 0)
    state = adam.state("object 0")
    with pytest.raises(DataError, match="do not fit the table's 'weights'"):
        adam.load_state("object 1", state | {"weights.second_moment": torch.zeros(6)})
    with pytest.raises(DataError, match="do not fit the table's 'weights'"):
        adam.load_state("object 1", {"weights.steps": torch.tensor(1.0)})
    with pytest.raises(DataError, match=r"name 'speed\.steps'"):
        adam.load_state("object 1", {"speed.steps": torch.tensor(1.0)})


# Rotated channels -----------------------------------------------------------------------------------------------------


def mixed_channels(seed=0, channels=4):
    """Objects whose channels a network reads together: targets, a mixing matrix that weighs them unequally."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randn(2, 3, 5, 5, channels, generator=generator)
    turn, _ = torch.linalg.qr(torch.randn(channels, channels, generator=generator))
    return targets, turn @ torch.diag(torch.logspace(0, 1, channels)) @ turn.T


def descend(adam, targets, mixing, steps, rate=0.05):
    """Distance from the targets, as the mixing sees it, after some steps of gradient descent on its square."""
    table = adam.table
    for _ in range(steps):
        error = (table.tensors["planes"] - targets) @ mixing
        adam.step("planes", torch.tensor([0, 1]), error @ mixing.T, rate)
    return ((table.tensors["planes"] - targets) @ mixing).square().mean().item()


def planes_table(targets):
    return ObjectTable(["a", "b"], {"planes": torch.zeros_like(targets)})


def test_rotated_channels_go_straight_where_adam_is_held_up():
    targets, mixing = mixed_channels()
    plain = descend(ObjectAdam(planes_table(targets), betas=(0.5, 0.9)), targets, mixing, 40, rate=0.1)
    rotated = ObjectAdam(planes_table(targets), betas=(0.5, 0.9), rotated=("planes",))
    assert descend(rotated, targets, mixing, 40, rate=0.1) < 0.5 * plain


def test_a_rotated_step_does_not_depend_on_how_channels_are_laid_out():
    targets, mixing = mixed_channels()
    turn, _ = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(5)))
    straight, turned = planes_table(targets), planes_table(targets)
    descend(ObjectAdam(straight, rotated=("planes",)), targets, mixing, 15)
    descend(ObjectAdam(turned, rotated=("planes",)), targets @ turn, turn.T @ mixing, 15)
    torch.testing.assert_close(turned.tensors["planes"], straight.tensors["planes"] @ turn, rtol=1e-3, atol=1e-3)
    plain = planes_table(targets)
    descend(ObjectAdam(plain), targets @ turn, turn.T @ mixing, 15)
    assert (plain.tensors["planes"] - straight.tensors["planes"] @ turn).abs().max() > 0.05


def test_a_rotated_step_is_what_its_formula_says():
    generator = torch.Generator().manual_seed(3)
    table = ObjectTable(["a", "b", "c"], {"planes": torch.zeros(3, 3, 4, 4, 6)})
    adam = ObjectAdam(table, betas=(0.5, 0.9), rotated=("planes",))
    value, first, second, covariance = (torch.zeros(shape, dtype=torch.float64) for shape in ((48, 6),) * 3 + ((6, 6),))
    for step in range(1, 8):
        gradient = torch.randn(2, 3, 4, 4, 6, generator=generator)
        adam.step("planes", torch.tensor([2, 0]), gradient, 0.1)
        own = gradient[0].double().view(48, 6)
        covariance = 0.9 * covariance + 0.1 * own.T @ own
        axes = torch.linalg.eigh(covariance)[1]
        first = 0.5 * first + 0.5 * own
        second = 0.9 * second + 0.1 * (own @ axes).square()
        move = (first @ axes) / (1 - 0.5**step) / ((second / (1 - 0.9**step)).sqrt() + 1e-8)
        value = value - 0.1 * move @ axes.T
    torch.testing.assert_close(table.tensors["planes"][2].view(48, 6).double(), value, rtol=1e-3, atol=1e-4)
    assert torch.equal(table.tensors["planes"][1], torch.zeros(3, 4, 4, 6))


def test_rotated_state_is_put_back_whole_or_not_at_all():
    targets, mixing = mixed_channels()
    straight = ObjectAdam(planes_table(targets), rotated=("planes",))
    descend(straight, targets, mixing, 12)
    first = ObjectAdam(planes_table(targets), rotated=("planes",))
    descend(first, targets, mixing, 7)
    states = {name: {key: value.clone() for key, value in first.state(name).items()} for name in "ab"}
    assert states["a"]["planes.covariance"].shape == (4, 4)
    second = ObjectAdam(ObjectTable(["a", "b"], {"planes": first.table.tensors["planes"].clone()}), rotated=("planes",))
    for name in "ab":
        second.load_state(name, states[name])
    descend(second, targets, mixing, 5)
    assert torch.equal(second.table.tensors["planes"], straight.table.tensors["planes"])
    older = {key: value for key, value in states["a"].items() if not key.endswith(".covariance")}
    third = ObjectAdam(planes_table(targets), rotated=("planes",))
    for damaged in (older, {**states["a"], "planes.covariance": torch.zeros(3, 3)}):
        with pytest.raises(DataError, match="do not fit"):
            third.load_state("a", damaged)
