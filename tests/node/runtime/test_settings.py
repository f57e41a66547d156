"""Settings: one table, three sources, clear refusals."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.kube.source import find_source
from dra_sdk.model.settings import SettingsFile
from dra_sdk.node.runtime.settings import SETTINGS, Settings, add_flags, read_settings

GIVEN = {
    "nri_index": "7",
    "node_name": "worker-1.example.com",
    "pod_uid": "6c1c0a52-7a3a-4d0c-9b1e-0d7a5b0c9f11",
    "drain_seconds": "3.5",
    "serve": "service",
    "unhealthy_taint": "off",
    "http_address": "[::1]:8080",
    "events": "off",
    "log_level": "debug",
    "log_format": "json",
}
WRONG = [
    ("--node-name", "NODE_NAME", "Worker_1", "must be a DNS subdomain"),
    ("--node-name", "NODE_NAME", "n" * 254, "at most 253 characters"),
    ("--pod-uid", "POD_UID", "../up", "must be a pod's metadata.uid"),
    ("--nri-index", "DRA_SDK_NRI_INDEX", "100", "must be a number from 0 to 99"),
    ("--serve", "DRA_SDK_SERVE", "none", "is not one of both, common, registration, service"),
    ("--unhealthy-taint", "DRA_SDK_UNHEALTHY_TAINT", "none", "is not one of None, NoSchedule, NoExecute, off"),
    ("--http-address", "DRA_SDK_HTTP_ADDRESS", "8080", "must be host:port or :port, with a port from 0 to 65535"),
    ("--http-address", "DRA_SDK_HTTP_ADDRESS", ":65536", "must be host:port"),
    ("--log-level", "DRA_SDK_LOG_LEVEL", "loud", "is not one of debug, info, warning, error"),
    ("--log-format", "DRA_SDK_LOG_FORMAT", "xml", "is not one of text, json"),
]


def read(*flags: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser)
    return read_settings(parser.parse_args(flags), environment)


def test_the_table_and_the_settings_are_the_same() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)} - {"driver"}  # has no flag and no variable
    assert {each.name for each in SETTINGS} == fields
    assert {each.name: each.default for each in SETTINGS if each.name in {"node_name", "nri_index", "serve"}} == {
        "node_name": "",
        "nri_index": 50,
        "serve": "both",
    }
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
    given = GIVEN.get(setting.name, "/some/path")
    wanted = setting.type(given)
    assert wanted != setting.default
    assert getattr(read(setting.flag, given), setting.name) == wanted
    assert getattr(read(**{setting.env: given}), setting.name) == wanted


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert read(DRA_SDK_CDI_DIR="", POD_UID="", DRA_SDK_DRAIN_SECONDS="") == read()


def test_paths_are_absolute_since_the_kubelet_has_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read("--kubelet-dir", "kubelet").kubelet_dir == tmp_path / "kubelet"
    assert read(DRA_SDK_CDI_DIR="cdi").cdi_dir == tmp_path / "cdi"


def test_several_kubeconfig_files_of_the_environment_are_left_to_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for each in files:
        each.touch()
    named = os.pathsep.join(map(str, files))
    monkeypatch.setenv("KUBECONFIG", named)
    assert find_source(read(KUBECONFIG=named).kubeconfig).files == tuple(files)
    assert read("--kubeconfig", "/a:b", KUBECONFIG=named).kubeconfig == Path("/a:b")


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf", "1e99", ""])
def test_a_time_that_is_none_is_refused(value: str) -> None:
    if value:
        with pytest.raises(SettingsError, match=f"environment variable DRA_SDK_DRAIN_SECONDS='{value}': "):
            read(DRA_SDK_DRAIN_SECONDS=value)
    with pytest.raises(
        argparse.ArgumentError, match=f"--drain-seconds: '{value}': must be a number of seconds from 0 to"
    ):
        read("--drain-seconds", value)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(argparse.ArgumentError, match="--cdi-dir: '': must not be empty"):
        read("--cdi-dir", "")


@pytest.mark.parametrize("variable", ["DRA_SDK_SERVE", "DRA_SDK_UNHEALTHY_TAINT"])
def test_a_choice_that_there_is_not_is_refused_with_those_there_are(variable: str) -> None:
    with pytest.raises(SettingsError, match=f"environment variable {variable}='neither': is not one of .*, "):
        read(**{variable: "neither"})


@pytest.mark.parametrize(("flag", "variable", "value", "rule"), WRONG, ids=lambda each: each[:20])
def test_what_a_setting_cannot_be_is_told_with_its_rule(flag: str, variable: str, value: str, rule: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=f"{flag}: '{value}': .*{re.escape(rule)}"):
        read(flag, value)
    with pytest.raises(SettingsError, match=f"environment variable {variable}='{value}': .*{re.escape(rule)}"):
        read(**{variable: value})


def test_a_log_level_may_be_in_capitals() -> None:
    assert read(DRA_SDK_LOG_LEVEL="INFO").log_level == "info"


def test_a_host_name_that_no_node_can_have_asks_for_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "My_Host")
    with pytest.raises(SettingsError, match=r"the host name 'my_host' .* must be a DNS subdomain .*: give --node-name"):
        read()
    assert read("--node-name", "n").node_name == "n"


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


DOCS = Path(__file__).parents[3] / "docs/settings.md"


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
        ("driver: gpu", "driver must be a mapping of settings, is 'gpu'"),
        ("driver: [a]", "driver must be a mapping of settings, is ['a']"),
        ("driver: {a: {b: c}}", "driver.a must be text, a number or a list of these, is {'b': 'c'}"),
        ("driver: {a: [[b]]}", "driver.a must be text, a number or a list of these, is [['b']]"),
        ("serve: yes", "is not one of both, common, registration, service"),
        ("drainSeconds: soon", "settings.yaml='soon': must be a number of seconds from 0 to 86400"),
        ("serve: some", "is not one of both, common, registration, service"),
        ("a: b: c", "is not YAML"),
        ("[" * 100_000, "is nested too deeply"),
        ("#" * (256 * 1024 + 1), "cannot read settings file"),
        ("#" * (256 * 1024 + 1), "it has more than 256 KiB, the most that is read"),
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


def test_the_file_has_a_section_for_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nodeName: n\ndriver:\n  mig: off\n  allow: [0, '*A100*']\n  hide: []\n  sharing:\n")
    settings = read("--config", str(file))
    assert settings.node_name == "n"
    assert settings.driver == SettingsFile(file, {"mig": "off", "allow": "0,*A100*"})
    for nothing in ("driver:", "driver: {}", "driver: null"):
        file.write_text(nothing)
        assert read("--config", str(file)).driver is None


def test_an_empty_file_sets_nothing_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.touch()
    assert read("--config", str(file)) == read()
    with pytest.raises(SettingsError, match="cannot read settings file /missing"):
        read("--config", "/missing")


def test_the_documentation_has_the_table_of_all_settings() -> None:
    rows = [
        f"| `{row.flag}` | `{row.env}` | `{row.key}` | {f'`{row.default}`' if row.default else ''} | {row.help} |"
        for row in SETTINGS
    ]
    table = ["| flag | environment | file | default | meaning |", "|---|---|---|---|---|", *rows]
    assert "\n".join(table) in DOCS.read_text()
