"""Training views of a class, ready to be sampled: cameras, coverage and target values per object.

Everything random here comes from a generator the caller seeds from (run seed, phase, step), so that a resumed run draws
what an uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError
from fusedplanes.images import composite_over, with_alpha
from fusedplanes.multiview import MultiViewDataset, classes_of
from fusedplanes.rays import Rays, intersect_box


@dataclass
class TrainingViews:
    """The training views of every object, images as bytes.

    Attributes:
        ids: object ids, in the data set's order.
        images: per object ``[V, H, W, 4]`` uint8, straight alpha.
        cameras: per object ``V`` cameras of the images' size.
        world_from_source: per object ``[4, 4]``.
        classes: per object the name of its class; empty where there is only one.
    """

    ids: list[str]
    images: list[Tensor]
    cameras: list[Cameras]
    world_from_source: list[Tensor]
    classes: list[str]

    @classmethod
    def of_images(cls, ids: list[str], images: list[Tensor], cameras: list[Cameras]) -> TrainingViews:
        """Views that are in memory: per object ``[V, H, W, 3 or 4]`` in [0, 1], and ``V`` cameras."""
        placed = [torch.eye(4, dtype=torch.float32) for _ in ids]
        return cls(ids, [_bytes(item) for item in images], cameras, placed, ["" for _ in ids])

    @classmethod
    def read(cls, dataset: MultiViewDataset, *, split: str = "train") -> TrainingViews:
        """Load one split of every object.

        Raises:
            DataError: no objects, an object without views in the split, or objects of different image sizes.
        """
        views, classes = cls([], [], [], [], []), classes_of(dataset)
        for item in dataset:
            chosen = item.views(split)
            if len(chosen.split) == 0:
                raise DataError(f"object '{item.id}': no view in split '{split}'")
            views.ids.append(item.id)
            views.images.append(_bytes(chosen.images))
            views.cameras.append(chosen.cameras.to(torch.float32))
            views.world_from_source.append(item.world_from_source)
            views.classes.append(classes.get(item.id, ""))
        if not views.ids:
            raise DataError("data set: it holds no objects")
        sizes = {(camera.width, camera.height) for camera in views.cameras}
        if len(sizes) > 1:
            raise DataError(f"data set: objects have different image sizes {sorted(sizes)}; make them one size")
        return views

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, count: int) -> TrainingViews:
        """Only the first ``count`` objects."""
        return TrainingViews(
            self.ids[:count],
            self.images[:count],
            self.cameras[:count],
            self.world_from_source[:count],
            self.classes[:count],
        )

    def signature(self) -> str:
        """A digest of ids, images and cameras: two data sets with the same one train the same model."""
        digest = hashlib.sha256()
        for name, images, cameras in zip(self.ids, self.images, self.cameras, strict=True):
            digest.update(f"{name}:{tuple(images.shape)}:".encode())
            for tensor in (images, cameras.camera_to_world, cameras.intrinsics):
                digest.update(tensor.contiguous().numpy())
        if len(set(self.classes)) > 1:
            digest.update("\0".join(self.classes).encode())
        return digest.hexdigest()

    def digests(self) -> Tensor:
        """``[N, 8]`` uint8: of each object's images, and of its cameras to a hundredth of a unit or pixel.

        Cameras are rounded because another processor may normalise them to other last bits.
        """
        rows = []
        for images, cameras in zip(self.images, self.cameras, strict=True):
            digest = hashlib.sha256(f"{tuple(images.shape)}:".encode())
            digest.update(images.contiguous().numpy())
            for tensor in (cameras.camera_to_world, cameras.intrinsics):
                digest.update((tensor.double() * 100).round().long().contiguous().numpy())
            rows.append(list(digest.digest()[:8]))
        return torch.tensor(rows, dtype=torch.uint8)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of every image in pixels."""
        return self.cameras[0].width, self.cameras[0].height

    def colors(self, index: int, chosen: Tensor, background: Tensor) -> Tensor:
        """Views ``chosen`` of an object over a background colour, ``[n, H, W, 3]`` float32."""
        return composite_over(self.images[index][chosen].float() / 255, background)


def _bytes(images: Tensor) -> Tensor:
    """``[V, H, W, 3 or 4]`` in [0, 1] as RGBA bytes."""
    return (with_alpha(images) * 255 + 0.5).to(torch.uint8)


