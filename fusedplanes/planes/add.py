"""New objects for a trained class: fitted from images in memory, or added to a run folder.

Objects are trained in groups and a group is stored as soon as it is done, so an interruption costs at most one group;
adding again passes over what is stored already.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import ConfigError, DataError, first_few, shown
from fusedplanes.fields import ObjectPlanes
from fusedplanes.multiview import MultiViewDataset
from fusedplanes.planes.config import FIT_SHARE, FitMode, RunConfig
from fusedplanes.planes.evaluate import Quality, evaluate
from fusedplanes.planes.model import PlanesModel, SharedParts, batched
from fusedplanes.planes.run_folder import (
    FINISHED,
    STAGE_ONE_OBJECTS,
    data_licences,
    finished_checkpoint,
    note_data_licences,
    read_config,
    read_shared,
    shell_folders,
    stage_one_objects,
    training_size,
)
from fusedplanes.planes.stage_one import DATA_DIGEST
from fusedplanes.planes.stage_two import StageTwo, check_mode, stage_two_config
from fusedplanes.planes.views import TrainingViews
from fusedplanes.training.checkpoint import save_checkpoint
from fusedplanes.training.log import TrainingLog
from fusedplanes.training.loop import TrainingInterrupted, run_phase
from fusedplanes.training.object_store import ObjectStore

GROUP = 64
"""Objects that are trained together and stored together."""
COMPARED = 8
"""Objects that are there before whose images are compared with those they were trained on: reading all takes long."""


@dataclass(frozen=True)
class AddSummary:
    """What `add` reports.

    Attributes:
        run: the run folder.
        added: ids that were added, in order.
        skipped: ids that were stored before, from the same images as far as the first ``COMPARED`` tell.
        seconds: training time.
        steps_per_object: how often each new object was in a batch, on average.
        old_before, old_after: quality of the objects of before on their held-out views, where the shared parts were
            trained on; None where they are frozen and nothing can have changed.
    """

    run: str
    added: tuple[str, ...]
    skipped: tuple[str, ...]
    seconds: float
    steps_per_object: float
    old_before: Quality | None = None
    old_after: Quality | None = None

    def to_json(self) -> dict:
        """The summary as plain values."""
        return asdict(self)

    def text(self) -> str:
        """One line for people."""
        per_object = self.seconds / max(len(self.added), 1)
        line = f"{self.run}: {len(self.added)} objects added in {self.seconds:.0f} s ({per_object:.1f} s per object)"
        if self.skipped:
            line += f"; {len(self.skipped)} were there before ({first_few(self.skipped)})"
        if self.old_before is None:
            return line + "; the objects of before are untouched"
        change = self.old_after.psnr_foreground - self.old_before.psnr_foreground
        return line + (
            f"; the objects of before went from {self.old_before.psnr_foreground:.2f} to "
            f"{self.old_after.psnr_foreground:.2f} dB foreground PSNR ({change:+.2f})"
        )


def fit(
    model: PlanesModel,
    images: Tensor,
    cameras: Cameras,
    *,
    mode: FitMode = "weights+micro",
    share: float = FIT_SHARE,
    seed: int = 0,
) -> ObjectPlanes:
    """Fit one new object to a trained class; the model itself does not change. See `PlanesModel.fit`."""
    _check_share(share)
    check_mode(mode)
    if type(seed) is not int:
        raise ConfigError(f"seed {shown(seed)}: choose a whole number from 0")
    try:
        images = torch.as_tensor(images)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"images: {type(images).__name__}; expected a tensor or an array of floats") from error
    cameras, _ = batched(cameras, torch.device("cpu"))
    if images.dim() != 4 or images.shape[-1] not in (3, 4) or not images.is_floating_point():
        raise DataError(f"images: {images.dtype} of shape {tuple(images.shape)}; expected floats [V, H, W, 3 or 4]")
    if not bool(torch.isfinite(images).all()):
        raise DataError("images: some values are not finite; mend them, or leave those views out")
    if not bool(((images >= 0) & (images <= 1)).all()):
        raise DataError("images: values outside [0, 1]; divide bytes by 255")
    if tuple(images.shape[:3]) != (*cameras.batch_shape, cameras.height, cameras.width) or len(images) == 0:
        raise DataError(
            f"images: {tuple(images.shape[:3])} views, height and width, but the cameras are "
            f"{(*cameras.batch_shape, cameras.height, cameras.width)}; expected the same, and at least one view"
        )
    views = TrainingViews.of_images(["object"], [images.float().cpu()], [cameras])
    _check_size(model.image_size, views)
    old = model.stage_one_objects or len(model.store)
    stage = _stage(model.config, model.shared, model.store, views, mode, share, seed, model.device, old=old)
    for phase in stage.phases:
        stage.prepare(phase.name)
        for step in range(phase.steps):
            phase.step(step)
    return stage.object_planes("object")


def add(
    run: str | Path,
    dataset: MultiViewDataset,
    *,
    mode: FitMode = "weights+micro",
    share: float = FIT_SHARE,
    finetune_base: bool = False,
    check_on: MultiViewDataset | None = None,
    device: str | torch.device = "cpu",
    seed: int = 0,
    quiet: bool = False,
) -> AddSummary:
    """Add a data set's objects to a finished run.

    Base planes, field decoder and autoencoder are frozen, so objects of before cannot change.

    Args:
        run: the run folder.
        dataset: the new objects; those that are stored already are passed over.
        mode: "weights" stores a mix of base planes only, "weights+micro" micro planes too.
        share: steps of each object, as a share of those that stage 1 gave its own.
        finetune_base: train the shared parts on with the new objects, as published. Old objects go stale to some
            degree; ``check_on`` tells how much.
        check_on: with ``finetune_base``, the data set of the old objects, which are measured before and after.
        device: where training runs.
        seed: of every random choice.
        quiet: no progress on standard error.

    Returns:
        What was added, and what it cost the objects of before.

    Raises:
        CheckpointError: no finished run, or it cannot be written to.
        ConfigError: ``mode`` or ``share`` is out of range.
        DataError: images of another size than the run's, no views, or an object whose id is stored, from other images.
        TrainingInterrupted: Ctrl-C; groups that were done are stored.

    Example:
        >>> add("runs/cars", fusedplanes.datasets.load("more_cars")).added  # doctest: +SKIP
        ('car_100', 'car_101')
    """
    _check_share(share)
    check_mode(mode)
    run, config = Path(run), read_config(run)
    config = replace(config, training=replace(config.training, seed=seed))
    checkpoint = finished_checkpoint(run)
    with contextlib.closing(checkpoint.store(writable=True)) as store:
        skipped = tuple(name for name in dataset.ids if name in store)
        new = [name for name in dataset.ids if name not in store]
        old = list(store.ids)
        _check_stored(run, store, dataset, skipped)
        if new:
            note_data_licences(run, data_licences(dataset))
        shared = read_shared(config, checkpoint).to(device).eval()
        before = _quality(config, shared, store, check_on, old) if finetune_base and new else None
        size = len(new) if finetune_base else GROUP
        added: list[str] = []
        seconds, visits = 0.0, 0.0
        metadata = {**checkpoint.metadata, STAGE_ONE_OBJECTS: stage_one_objects(checkpoint, store)}
        with contextlib.closing(TrainingLog(run / "log.jsonl")) as log:
            for first in range(0, len(new), max(size, 1)):
                names = new[first : first + size]
                views = TrainingViews.read([dataset[name] for name in names])
                _check_size(training_size(run), views)
                stage = _stage(
                    config,
                    shared,
                    store,
                    views,
                    mode,
                    share,
                    seed,
                    device,
                    old=metadata[STAGE_ONE_OBJECTS],
                    train_shared=finetune_base,
                )
                start = time.perf_counter()
                try:
                    _train(stage, log, quiet)
                except TrainingInterrupted as stop:
                    again = f"fusedplanes add {shlex.quote(str(run))} {shell_folders(dataset)}"
                    message = f"stopped; {len(added)} of {len(new)} new objects are stored; go on with: {again}"
                    raise TrainingInterrupted(message, stop.phase, stop.step, stop.exit_status) from None
                seconds += time.perf_counter() - start
                visits += sum(phase.steps * _batch_size(stage, phase.name) for phase in stage.phases)
                save_checkpoint(
                    run,
                    store,
                    phase=FINISHED,
                    step=checkpoint.step,
                    shared=shared.state_dict(),
                    table=stage.table,
                    metadata=metadata,
                )
                added += names
        after = _quality(config, shared, store, check_on, old) if before is not None else None
    return AddSummary(str(run), tuple(added), skipped, seconds, visits / max(len(added), 1), before, after)


def _check_share(share: float) -> None:
    if not 0 < share <= 100:
        raise ConfigError(f"share {shown(share)}: choose a number above 0 and up to 100, such as {FIT_SHARE}")


def _batch_size(stage: StageTwo, phase: str) -> int:
    """Objects in a batch of a phase."""
    training = stage.config.training
    chosen = training.warm_up if phase == "warm-up" else training.joint
    return min(chosen.objects_per_batch, len(stage.table))


def _stage(
    config: RunConfig,
    shared: SharedParts,
    store: ObjectStore,
    views: TrainingViews,
    mode: FitMode,
    share: float,
    seed: int,
    device: str | torch.device,
    *,
    old: int,
    train_shared: bool = False,
) -> StageTwo:
    known = store.ids
    if not known:
        raise DataError("the model has no object yet that could tell what weights are likely; train it first")
    weights = torch.stack([record["weights"].float() for record in store.read_many(known).values()])
    config = replace(config, training=replace(config.training, seed=seed))
    config = stage_two_config(config, old=old, new=len(views), share=share, train_shared=train_shared)
    return StageTwo(config, views, shared=shared, known=weights, mode=mode, device=device)


def _check_size(size: tuple[int, int] | None, views: TrainingViews) -> None:
    """Latent cells of another size of image show another part of the object."""
    width, height = size or views.size
    if views.size != (width, height):
        raise DataError(
            f"images of {views.size[0]}x{views.size[1]} pixels; this run was trained on {width}x{height}; "
            f"resample them with --size {max(width, height)}"
        )


def _check_stored(run: Path, store: ObjectStore, dataset: MultiViewDataset, ids: Sequence[str]) -> None:
    """Two objects of one name would be taken for one: objects to be passed over must be the same as the stored ones.

    Records of older releases do not tell.
    """
    for name in ids[:COMPARED]:
        known = store.read(name).get(DATA_DIGEST)
        if known is None:
            continue
        views = TrainingViews.read([dataset[name]])
        _check_size(training_size(run), views)
        if not torch.equal(known, views.digests()[0]):
            raise DataError(
                f"{run}: has an object '{name}' from other images or cameras; to fit it anew, delete it first with "
                f"`fusedplanes objects delete`; if it is another object, rename its folder"
            )


def _train(stage: StageTwo, log: TrainingLog, quiet: bool) -> None:
    for phase in stage.phases:
        stage.prepare(phase.name)
        run_phase(f"add {phase.name}", phase.steps, phase.step, log=log, quiet=quiet)
    stage.object_adam.drop(stage.table.ids)


def _quality(
    config: RunConfig, shared: SharedParts, store: ObjectStore, dataset: MultiViewDataset | None, ids: Sequence[str]
) -> Quality | None:
    if dataset is None:
        return None
    return evaluate(PlanesModel(config, shared, store), dataset, only=ids).average
