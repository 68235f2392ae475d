"""Adam for collections of objects of which a step sees only a few.

Torch's optimisers treat a table of a thousand objects as one parameter: each step moves all of them, by momentum, and
touches all of their moments. Here a step costs what its batch costs. Every object is its own parameter with its own
step count, so one that is met rarely is corrected for bias as if it had been trained alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

from fusedplanes.errors import DataError

FIRST, SECOND, STEPS = ".first_moment", ".second_moment", ".steps"
COVARIANCE = ".covariance"


COVARIANCE_DECAY = 0.9
"""Of the gradients' covariance per step: axes have to follow an object that changes fast."""


class ObjectTable:
    """Tensors that every object has one of, stacked with the objects as rows.

    Args:
        ids: one id per row, each once.
        tensors: by name, ``[N, ...]``; they become the table's storage, without a copy.

    Attributes:
        ids: id of every row.
        tensors: by name, ``[N, ...]``. After writing to them, tell `mark` which rows were touched.
        dirty: rows that changed since they were last saved; all of them at first.

    Raises:
        DataError: ids that repeat, or tensors with another number of rows than there are ids.

    Example:
        >>> table = ObjectTable(["a", "b"], {"weights": torch.zeros(2, 5)})
        >>> table.rows(["b"]), table.record("b")["weights"].shape
        (tensor([1]), torch.Size([5]))
    """

    def __init__(self, ids: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
        self.ids: list[str] = []
        self.tensors: dict[str, Tensor] = {}
        self.dirty: set[int] = set()
        self._rows: dict[str, int] = {}
        self.append(ids, tensors)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id: str) -> bool:
        return id in self._rows

    def append(self, ids: Sequence[str], tensors: Mapping[str, Tensor]) -> Tensor:
        """Add objects as new rows and return their row numbers ``[K]``.

        The table is copied into a larger one: add many objects at once rather than one at a time.

        Args:
            ids: ids that are not in the table yet.
            tensors: the names the table has, each ``[K, ...]``.
        """
        tensors = {name: tensor.detach() for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            if tensor.dim() == 0 or tensor.shape[0] != len(ids):
                raise DataError(f"object table: '{name}' has shape {tuple(tensor.shape)} for {len(ids)} objects")
        if self.ids:
            expected = {name: tensor.shape[1:] for name, tensor in self.tensors.items()}
            if {name: tensor.shape[1:] for name, tensor in tensors.items()} != expected:
                raise DataError(f"object table: new objects need the tensors {_shapes(expected)}")
        seen = set(self._rows)
        for id in ids:
            if id in seen:
                raise DataError(f"object table: object '{id}' is there twice; ids must differ")
            seen.add(id)
        first = len(self.ids)
        self.ids.extend(ids)
        self._rows.update((id, first + index) for index, id in enumerate(ids))
        self.tensors = {
            name: torch.cat([self.tensors[name], tensor.to(self.tensors[name])]) if first else tensor
            for name, tensor in tensors.items()
        }
        self.dirty.update(range(first, len(self.ids)))
        return torch.arange(first, len(self.ids))

    def rows(self, ids: Iterable[str]) -> Tensor:
        """Row numbers of objects, ``[K]``.

        Raises:
            DataError: an id the table does not hold.
        """
        try:
            return torch.tensor([self._rows[id] for id in ids], dtype=torch.long)
        except KeyError as error:
            raise DataError(f"object table: there is no object '{error.args[0]}' among its {len(self.ids)}") from error

    def record(self, id: str) -> dict[str, Tensor]:
        """One object's tensors by name, as views of the table."""
        row = int(self.rows([id]))
        return {name: tensor[row] for name, tensor in self.tensors.items()}

    def mark(self, rows: Tensor) -> None:
        """Note that rows were written to."""
        self.dirty.update(rows.tolist())


class ObjectAdam:
    """Adam (Kingma and Ba 2015, algorithm 1) on the rows of an `ObjectTable`, each with its own step count.

    An object's moments appear with its first step and can be dropped when it is finished; memory follows the objects in
    training, not the size of the table. The arithmetic is torch's fused Adam: with every object in every batch the
    result equals ``torch.optim.Adam``.

    Channels of a plane are read together by one network, so their gradients are correlated, and a rate for each alone
    fits none. Tensors named in ``rotated`` are therefore moved in the eigenvectors of the covariance of their
    gradients' last axis (SOAP, Vyas et al. 2024, arXiv:2409.11321, for one axis): there the channels are independent.

    Args:
        table: what is optimised, in place.
        betas: decay of the two moments per step.
        epsilon: added to the root of the second moment.
        rotated: tensors whose last axis is rotated; each object has its own rotation.

    Example:
        >>> table = ObjectTable(["a", "b", "c"], {"weights": torch.zeros(3, 2)})
        >>> adam = ObjectAdam(table)
        >>> adam.step("weights", torch.tensor([1]), torch.ones(1, 2), learning_rate=0.1)
        >>> table.tensors["weights"][:, 0]
        tensor([ 0.0000, -0.1000,  0.0000])
    """

    def __init__(
        self,
        table: ObjectTable,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        rotated: Sequence[str] = (),
    ) -> None:
        self.table, self.betas, self.epsilon, self.rotated = table, betas, epsilon, tuple(rotated)
        # Moments live in slots that objects take and give back, so that finished objects leave no hole.
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._state: dict[str, Tensor] = {}
        self._moving: set[str] = set()

    @torch.no_grad()
    def step(self, name: str, rows: Tensor, gradients: Tensor, learning_rate: float) -> None:
        """Move one tensor of the objects in a batch against its gradient.

        Args:
            name: which tensor of the table.
            rows: ``[B]`` row numbers, each once; on the CPU, or the device is waited for.
            gradients: ``[B, ...]``, of any device and float type.
            learning_rate: step size before normalisation.

        Raises:
            DataError: a row twice in one batch, or gradients of another shape than the rows.
        """
        parameter = self.table.tensors[name]
        if gradients.shape != (len(rows), *parameter.shape[1:]):
            raise DataError(
                f"object adam: gradients of '{name}' have shape {tuple(gradients.shape)}; "
                f"expected {(len(rows), *parameter.shape[1:])}"
            )
        numbers = rows.tolist()
        if len(set(numbers)) != len(numbers):
            raise DataError(f"object adam: an object is twice in the batch of rows {numbers}; add its gradients up")
        if parameter.numel() == 0 or not numbers:
            return
        slots = self._slots_of(name, [self.table.ids[row] for row in numbers])
        gradients = gradients.to(parameter)
        parts = [[self._state[name + suffix][slot] for slot in slots] for suffix in (FIRST, SECOND, STEPS)]
        if name in self.rotated:
            self._rotated_step(name, numbers, slots, gradients, parts, learning_rate)
        else:
            self._adam([parameter[row] for row in numbers], list(gradients.unbind()), *parts, learning_rate)
        self.table.dirty.update(numbers)

    def _rotated_step(
        self, name: str, rows: list[int], slots: list[int], gradients: Tensor, parts: list[list[Tensor]], rate: float
    ) -> None:
        """Adam's step of `step`, in the eigenvectors of the covariance of the gradients' last axis.

        Second moments are kept in those axes as they turn; first moments follow the turn.
        """
        flat = gradients.flatten(1, -2)
        covariance = self._state[name + COVARIANCE]
        covariance[slots] = torch.lerp(flat.transpose(1, 2) @ flat, covariance[slots], COVARIANCE_DECAY)
        _, axes = torch.linalg.eigh(covariance[slots])
        first, second, steps = parts
        moved = torch.zeros_like(flat)
        turned = torch.stack(first).view(flat.shape) @ axes
        self._adam(
            list(moved.unbind()),
            list((flat @ axes).unbind()),
            list(turned.unbind()),
            [moment.view(flat.shape[1:]) for moment in second],
            steps,
            rate,
        )
        back = axes.transpose(1, 2)
        for index, (change, moment) in enumerate(zip(moved @ back, turned @ back, strict=True)):
            self.table.tensors[name][rows[index]] += change.view(gradients.shape[1:])
            first[index].copy_(moment.view(gradients.shape[1:]))

    def _adam(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        first: list[Tensor],
        second: list[Tensor],
        steps: list[Tensor],
        learning_rate: float,
    ) -> None:
        adam(
            parameters,
            gradients,
            first,
            second,
            [],
            steps,
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=learning_rate,
            weight_decay=0.0,
            eps=self.epsilon,
            maximize=False,
        )

    def state(self, id: str) -> dict[str, Tensor]:
        """Moments and step counts of one object by name, as views; empty if it has none."""
        if id not in self._slots:
            return {}
        return {name: tensor[self._slots[id]] for name, tensor in self._state.items()}

    def load_state(self, id: str, state: Mapping[str, Tensor]) -> None:
        """Put back what `state` gave.

        Raises:
            DataError: the names or shapes do not belong to this table.
        """
        for name in self.table.tensors:
            parts = {name + suffix: shape for suffix, shape, _ in self._kinds(name)}
            present = [part for part in parts if part in state]
            if not present:
                continue
            if len(present) != len(parts) or any(state[part].shape != shape for part, shape in parts.items()):
                raise DataError(f"object adam: the moments of '{id}' do not fit the table's '{name}'")
            (slot,) = self._slots_of(name, [id])
            for part in parts:
                self._state[part][slot] = state[part]
        unknown = [key for key in state if key not in self._state]
        if unknown:
            raise DataError(f"object adam: the moments of '{id}' name '{unknown[0]}', which the table does not have")

    def drop(self, ids: Iterable[str]) -> None:
        """Forget the moments of finished objects; a later step would start them afresh.

        The objects are marked as changed, so that the next checkpoint forgets the moments too.
        """
        for id in ids:
            slot = self._slots.pop(id, None)
            if slot is not None:
                for tensor in self._state.values():
                    tensor[slot] = 0
                self._free.append(slot)
                self.table.mark(self.table.rows([id]))

    def _kinds(self, name: str) -> list[tuple[str, torch.Size, torch.dtype]]:
        """What is kept of a tensor for each object: suffix, shape and type."""
        parameter = self.table.tensors[name]
        shape, dtype = parameter.shape[1:], parameter.dtype
        kinds = [(FIRST, shape, dtype), (SECOND, shape, dtype), (STEPS, torch.Size([]), torch.float32)]
        if name in self.rotated:
            kinds.append((COVARIANCE, torch.Size([shape[-1], shape[-1]]), dtype))
        return kinds

    def _slots_of(self, name: str, ids: list[str]) -> list[int]:
        for id in ids:
            if id not in self._slots:
                self._slots[id] = self._free.pop() if self._free else len(self._slots)
        self._moving.add(name)
        used = len(self._slots) + len(self._free)
        for name in self._moving:
            parameter = self.table.tensors[name]
            for suffix, shape, dtype in self._kinds(name):
                old = self._state.get(name + suffix, torch.empty(0, *shape, dtype=torch.float32))
                if old.shape[0] < used:
                    # Twice what is used, so that objects which arrive batch by batch are copied a few times, not often.
                    capacity = min(2 * used, max(len(self.table), used))
                    new = torch.zeros(capacity, *shape, device=parameter.device, dtype=dtype)
                    new[: old.shape[0]] = old
                    self._state[name + suffix] = new
        return [self._slots[id] for id in ids]


def _shapes(shapes: Mapping[str, torch.Size]) -> str:
    return ", ".join(f"'{name}' [K, {', '.join(map(str, shape))}]" for name, shape in shapes.items())
