from __future__ import annotations

from dra_sdk.wire.validation.problems import byte_length, duplicate, not_supported, show, too_long, too_many


def test_a_problem_reads_as_field_and_sentence():
    assert str(duplicate("spec.devices[1]", "gpu-0")) == "spec.devices[1]: 'gpu-0' was given before"
    assert str(not_supported("spec.x", "C", ("A", "B"))) == "spec.x: must be one of A, B, is 'C'"
    assert str(too_many("spec.x", 3, 2)) == "spec.x: must have at most 2 items, has 3"


def test_lengths_are_bytes():
    assert list(too_long("x", "é" * 32, 64)) == []
    assert [str(problem) for problem in too_long("x", "é" * 33, 64)] == ["x: must be at most 64 bytes, has 66"]
    assert byte_length("\ud800") == 3


def test_long_values_are_cut():
    assert show("a" * 200) == f"'{'a' * 55}...'"
    assert show([1, 2]) == "[1, 2]"