def shift_views(images: Tensor, cameras: Cameras, limit: int, generator: torch.Generator) -> tuple[Tensor, Cameras]:
    """Move each view by up to ``limit`` whole pixels along both axes, with the principal point of its camera.

    What enters at the border is transparent: objects are never cut by the frame.

    Args:
        images: ``[n, H, W, 4]`` uint8, straight alpha.
        cameras: ``n`` cameras.
        limit: largest move in pixels.
    """
    count, height, width, _ = images.shape
    moves = torch.randint(-limit, limit + 1, (count, 2), generator=generator)
    padded = torch.nn.functional.pad(images, (0, 0, limit, limit, limit, limit))
    tops, lefts = (limit - moves[:, 1]).tolist(), (limit - moves[:, 0]).tolist()
    crops = zip(padded, tops, lefts, strict=True)
    shifted = torch.stack([view[top : top + height, left : left + width] for view, top, left in crops])
    intrinsics = cameras.intrinsics.clone()
    intrinsics[:, :2, 2] += moves
    return shifted, replace(cameras, intrinsics=intrinsics)


@dataclass
class RayTargets:
    """What random rays are trained against: a grid of target values per view, at image or latent resolution.

    Attributes:
        cameras: per object ``V`` cameras of the grid's size.
        values: per object ``[V, h*w, K]``; uint8 RGBA bytes for colours, floats for latents.
        covered: per object ``[V, h*w]`` bool: the cell shows some of the object.
        background: ``[h*w, K]`` or ``[K]`` values behind the object.
    """

    cameras: list[Cameras]
    values: list[Tensor]
    covered: list[Tensor]
    background: Tensor

    @classmethod
    def colors(cls, views: TrainingViews, background: Tensor) -> RayTargets:
        """Rays through the pixels of the images themselves."""
        return cls(
            views.cameras,
            [images.flatten(1, 2) for images in views.images],
            [images[..., 3].flatten(1) > 0 for images in views.images],
            background,
        )

    @classmethod
    def latents(cls, views: TrainingViews, latents: list[Tensor], background: Tensor, factor: int) -> RayTargets:
        """Rays through the cells of standardised latent images ``[V, h, w, c]``; ``background`` is ``[h, w, c]``."""
        width, height = views.size
        covered = []
        for images in views.images:
            cells = torch.nn.functional.max_pool2d(images[:, None, :, :, 3].float(), factor)
            covered.append(cells.flatten(1) > 0)
        return cls(
            [cameras.resized(width // factor, height // factor) for cameras in views.cameras],
            [values.flatten(1, 2) for values in latents],
            covered,
            background.flatten(0, 1),
        )

    def sample(
        self, objects: list[int], count: int, foreground: float, generator: torch.Generator
    ) -> tuple[Rays, Tensor, Tensor]:
        """Random rays of several objects.

        Args:
            objects: B indices.
            count: R rays of each.
            foreground: fraction that is to start on the object, as far as three times as many draws find it.

        Returns:
            Rays ``[B, R]``, target values ``[B, R, K]`` and the values behind the object ``[B, R, K]``.
        """
        parts = [self._sample_object(index, count, foreground, generator) for index in objects]
        origins, directions, values, background = (torch.stack(items) for items in zip(*parts, strict=True))
        near, far = intersect_box(origins, directions)
        return Rays(origins, directions, near, far), values, background

    def _sample_object(self, index: int, count: int, foreground: float, generator: torch.Generator):
        cameras, covered = self.cameras[index], self.covered[index]
        cells = covered.shape[1]
        candidates = torch.randint(covered.numel(), (3 * count,), generator=generator)
        on_object = covered.flatten()[candidates]
        # Candidates on the object first, as many as wanted; the rest in the order they were drawn.
        wanted = on_object & (on_object.cumsum(0) <= round(foreground * count))
        order = torch.argsort(wanted.logical_not().to(torch.uint8), stable=True)
        chosen = candidates[order[:count]]
        view, cell = chosen // cells, chosen % cells
        u = (cell % cameras.width).float() + 0.5
        v = (cell // cameras.width).float() + 0.5
        k, c2w = cameras.intrinsics[view], cameras.camera_to_world[view]
        y = (v - k[:, 1, 2]) / k[:, 1, 1]
        x = (u - k[:, 0, 2] - k[:, 0, 1] * y) / k[:, 0, 0]
        directions = (c2w[:, :3, :3] @ torch.stack([x, y, torch.ones_like(x)], -1)[..., None])[..., 0]
        directions = torch.nn.functional.normalize(directions, dim=-1)
        values = self.values[index].flatten(0, 1)[chosen]
        background = self.background[cell] if self.background.dim() == 2 else self.background.expand(count, -1)
        if values.dtype == torch.uint8:
            values = composite_over(values.float() / 255, background)
        return c2w[:, :3, 3], directions, values.float(), background
