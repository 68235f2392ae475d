"""Licences: what the table says, who is asked, and what is kept."""

from pathlib import Path

import pytest

from fusedplanes.errors import CheckpointError, ConfigError
from fusedplanes.licences import (
    ASSETS,
    UNKNOWN,
    LicenceRecord,
    records_from_json,
    records_text,
    records_to_json,
    require_acceptance,
    table,
    united,
    weights_licence,
)

README = Path(__file__).resolve().parents[1] / "README.md"
STABLE_DIFFUSION = "stable-diffusion-v1-5/stable-diffusion-v1-5"


def test_permissive_weights_ask_for_nothing():
    for name in ("madebyollin/taesd", "stabilityai/sd-vae-ft-mse", "stabilityai/sdxl-vae"):
        require_acceptance(name, weights_licence(name), accepted=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (STABLE_DIFFUSION, "is CreativeML OpenRAIL-M, which restricts use"),
        ("someone/something", "is unknown here"),
        ("MadeByOllin/taesd", "is unknown here"),
        (None, "is unknown here"),
    ],
)
def test_all_others_ask_to_be_accepted(name, message):
    asset = weights_licence(name)
    with pytest.raises(ConfigError, match=message) as error:
        require_acceptance(str(name), asset, accepted=False)
    assert "--accept-licence" in str(error.value) and "\n" not in str(error.value)
    require_acceptance(str(name), asset, accepted=True)


def test_the_readme_has_the_table():
    assert f"<!-- table: licences -->\n{table()}<!-- end -->" in README.read_text()


def test_every_asset_stands_in_the_table_once():
    assert len({asset.name for asset in ASSETS}) == len(ASSETS) == len(table().splitlines()) - 2
    asking = [line for line in table().splitlines() if line.endswith("| yes |")]
    assert len(asking) == 2 and any(STABLE_DIFFUSION in line for line in asking)


def test_records_survive_json_and_are_kept_once():
    records = (LicenceRecord("weights", "a/b", "MIT"), LicenceRecord("data", "cars", UNKNOWN, True))
    assert records_from_json(records_to_json(records), "here") == records
    assert united(records, records[1:]) == records
    text = records_text([LicenceRecord("data", "Häuser\nund mehr", "CC0-1.0")])
    assert text.isascii() and "\n" not in text


@pytest.mark.parametrize(
    "value", [None, {}, [None], [{"kind": "soul", "name": "a", "licence": "b", "accepted": True}], [{"kind": "data"}]]
)
def test_damaged_records_are_named(value):
    with pytest.raises(CheckpointError, match=r"config\.json: data_licences: .* records no licence"):
        records_from_json(value, "run/config.json: data_licences")
