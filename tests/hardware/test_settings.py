"""Settings of any driver from its environment."""

from __future__ import annotations

import pytest

from dra_sdk import SettingsError
from dra_sdk.hardware.settings import Setting, SettingsTable, parse_choice, parse_path, parse_seconds, parse_switch

TABLE = SettingsTable(
    "LAMP_",
    [
        Setting("root", parse_path, "/", "where it hangs"),
        Setting("lit", parse_switch, "false", "whether it is on"),
        Setting("colour", parse_choice("red", "green"), "red", "its colour"),
        Setting("delay", parse_seconds(9.0, "nobody waits longer"), "1", "until it is on"),
    ],
)


def test_settings_are_read_by_field_and_others_are_ignored():
    environment = {"LAMP_ROOT": "/a/b/", "LAMP_LIT": "Yes", "LAMP_COLOUR": "", "LAMP_DELAY": "2.5", "PATH": "/bin"}
    assert TABLE.read(environment) == {"root": "/a/b", "lit": True, "delay": 2.5}


@pytest.mark.parametrize(
    ("variable", "text", "why"),
    [
        ("LAMP_ROOT", "a/b", "must be an absolute path on the host"),
        ("LAMP_LIT", "maybe", "must be true or false"),
        ("LAMP_COLOUR", "blue", "must be red or green"),
        ("LAMP_DELAY", "10", "must be above 0 and at most 9 seconds: nobody waits longer"),
        ("LAMP_DELAY", "soon", "could not convert"),
    ],
)
def test_an_unusable_value_is_an_error_with_the_variable(variable, text, why):
    with pytest.raises(SettingsError, match=f"environment variable {variable}={text!r}: .*{why}"):
        TABLE.read({variable: text})


def test_an_unknown_variable_is_an_error_that_lists_the_known_ones():
    with pytest.raises(SettingsError, match="unknown environment variable LAMP_LITT: there are LAMP_ROOT, LAMP_LIT, "):
        TABLE.read({"LAMP_LITT": "true"})


@pytest.mark.parametrize(
    "name",
    [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_METRICS",
        "PORT",
        "PORT_8080_TCP",
        "PORT_8080_TCP_PROTO",
        "PORT_8080_TCP_PORT",
        "PORT_8080_TCP_ADDR",
        "PORT_53_UDP",
    ],
)
def test_variables_of_a_service_that_is_named_like_the_driver_are_no_settings(name):
    assert TABLE.read({f"LAMP_NVIDIA_{name}": "10.0.0.1", "LAMP_LIT": "yes"}) == {"lit": True}


@pytest.mark.parametrize("name", ["SERVICE", "SERVICE_HOSTS", "PORTS", "PORT_TCP", "PORT_8080_TCP_MORE"])
def test_variables_that_no_service_has_are_unknown(name):
    with pytest.raises(SettingsError, match=f"unknown environment variable LAMP_NVIDIA_{name}:"):
        TABLE.read({f"LAMP_NVIDIA_{name}": "10.0.0.1"})


def test_the_table_for_a_readme():
    assert TABLE.markdown().splitlines()[:3] == [
        "| variable | default | meaning |",
        "|---|---|---|",
        "| `LAMP_ROOT` | / | where it hangs |",
    ]
