"""The examples with damaged text: `simulate` and `explain` answer or say what is wrong, without a traceback."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_sdk.cli.main import main
from tests.cli.commands import EXAMPLES

_CLUSTERS = (
    ("classes", "nodes/gpu-mixed", "prioritized-alternatives"),
    ("classes", "nodes/mig-static", "mig-by-cel"),
    ("classes", "nodes/cpu-numa", "cpu-numa"),
    ("nodes/cpu-vendors", "hardware-cpu"),
    ("pizza",),
)
TEXTS = ["\n---\n".join((EXAMPLES / f"{name}.yaml").read_text() for name in names) for names in _CLUSTERS]
_INSERTED = (
    "\t",
    "- ",
    "  ",
    ": ",
    "{",
    "]",
    "&a ",
    "*a",
    "!!binary ",
    "'",
    '"',
    "|",
    "#",
    "%",
    "---\n",
    "\0",
    "\ufeff",
)
_INSERTED += ("\ud7ff", "9" * 400, "<<: ", "-1 ", "~ ", "é" * 200, "? ", "*", "== ", "\r")


@st.composite
def damaged(draw):
    """A cluster with one to three lines removed, doubled, moved, indented, cut or with something inserted."""
    lines = draw(st.sampled_from(TEXTS)).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(lines) - 1))
        line = lines[number]
        at = draw(st.integers(0, len(line)))
        how = draw(st.sampled_from(("without", "twice", "moved", "indented", "cut", "with", "with", "other value")))
        if how == "with":
            changed = [line[:at] + draw(st.sampled_from(_INSERTED)) + line[at:]]
        elif how == "other value":
            source = draw(st.sampled_from(lines)).partition(":")[2] or "\n"
            changed = [line.partition(":")[0] + ":" + source]
        else:
            other = draw(st.sampled_from(lines))
            kinds = {"without": [], "twice": [line, line], "moved": [other, line], "indented": [f"  {line}"]}
            changed = kinds.get(how, [line[:at]])
        lines[number : number + 1] = changed or ["\n"]
    return "".join(lines).encode()


def answer(command, path):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([command, str(path)])
    return status, out.getvalue(), err.getvalue()


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(content=damaged())
def test_damaged_text_is_answered(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_bytes(content)
    statuses = set()
    for command in ("simulate", "explain"):
        status, out, err = answer(command, path)
        assert status in {0, 1, 2}
        assert "Traceback" not in out + err
        assert (status == 2) == (out == "")
        assert status != 2 or str(path) in err
        statuses.add(status == 2)
    assert len(statuses) == 1  # both commands accept the same input


@pytest.mark.parametrize("text", TEXTS)
def test_the_undamaged_text_is_valid(text, tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    assert {answer(command, path)[0] for command in ("simulate", "explain")} <= {0, 1}
