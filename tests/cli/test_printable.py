"""Whatever a value has, it reaches a terminal as escapes, and machines read the same value."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import dra_sdk.cli
from dra_sdk.cli.main import main
from dra_sdk.cli.output import yaml_text

HOSTILE = "a\x85b\u2028c\u2029d\u202ee\u2066f\u200fg\x1b[2Jh\x9bi\x0bj\ufeffk\u00a0l"
RAW = {"arguments.__call__", "completion.run", "manifests.run", "validate.run"}
"""What prints other text: help, a script for a shell, the templates' YAML, a report that has been escaped."""


def shown(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\t \\\"'\x85\u2028\u202e\u2066\ufeff\U000e0001")
)


@given(st.recursive(TEXTS | st.integers() | st.none(), lambda some: st.lists(some) | st.dictionaries(TEXTS, some)))
def test_yaml_means_what_it_meant_and_shows_what_it_has(value: object) -> None:
    text = yaml_text([value])
    assert shown(text)
    assert yaml.safe_load(text) == value


def test_what_is_printable_stays_as_it_is() -> None:
    assert yaml_text([{"name": "Größe 日本 😀", "script": "a\nb\n"}]).startswith("name: Größe 日本 😀\nscript: ")


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_convert_escapes_what_is_not_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    metadata = {"name": "a", "namespace": "default", "annotations": {HOSTILE: HOSTILE}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": {}}
    (tmp_path / "claim.json").write_text(json.dumps(claim))
    assert main(["convert", str(tmp_path / "claim.json"), "-o", output]) == 0
    printed = capsys.readouterr().out
    assert shown(printed)
    read = yaml.safe_load(printed)
    assert (read["items"][0] if output == "json" else read)["metadata"] == metadata


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """All calls of print in a module, with the function that they are in."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                    yield f"{path.stem}.{function.name}", node


def test_commands_print_texts_in_one_place() -> None:
    """Only `output.py` prints what is not constant: it escapes, and whoever prints past it would forget to."""
    raw = set()
    for path in sorted(Path(dra_sdk.cli.__file__).parent.glob("*.py")):
        for where, call in calls(path):
            escaped = all(
                isinstance(one, ast.Constant)
                or (isinstance(one, ast.Name) and one.id == "CLEAR")
                or (isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "printable")
                for one in call.args
            )
            if path.stem != "output" and not escaped:
                raw.add(where)
    assert raw == RAW
