"""`dra-sdk validate` has a verdict and an exit status for any input, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dra_sdk.cli.main import main
from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.profile import NEWEST, OLDEST
from dra_sdk.wire.validation import ServerProfile, check, dropped, validate
from tests.fuzz import documents
from tests.fuzz.strategies import damaged, files, fuzz, noisy, refused, values

OBJECTS = {
    each["kind"]: each
    for each in (documents.SLICE, documents.CLAIM, documents.CLASS, documents.TEMPLATE, documents.TAINT_RULE)
}
PROFILES = [ServerProfile.of(f"1.{minor}") for minor in range(OLDEST, NEWEST + 1)]
LIST = {"apiVersion": "v1", "kind": "List", "items": [documents.CLASS, documents.TAINT_RULE]}
YAML = yaml.safe_dump_all([documents.CLASS, documents.TAINT_RULE, LIST]).encode()
ODD_YAML = st.sampled_from([
    "&a [*a]", "? [1]\n: 2", "a: 1\na: 2", "!!python/object:os.system x", "2001-13-45", "- 0x_", "--- ---", "%YAML 9",
    "\t", "0b_", "._1e9", "+.inf", "[" * 200, "{a: " * 200, "&a " * 5, "<<: 1", "<<: [1, {a: 2}]", "!!binary x",
    "!!set {a}", "a: |\n b\n c: >-\n", "\ufeffkind: x", "!<x> y", "*b", "? \n? \n", "'", '"\\x"', "=: 1", "!!int x",
    "!!int", "!!float y", "!!bool maybe", "1:2:3", "0o9", "0x", "~: ~", "1e400", "!!null x", "!!str {a: b}", "!!map []",
    "!!timestamp x", "!!int [1]", "!!seq {}", "!!merge x", "0o", "9" * 5000, "!!float 0x1", "!!int 1.5", "-", "?", ": ",
])  # fmt: skip


@pytest.mark.parametrize("kind", OBJECTS)
def test_good_objects_have_no_problems(kind: str) -> None:
    assert validate(OBJECTS[kind], profile=PROFILES[-1]) == []


@pytest.mark.parametrize("kind", OBJECTS)
def test_damaged_objects_get_a_verdict(kind: str) -> None:
    wrong = 0

    @fuzz(150)
    @given(damaged(OBJECTS[kind]), st.sampled_from(PROFILES))
    def run(obj: Any, profile: ServerProfile) -> None:
        nonlocal wrong
        problems = validate(obj, profile=profile)
        wrong += bool(problems)
        assert all(str(each) for each in [*problems, *dropped(obj, profile)])

    run()
    assert wrong > 30


def test_files_get_a_verdict_and_an_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    statuses = set()

    @fuzz(350)
    @given(
        st.one_of(
            files(documents.TAINT_RULE),
            noisy(YAML),
            ODD_YAML.map(str.encode),
            st.builds(lambda line, kind: f"kind: {kind}\nspec: {line}".encode(), ODD_YAML, st.sampled_from([*OBJECTS])),
            damaged(LIST).map(lambda value: json.dumps(value).encode()),
        )
    )
    @example(rb'{"kind": "DeviceClass", "apiVersion": "resource.k8s.io/v1", "metadata": {"\n\ud800\u202e": 1}}')
    def run(content: bytes) -> None:
        path.write_bytes(content)
        statuses.add(status := main(["validate", str(path)]))
        printed, summary = capsys.readouterr()
        assert status in {0, 1, 2}
        assert all(line.startswith(f"{path}:") for line in printed.splitlines())
        assert "checked for Kubernetes" in summary.splitlines()[-1]
        assert bool(printed) >= (status == 1)

    run()
    assert statuses == {0, 1, 2}


@fuzz(150)
@given(values)
def test_any_value_gets_a_verdict(obj: Any) -> None:
    assert validate(obj, profile=PROFILES[-1])


@fuzz(150)
@given(damaged(documents.SLICE))
def test_check_and_validate_agree(obj: Any) -> None:
    said = refused(lambda: check(obj), InvalidObjectError)
    assert bool(said) == bool(validate(obj))


@fuzz(150)
@given(damaged(documents.CLAIM))
def test_updates_of_status_get_a_verdict(obj: Any) -> None:
    """The old object is valid. The new one may be anything of the same kind."""
    if isinstance(obj.get("kind"), str):
        assert all(map(str, validate({**obj, "kind": "ResourceClaim"}, old=documents.CLAIM, subresource="status")))
