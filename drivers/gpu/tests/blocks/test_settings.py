"""Settings of any driver from its environment."""

from __future__ import annotations

import pytest
from dra_driver_gpu.blocks.settings import Setting, SettingsTable, parse_choice, parse_path, parse_seconds, parse_switch

from dra_sdk import SettingsError

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


def test_the_table_for_a_readme():
    assert TABLE.markdown().splitlines()[:3] == [
        "| variable | default | meaning |",
        "|---|---|---|",
        "| `LAMP_ROOT` | / | where it hangs |",
    ]
