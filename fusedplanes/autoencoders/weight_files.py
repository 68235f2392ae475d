"""Weights of published autoencoders: found in a folder or on the hub, checked against their architecture, then read.

    FOLDER/config.json                                  the autoencoder itself
    FOLDER/diffusion_pytorch_model.safetensors
    FOLDER/vae/...                                      or a pipeline that it belongs to; a hub id likewise

Only JSON and safetensors are read, nothing is unpickled, and no code comes along. Every size that a file states is
compared with what the file holds and with what the architecture asks for before a tensor is made of it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fusedplanes.autoencoders.pretrained import (
    PretrainedAutoencoder,
    PretrainedAutoencoderConfig,
    architecture_from_json,
)
from fusedplanes.errors import ConfigError, DataError, shown
from fusedplanes.files import check_readable, read_json
from fusedplanes.licences import require_acceptance, weights_licence

CONFIG, WEIGHTS, SUBFOLDER = "config.json", "diffusion_pytorch_model.safetensors", "vae"
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
MOST_CONFIG_BYTES = 1 << 20
MOST_HEADER_BYTES = 16 << 20
FLOAT_BYTES = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}
OLD_NAMES = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
"""Names of the attention's layers in files of before 2023, Stable Diffusion 1.5's among them, and those of today."""


@dataclass(frozen=True)
class WeightFiles:
    """Where the two files of an autoencoder lie on this machine, and which commit of the hub they are."""

    config: Path
    weights: Path
    revision: str | None = None


def open_pretrained(
    source: str | Path, *, revision: str | None = None, accept_licence: bool = False
) -> PretrainedAutoencoderConfig:
    """Describe a published autoencoder, for `fusedplanes.with_autoencoder`; its files are checked and not yet read.

    Args:
        source: a local folder, or a hub id (``owner/name``), of the autoencoder or of a pipeline with a ``vae`` folder.
            What is on the hub is downloaded to its usual cache.
        revision: branch, tag or commit on the hub; its main branch if not given.
        accept_licence: say that you accept the licence of the weights. Needed where it restricts use or is not known;
            see the table in `fusedplanes.licences`.

    Raises:
        ConfigError: the licence is not accepted, diffusers is not installed, or the architecture is not supported.
        DataError: no such folder, files missing or damaged, tensors that do not fit config.json, or no answer from the
            hub.

    Example:
        >>> space = open_pretrained("madebyollin/taesd")  # doctest: +SKIP
        >>> space.downscale, space.latent_channels  # doctest: +SKIP
        (8, 4)
    """
    source = resolved_source(source)
    asset = weights_licence(None if Path(source).is_dir() else source)
    require_acceptance(source, asset, accepted=accept_licence)
    files = find_files(source, revision)
    try:
        architecture = architecture_from_json(read_json(files.config, max_bytes=MOST_CONFIG_BYTES))
    except ConfigError as error:
        raise ConfigError(f"{files.config}: {error}") from error
    config = PretrainedAutoencoderConfig(
        architecture, source, files.revision, asset.licence, accept_licence and not asset.free
    )
    _check_tensors(files.weights, config)
    return config


def load_weights(autoencoder: PretrainedAutoencoder) -> None:
    """Set an autoencoder to the published weights of its source, as float32.

    Raises:
        DataError: files missing, damaged or with values that are not finite, tensors that do not fit the architecture,
            or no answer from the hub.
    """
    from safetensors import SafetensorError, safe_open

    config = autoencoder.config
    path = find_files(config.source, config.revision).weights
    names = _check_tensors(path, config)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {names[name]: file.get_tensor(name).float() for name in names}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a safetensors file ({error}); get it again") from error
    broken = next((name for name, value in tensors.items() if not bool(torch.isfinite(value).all())), None)
    if broken:
        raise DataError(f"{path}: tensor '{broken}' has values that are not finite; get it again")
    autoencoder.load_state_dict(tensors)


def resolved_source(source: str | Path) -> str:
    """A source as it is recorded: the whole path of a local folder, or a hub id.

    Raises:
        DataError: it is neither.
    """
    folder = Path(source).expanduser()
    if str(source) and folder.is_dir():
        return str(folder.resolve())
    if not HUB_ID.fullmatch(str(source)):
        raise DataError(f"{source}: no such folder, and no hub id (owner/name)")
    if folder.parent.is_dir() and folder.parent != Path("."):
        # A hub's owner is rarely the name of a folder here: more likely the path is mistyped.
        raise DataError(
            f"{source}: no such folder in {folder.parent}; mend the path, or for a hub id leave this folder"
        )
    return str(source)


# Finding --------------------------------------------------------------------------------------------------------------


def find_files(source: str, revision: str | None = None) -> WeightFiles:
    """The files of a local folder or of a hub id, which are downloaded if they are not in its cache.

    Raises:
        ConfigError: a hub id, and diffusers (which brings the hub's client) is not installed.
        DataError: it is neither, a file is missing, or the hub does not answer.
    """
    source = resolved_source(source)
    return _local_files(Path(source)) if Path(source).is_dir() else _hub_files(source, revision)


def _local_files(folder: Path) -> WeightFiles:
    place = next((item for item in (folder, folder / SUBFOLDER) if (item / CONFIG).is_file()), None)
    if place is None:
        raise DataError(f"{folder}: no {CONFIG} here or in {SUBFOLDER}/; name a diffusers autoencoder or pipeline")
    if not (place / WEIGHTS).is_file():
        pickled = next((item.name for item in sorted(place.glob("*.bin"))), None)
        if pickled:
            raise DataError(
                f"{place / pickled}: is a pickle, which could run code, and is not read; save it as {WEIGHTS} "
                "(save_pretrained with safe_serialization) beside it"
            )
        raise DataError(f"{place}: holds no {WEIGHTS}; it is the one file of weights that is read")
    return WeightFiles(place / CONFIG, place / WEIGHTS)


def _hub_files(hub_id: str, revision: str | None) -> WeightFiles:
    config, cached_only = None, False
    for subfolder in (None, SUBFOLDER):
        try:
            config = _download(hub_id, CONFIG, subfolder, revision, cached_only=cached_only)
            break
        except FileNotFoundError:
            continue
        except ConnectionError:
            # Asking a hub that does not answer takes half a minute; once is enough.
            cached_only = True
    if config is None:
        if cached_only:
            raise DataError(f"{hub_id}: the hub does not answer, and its cache has no such autoencoder; {OFFLINE}")
        raise DataError(f"{hub_id}: has neither {CONFIG} nor {SUBFOLDER}/{CONFIG}; name a diffusers autoencoder")
    # The cache keeps files under .../snapshots/COMMIT/; the weights must be of the same commit.
    commit = config.parents[0 if subfolder is None else 1].name
    try:
        weights = _download(hub_id, WEIGHTS, subfolder, commit, cached_only=cached_only)
    except FileNotFoundError as error:
        raise DataError(f"{hub_id}: has no {WEIGHTS}; no other format is read, as pickles could run code") from error
    except ConnectionError as error:
        raise DataError(f"{hub_id}: the hub does not answer, and its cache has no {WEIGHTS}; {OFFLINE}") from error
    return WeightFiles(config, weights, commit)


OFFLINE = "connect, or name a local folder"


def _download(hub_id: str, name: str, subfolder: str | None, revision: str | None, *, cached_only: bool) -> Path:
    """A file of the hub on this machine, from its cache where that is up to date.

    Raises:
        FileNotFoundError: the hub has no such file.
        ConnectionError: it is not in the cache, and the hub does not answer or is not to be asked.
        DataError: any other answer, such as no such repository.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise ConfigError(
            f"{hub_id}: reading from the hub needs diffusers; install it with: pip install 'fusedplanes[diffusers]'"
        ) from error
    try:
        found = hf_hub_download(hub_id, name, subfolder=subfolder, revision=revision, local_files_only=cached_only)
    except LocalEntryNotFoundError as error:
        raise ConnectionError(str(error)) from error
    except EntryNotFoundError as error:
        raise FileNotFoundError(str(error)) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{hub_id}: the hub does not give {name} ({_reason(error)})") from error
    return Path(found)


def _reason(error: Exception) -> str:
    """The first sentence of an error of the hub's client, which go on for paragraphs."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line[:120]


# Checking -------------------------------------------------------------------------------------------------------------


def _check_tensors(path: Path, config: PretrainedAutoencoderConfig) -> dict[str, str]:
    """Make sure that a file holds just the tensors an architecture asks for; returns their names there by those in it.

    Raises:
        DataError: it does not, or is no whole safetensors file.
    """
    with torch.device("meta"):
        # Nothing is allocated for sizes that only config.json speaks of.
        expected: dict[str, Tensor] = PretrainedAutoencoder(config).state_dict()
    shapes = _read_shapes(path)
    names = {name: _present_name(name) for name in shapes}
    twice = next((name for name, present in names.items() if name != present and present in names), None)
    if twice:
        raise DataError(f"{path}: holds both '{twice}' and '{names[twice]}', two names of one tensor; remove one")
    missing, extra = expected.keys() - names.values(), names.values() - expected.keys()
    if missing:
        raise DataError(f"{path}: tensor '{min(missing)}' is missing; the file does not belong to its config.json")
    if extra:
        raise DataError(f"{path}: tensor {shown(min(extra))} is not part of the architecture in its config.json")
    for name, shape in shapes.items():
        asked = tuple(expected[names[name]].shape)
        if shape != asked:
            raise DataError(f"{path}: tensor '{name}' has shape {shape}; its config.json asks for {asked}")
    return names


def _present_name(name: str) -> str:
    """What diffusers calls a tensor today."""
    path, _, leaf = name.rpartition(".")
    parent, _, layer = path.rpartition(".")
    return f"{parent}.{OLD_NAMES[layer]}.{leaf}" if ".attentions." in name and layer in OLD_NAMES else name


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a safetensors file's tensors by name, once its sizes agree with each other.

    Raises:
        DataError: the file is missing, cut short, no safetensors file, or holds other numbers than floats.
    """
    check_readable(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size - 8, MOST_HEADER_BYTES):
            raise DataError(f"{path}: not a safetensors file, or cut short ({size} bytes); get it again")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: its safetensors header is damaged ({error}); get it again") from error
    if not isinstance(header, dict):
        raise DataError(f"{path}: its safetensors header is no JSON object; get it again")
    shapes, end = {}, 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        match entry:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(first), int(last)]} if (
                dtype in FLOAT_BYTES
                and all(type(side) is int and side > 0 for side in shape)
                and first >= 0
                and last - first == FLOAT_BYTES[dtype] * math.prod(shape)
            ):
                shapes[name] = tuple(shape)
                end = max(end, last)
            case _:
                raise DataError(f"{path}: tensor {shown(name)} is described as {shown(entry)}; get the file again")
    if 8 + length + end != size:
        raise DataError(f"{path}: has {size} bytes, but its header speaks of {8 + length + end}; get it again")
    return shapes
