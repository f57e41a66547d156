"""The settings file, and the documentation of all settings."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.node.runtime.settings import Settings, add_flags, read_settings, settings_table

DOCS = Path(__file__).parents[3] / "docs/settings.md"


def read(*flags: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser)
    return read_settings(parser.parse_args(flags), environment)


def test_flag_environment_file_default(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nodeName: from-file\nlogLevel: debug\ndrainSeconds: 3.5\n")
    settings = read("--config", str(file))
    assert (settings.node_name, settings.log_level, settings.drain_seconds) == ("from-file", "debug", 3.5)
    assert read(DRA_SDK_CONFIG=str(file), NODE_NAME="from-env").node_name == "from-env"
    assert read("--node-name", "from-flag", "--config", str(file), NODE_NAME="from-env").node_name == "from-flag"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodename: x", "unknown setting 'nodename'; known are cdiDir, "),
        ("- nodeName", "must hold a mapping"),
        ("nodeName: [a]", "nodeName must be text or a number"),
        ("nodeName: {}", "nodeName must be text or a number"),
        ("serve: yes", "is not one of both, common, registration, service"),
        ("drainSeconds: soon", "settings.yaml='soon': must be a number of seconds from 0 to 86400"),
        ("serve: some", "is not one of both, common, registration, service"),
        ("a: b: c", "is no YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read("--config", str(file))
    assert message in str(caught.value)


def test_values_are_taken_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nodeName: 007\npodUid: 0777\nunhealthyTaint: off\nhttpAddress: :8080\nkubeconfig: null\ncdiDir:")
    settings = read("--config", str(file))
    assert (settings.node_name, settings.pod_uid, settings.taint_effect) == ("007", "0777", None)
    assert (settings.http_address, settings.kubeconfig, settings.cdi_dir) == (":8080", None, Path("/var/run/cdi"))


def test_an_empty_file_sets_nothing_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.touch()
    assert read("--config", str(file)) == read()
    with pytest.raises(SettingsError, match="cannot read settings file /missing"):
        read("--config", "/missing")


def test_the_documentation_has_the_table_of_all_settings() -> None:
    assert settings_table() in DOCS.read_text()
