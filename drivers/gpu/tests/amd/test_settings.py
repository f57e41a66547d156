"""The settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from dra_driver_amd.settings import AmdSettings

from dra_sdk import SettingsError

README = Path(__file__).parents[2] / "README.md"


def test_the_defaults_change_nothing_on_the_node() -> None:
    assert AmdSettings.read({}) == AmdSettings()
    assert not AmdSettings().passthrough
    assert not AmdSettings().partitioning


def test_settings_from_the_environment() -> None:
    environment = {"DRA_AMD_PASSTHROUGH": "true", "DRA_AMD_SETTLE_SECONDS": "60", "DRA_AMD_STATE_DIR": "/var/s"}
    assert AmdSettings.read(environment) == AmdSettings(passthrough=True, settle_seconds=60.0, state_dir="/var/s")


@pytest.mark.parametrize(("name", "value"), [("BUSY_SECONDS", "41"), ("SETTLE_SECONDS", "0"), ("PARTITIONING", "on!")])
def test_an_unusable_value_is_an_error(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"DRA_AMD_{name}"):
        AmdSettings.read({f"DRA_AMD_{name}": value})


def test_the_table_of_the_readme_has_every_setting() -> None:
    assert AmdSettings.markdown().count("| `DRA_AMD_") == len(AmdSettings.model_fields)
    assert AmdSettings.markdown() in README.read_text()
