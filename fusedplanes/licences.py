"""The licence of every weight file and data set that a command or the documentation names, and records of their use.

What is not in the table has an unknown licence: nothing here is guessed. Weights whose licence restricts what they may
be used for, or is unknown, are only used by someone who says that they accept it. What was used follows everything that
is made with it, as a tuple of `LicenceRecord`, from a run's config.json into every file that is exported.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fusedplanes.errors import CheckpointError, ConfigError, shown

Kind = Literal["weights", "data"]
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Asset:
    """Something of other people's, or of ours, that a command can use.

    Attributes:
        name: hub id of weights; the documentation's name for data.
        kind: "weights" or "data".
        licence: its SPDX identifier, or its own name where it has none.
        restricted: whether the licence restricts use, beyond keeping its text.
        brought_by: the command that uses it.
    """

    name: str
    kind: Kind
    licence: str
    restricted: bool
    brought_by: str

    @property
    def free(self) -> bool:
        """Whether it is known to be usable for anything."""
        return not self.restricted and self.licence != UNKNOWN


def _weights(name: str, licence: str, *, restricted: bool = False) -> Asset:
    return Asset(name, "weights", licence, restricted, "`train --autoencoder`")


ASSETS = (
    Asset("procedural classes", "data", "CC0-1.0", False, "`data make`, `demo`"),
    Asset("Debian's sweethome3d-furniture (BlendSwap-CC-0.sh3f)", "data", "CC0-1.0", False, "`data from-meshes`"),
    Asset(
        "cars, chairs and food by Kenney, Kay Lousberg and others",
        "data",
        "CC0-1.0",
        False,
        "`benchmarks/real_cars.py`, `several_classes.py`",
    ),
    Asset("ShapeNet renders", "data", "ShapeNet terms: non-commercial research and teaching", True, "`train`"),
    Asset("NeRF-synthetic scenes", "data", UNKNOWN, False, "`train`"),
    Asset("your own meshes and captures", "data", UNKNOWN, False, "`data from-meshes --licence`, `train`"),
    _weights("stable-diffusion-v1-5/stable-diffusion-v1-5", "CreativeML OpenRAIL-M", restricted=True),
    _weights("stabilityai/sd-vae-ft-mse", "MIT"),
    _weights("stabilityai/sdxl-vae", "MIT"),
    _weights("madebyollin/sdxl-vae-fp16-fix", "MIT"),
    _weights("madebyollin/taesd", "MIT"),
    _weights("a local folder, or any other hub id", UNKNOWN),
)
"""Licences as far as the authors know them; whoever uses weights or data has to look for themselves."""


def weights_licence(hub_id: str | None) -> Asset:
    """What is known of published weights.

    Args:
        hub_id: ``owner/name``; None for a local folder, which may carry any licence.

    Example:
        >>> weights_licence("madebyollin/taesd").licence, weights_licence(None).licence
        ('MIT', 'unknown')
    """
    known = {asset.name: asset for asset in ASSETS if asset.kind == "weights"}
    return known.get(hub_id) or _weights(hub_id or "local folder", UNKNOWN)


def require_acceptance(source: str, asset: Asset, *, accepted: bool) -> None:
    """Stop before weights are used whose licence nobody has accepted.

    Args:
        source: what the user wrote.
        asset: what is known of it.
        accepted: whether the user accepts the licence.

    Raises:
        ConfigError: the licence restricts use or is unknown, and is not accepted.
    """
    if asset.free or accepted:
        return
    licence = "is unknown here" if asset.licence == UNKNOWN else f"is {asset.licence}, which restricts use"
    raise ConfigError(
        f"{source}: the licence of these weights {licence}; read it where you got them and, if you accept it, "
        "repeat with --accept-licence (from Python: accept_licence=True)"
    )


@dataclass(frozen=True)
class LicenceRecord:
    """That something was used for a run.

    Attributes:
        kind: "weights" or "data".
        name: hub id, or name of a folder; never its path, which is nobody else's business.
        licence: as it was known then.
        accepted: whether the user said that they accept it; only weights that are not free ask.
    """

    kind: Kind
    name: str
    licence: str
    accepted: bool = False


def united(*groups: Iterable[LicenceRecord]) -> tuple[LicenceRecord, ...]:
    """Records without repetitions, in order."""
    return tuple(dict.fromkeys(record for group in groups for record in group))


def records_to_json(records: Iterable[LicenceRecord]) -> list[dict]:
    """Records as plain JSON values."""
    return [dataclasses.asdict(record) for record in records]


def records_from_json(value: object, where: str) -> tuple[LicenceRecord, ...]:
    """Rebuild records from `records_to_json`.

    Args:
        where: file and field, for messages.

    Raises:
        CheckpointError: it is no list of records.
    """
    records = []
    for item in value if isinstance(value, list) else [value]:
        match item:
            case {
                "kind": "weights" | "data" as kind,
                "name": str(name),
                "licence": str(licence),
                "accepted": bool(yes),
            }:
                records.append(LicenceRecord(kind, name, licence, yes))
            case _:
                raise CheckpointError(f"{where}: {shown(item)} records no licence; restore the file")
    return tuple(records)


def records_text(records: Iterable[LicenceRecord]) -> str:
    """Records as one line of ASCII JSON, for the metadata of other formats."""
    return json.dumps(records_to_json(records))


def table() -> str:
    """The table of the README, in Markdown."""
    lines = ["| | kind | licence | used by | asks for `--accept-licence` |", "|---|---|---|---|---|"]
    for asset in ASSETS:
        asks = "yes" if asset.kind == "weights" and not asset.free else ""
        lines.append(f"| {asset.name} | {asset.kind} | {asset.licence} | {asset.brought_by} | {asks} |")
    return "\n".join(lines) + "\n"
