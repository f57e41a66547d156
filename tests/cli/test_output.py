from __future__ import annotations

import yaml

from dra_sdk.cli.output import MAX_PROBLEMS, error_lines, yaml_text
from dra_sdk.errors import InvalidObjectError, SettingsError


def test_an_error_is_one_line_without_control_characters() -> None:
    assert error_lines(SettingsError("cannot read a\x1b[2J")) == ["dra-sdk: cannot read a\\x1b[2J"]


def test_each_wrong_setting_has_one_line() -> None:
    wrong = SettingsError("variable A: not a number", "variable B: unknown")
    assert error_lines(wrong) == ["dra-sdk: variable A: not a number", "dra-sdk: variable B: unknown"]
    assert str(wrong) == "variable A: not a number; variable B: unknown"


def test_each_problem_of_an_object_has_one_line_up_to_a_limit() -> None:
    assert error_lines(InvalidObjectError("pool a", ["x", "y", "x"])) == ["dra-sdk: pool a: x", "dra-sdk: pool a: y"]
    many = error_lines(InvalidObjectError("pool a", [f"device {number}" for number in range(1000)]))
    assert len(many) == MAX_PROBLEMS + 1
    assert many[-1] == "dra-sdk: pool a: and 975 more problems"


def test_yaml_repeats_shared_objects_and_does_not_break_lines() -> None:
    shared = {"string": "v80 " * 40}
    text = yaml_text([{"a": shared, "b": shared}, {"c": "ü"}])
    assert list(yaml.safe_load_all(text)) == [{"a": shared, "b": shared}, {"c": "ü"}]
    assert text.count("v80 v80") == 40
    assert "c: ü" in text
    assert len(text.splitlines()) == 6
