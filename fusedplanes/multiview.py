"""Posed images of one object, and a collection of such objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from fusedplanes.cameras import Cameras
from fusedplanes.errors import DataError


@dataclass(frozen=True)
class MultiViewObject:
    """Views of one object.

    Attributes:
        id: name, unique in its data set.
        images: ``[V, H, W, 3 or 4]`` float32 in [0, 1], sRGB; a fourth channel is straight alpha.
        cameras: ``V`` cameras of the same size.
        split: one of "train" or "test" per view.
        depth: optional ``[V, H, W]`` camera-z depth in world units, 0 where nothing is hit.
        world_from_source: ``[4, 4]`` similarity from the source file's coordinates to the world; exports undo it.
    """

    id: str
    images: Tensor
    cameras: Cameras
    split: tuple[str, ...]
    depth: Tensor | None = None
    world_from_source: Tensor = field(default_factory=lambda: torch.eye(4, dtype=torch.float32))

    def __post_init__(self) -> None:
        views, height, width, channels = self.images.shape
        if channels not in (3, 4):
            raise DataError(f"object '{self.id}': images have {channels} channels; expected 3 (RGB) or 4 (RGBA)")
        if (len(self.cameras), self.cameras.height, self.cameras.width) != (views, height, width):
            raise DataError(
                f"object '{self.id}': {views} images of {width}x{height} but {len(self.cameras)} cameras of "
                f"{self.cameras.width}x{self.cameras.height}"
            )
        if len(self.split) != views:
            raise DataError(f"object '{self.id}': {len(self.split)} split entries for {views} views")

    def views(self, split: str) -> MultiViewObject:
        """Only the views of one split, in order."""
        index = torch.tensor([i for i, name in enumerate(self.split) if name == split], dtype=torch.long)
        return MultiViewObject(
            self.id,
            self.images[index],
            self.cameras[index],
            tuple(self.split[i] for i in index.tolist()),
            None if self.depth is None else self.depth[index],
            self.world_from_source,
        )

    @property
    def alpha(self) -> Tensor:
        """``[V, H, W]`` coverage: the alpha channel, or ones where the images are opaque."""
        return self.images[..., 3] if self.images.shape[-1] == 4 else torch.ones_like(self.images[..., 0])


class MultiViewDataset(Protocol):
    """Objects in a fixed order, loaded when asked for. Implemented by `fusedplanes.datasets`.

    A data set on disk also has ``paths``, its folders; ``licences``, by folder name what its images may be used for;
    and ``classes``, by object id the name of the folder the object comes from.
    """

    ids: Sequence[str]

    def __len__(self) -> int: ...

    def __getitem__(self, key: int | str) -> MultiViewObject: ...

    def __iter__(self) -> Iterator[MultiViewObject]: ...


def classes_of(dataset: MultiViewDataset) -> Mapping[str, str]:
    """By object id, the name of its class; empty where the data set knows no classes."""
    return getattr(dataset, "classes", {})
