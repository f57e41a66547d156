"""Examples with parts removed, doubled or replaced: every input gets an answer and no traceback."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_sdk.cli.main import main
from tests.cli.commands import EXAMPLES

_NAMES = (
    "classes",
    "nodes/gpu-mixed",
    "nodes/gpu-vfio",
    "nodes/cpu-numa",
    "cpu-numa",
    "prioritized-alternatives",
    "gpu-use-cases/04-time-slicing",
    "gpu-use-cases/07-management",
    "pizza",
)
DOCUMENTS = [each for name in _NAMES for each in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())]
NONSENSE = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "a/b",
    "a b",
    "1Gi",
    "-5",
    "\0",
    "é" * 300,
    [],
    {},
    [None],
    {"": ""},
]
NONSENSE += [{"kind": "Pod"}, {"name": "x"}, ["x"], "device.driver", "2026-01-01T00:00:00Z"]


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(each for key, item in items for each in places(item, (*place, key)))]


@st.composite
def changed(draw, document):
    """The document with one thing in it taken out, doubled, renamed or replaced."""
    place = draw(st.sampled_from(places(document)))
    if not place:
        return draw(st.sampled_from(NONSENSE))
    *above, last = place
    made = copy.deepcopy(document)
    owner = made
    for key in above:
        owner = owner[key]
    how = draw(st.sampled_from(("replace", "replace", "remove", "move")))
    if how == "replace":
        owner[last] = draw(st.sampled_from(NONSENSE))
    elif how == "remove":
        del owner[last]
    elif isinstance(owner, list):
        owner.append(copy.deepcopy(owner[last]))
    else:
        owner[draw(st.sampled_from(("", "kind", "metadata", "spec", "name", "zz")))] = owner.pop(last)
    return made


@st.composite
def clusters(draw):
    """All documents, one of them changed; now and then some are missing."""
    index = draw(st.integers(0, len(DOCUMENTS) - 1))
    made = [*DOCUMENTS[:index], draw(changed(DOCUMENTS[index])), *DOCUMENTS[index + 1 :]]
    missing = draw(st.sets(st.integers(0, len(made) - 1), max_size=3))
    return [each for number, each in enumerate(made) if number not in missing]


FLAGS = [[], ["-o", "yaml"], ["--drain", "mixed-1"], ["--taint", "gpu.nvidia.com=x:NoExecute"]]
FLAGS += [["--add-node", "more=mixed-1"], ["--server-version", "1.34"]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects=clusters(), flags=st.sampled_from(FLAGS))
def test_any_input_is_answered(objects, flags, tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["simulate", str(path), *flags])
    assert status in {0, 1, 2}
    assert (status == 2) == (out.getvalue() == "")
    assert err.getvalue()


def test_the_undamaged_documents_are_valid(tmp_path, capsys):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": DOCUMENTS}))
    assert main(["simulate", str(path)]) == 1  # dave gets no pizza
    assert " 3 of 4 claims without a pod allocated as if one used it;" in capsys.readouterr().err
