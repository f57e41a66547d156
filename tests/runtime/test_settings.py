"""Settings: one table, three sources, clear refusals."""

from __future__ import annotations

import argparse
import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.runtime.settings import SETTINGS, Settings, add_flags, read_settings


def read(*flags: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser)
    return read_settings(parser.parse_args(flags), environment)


def test_the_table_and_the_settings_are_the_same() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(Settings)}
    fields["node_name"] = ""
    assert {each.name: each.default for each in SETTINGS} == fields
    assert len({each.env for each in SETTINGS}) == len(SETTINGS)
    assert all(each.help for each in SETTINGS)


def test_without_anything_the_defaults_of_a_node_apply() -> None:
    settings = read()
    assert settings == Settings(node_name=socket.gethostname().lower())
    assert settings.registry == Path("/var/lib/kubelet/plugins_registry")
    assert settings.plugin_data("gpu.example.com") == Path("/var/lib/kubelet/plugins/gpu.example.com")


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    assert read(NODE_NAME="from-env").node_name == "from-env"
    assert read("--node-name", "from-flag", NODE_NAME="from-env").node_name == "from-flag"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_every_setting_has_a_flag_and_a_variable(setting: Any) -> None:
    given = {"drain_seconds": "3.5", "serve": "service", "unhealthy_taint": "off"}.get(setting.name, "/some/text")
    wanted = setting.type(given)
    assert wanted != setting.default
    assert getattr(read(setting.flag, given), setting.name) == wanted
    assert getattr(read(**{setting.env: given}), setting.name) == wanted


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert read(DRA_SDK_CDI_DIR="", POD_UID="", DRA_SDK_DRAIN_SECONDS="") == read()


def test_paths_are_absolute_because_the_kubelet_has_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read("--kubelet-dir", "kubelet").kubelet_dir == tmp_path / "kubelet"
    assert read(DRA_SDK_CDI_DIR="cdi").cdi_dir == tmp_path / "cdi"


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf", "1e99", ""])
def test_a_time_that_is_none_is_refused(value: str) -> None:
    if value:
        with pytest.raises(SettingsError, match=f"environment variable DRA_SDK_DRAIN_SECONDS='{value}': "):
            read(DRA_SDK_DRAIN_SECONDS=value)
    with pytest.raises(argparse.ArgumentError, match="--drain-seconds: invalid seconds value"):
        read("--drain-seconds", value)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(argparse.ArgumentError, match="--cdi-dir: invalid path value"):
        read("--cdi-dir", "")


@pytest.mark.parametrize("variable", ["DRA_SDK_SERVE", "DRA_SDK_UNHEALTHY_TAINT"])
def test_a_choice_that_there_is_not_is_refused_with_those_there_are(variable: str) -> None:
    with pytest.raises(SettingsError, match=f"environment variable {variable}='neither': is not one of .*, "):
        read(**{variable: "neither"})


@pytest.mark.parametrize(
    ("value", "effect"), [("off", None), ("None", "None"), ("NoSchedule", "NoSchedule"), ("NoExecute", "NoExecute")]
)
def test_no_taint_and_a_taint_without_effect_are_not_the_same(value: str, effect: str | None) -> None:
    assert read("--unhealthy-taint", value).taint_effect == effect


def test_help_names_the_variable_and_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    text = " ".join(parser.format_help().split())
    for each in SETTINGS:
        assert each.flag in text
        assert f"[${each.env}]" in text
    assert "(default /var/run/cdi)" in text
