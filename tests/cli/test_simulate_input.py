"""What `simulate` and `explain` read: wrong flags and bad input are a sentence, and damaged examples get an answer."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_sdk.cli.main import main
from tests.cli.commands import EXAMPLES, Run, runner
from tests.cli.simulated import SLICE, claim_text, pod_text, simulating


@pytest.fixture
def run(capsys, tmp_path, monkeypatch) -> Run:
    return simulating(capsys, tmp_path, monkeypatch)


def test_standard_input_is_read(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(claim_text("a").encode())))
    assert run(SLICE, "-").status == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--add-node", "x"], "'x' must be NAME=LIKE"),
        (["--add-node", "x=y"], "there is no node y; nodes are: node-a"),
        (["--add-node", "node-a=node-a"], "node node-a already exists"),
        (["--add-node", "no de=node-a"], "NAME: must be a DNS subdomain"),
        (["--kubeconfig", "x"], "kubeconfig x cannot be read: No such file or directory"),
        (["--drain", "x"], "there is no node x; nodes are: node-a"),
        (["--taint", "gpu.example.com"], "must be DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT"),
        (["--taint", "gpu.example.com=x:Sometimes"], "taint.effect: must be one of NoExecute, NoSchedule, None"),
        (["--taint", "gpu.example.com=a b:NoExecute"], "taint.key: "),
        (
            ["--taint", "gpu.example.com/other=x:NoExecute"],
            "no device gpu.example.com/other/*; drivers with devices are: gpu.example.com",
        ),
        (
            ["--taint", "gpu.example.com=x:NoExecute", "--server-version", "1.34"],
            "DRADeviceTaints is off in Kubernetes",
        ),
        (["--server-version", "1.20"], "'1.20' is not one of 1.34, "),
        (["--feature-gates", "Nonsense=true"], "Kubernetes 1.34 to 1.37 have no feature gate Nonsense"),
        (["--fixture", "x"], "--fixture and --node need --driver NAME"),
        (["--driver", "nonsense"], "unknown driver 'nonsense'"),
        (["--kubeconfig", "missing", "--from-cluster"], "kubeconfig missing cannot be read: No such file or directory"),
    ],
)
def test_wrong_flags_are_reported_in_a_sentence(run, flags, message):
    result = run(SLICE + claim_text("a"), *flags)
    assert result.status == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert result.out == ""


@pytest.mark.parametrize("text", ["node-a", "0=node-a", "x=node-a", "1=", "10001=node-a"])
def test_a_wrong_number_of_nodes(run, text):
    result = run(SLICE, "--add-nodes", text)
    assert result.status == 2
    assert "must be COUNT=LIKE with 1 to 10000 nodes" in result.err


EXPRESSION = "spec.devices.requests[0].exactly.selectors[0].cel.expression"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,\n", "dra-sdk: cluster.yaml: line 2, column 1: "),
        (b"\xff", "dra-sdk: cluster.yaml: line 1: not UTF-8 text"),
        ("{", "dra-sdk: cluster.yaml: line 1, column 2: "),
        ("a: &x [*x]\n", "refers to itself"),
        ("- 1\n", "cluster.yaml:1: object: must be an object, is [1]"),
        (
            SLICE.replace("generation: 1, resourceSliceCount: 1", "generation: 1"),
            "cluster.yaml:6: ResourceSlice/a: spec.pool.resourceSliceCount: must be greater than zero, is 0",
        ),
        (
            SLICE.replace("{string: a100}", "{string: 5}"),
            "cluster.yaml:9: ResourceSlice/a: spec.devices[0].attributes[model].string: must be a string, is 5",
        ),
        (SLICE + SLICE, "ResourceSlice/a: is also defined at cluster.yaml:3"),
        (
            claim_text("a", 'device.attributes["gpu.example.com"].model = "a"'),
            f"cluster.yaml:7: ResourceClaim/a: {EXPRESSION}: line 1, column 44: ",
        ),
        (claim_text("a", "devic.driver"), "\n    devic.driver\n    ^\n"),
        (
            claim_text("a").replace("---\n", "status: {allocation: {devices: {results: [{driver: x}]}}}\n---\n"),
            "cluster.yaml:8: ResourceClaim/a: status.allocation.devices.results[0].pool: must be set",
        ),
        ("kind: List\nitems: 3\n", "cluster.yaml:2: List/*: items: must be a list, is 3"),
        (
            pod_text("a").replace("{name: a}", '{name: "a\\nb"}'),
            "cluster.yaml:3: Pod/a\\nb: metadata.name: must be a DNS subdomain",
        ),
        (
            pod_text("a").replace("resourceClaimName", "claim"),
            "cluster.yaml:5: Pod/a: spec.resourceClaims[0].claim: unknown",
        ),
    ],
)
def test_bad_input_is_reported_with_its_line(run, text, message):
    result = run(text)
    assert result.status == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert result.out == ""


def test_all_problems_of_all_files_are_reported(run, tmp_path):
    (tmp_path / "other.yaml").write_text("kind: Pod\napiVersion: v1\n")
    result = run("kind: Node\napiVersion: v1\n", "other.yaml")
    missing = "metadata.name: name or generateName must be set"
    assert result.err == f"cluster.yaml:1: Node/*: {missing}\nother.yaml:1: Pod/*: {missing}\n"


def test_all_files_that_cannot_be_read_are_reported(run, tmp_path):
    (tmp_path / "empty").mkdir()
    result = run("a: [", "missing.yaml", "empty")
    assert result.status == 2
    assert "dra-sdk: cluster.yaml: line " in result.err
    assert "dra-sdk: cannot read missing.yaml: No such file or directory" in result.err
    assert "dra-sdk: cannot read empty: it is a directory without files that end in .json, .yaml, .yml" in result.err


def test_a_source_of_objects_is_required(capsys):
    result = runner(capsys)("simulate")
    assert (result.status, result.out) == (2, "")
    assert result.err == "dra-sdk: there are no objects to read: give files, --driver NAME or --from-cluster\n"


def test_an_error_in_an_expression_of_several_lines_has_its_column(run):
    text = claim_text("a").replace("'device.driver == \"gpu.example.com\"'", "EXPRESSION")
    folded = text.replace("{cel: {expression: EXPRESSION}}", '{cel: {expression: "true &&\\n  devic.driver"}}')
    assert "line 2, column 3: " in (err := run(folded).err)
    assert err.endswith("\n      devic.driver\n      ^\n")


def test_an_empty_file_is_an_empty_cluster(run):
    result = run("")
    assert result.status == 0
    assert result.out.split() == ["POD", "NODE", "CLAIM", "REQUEST", "DEVICE"]


def test_control_characters_in_names_are_escaped(run):
    result = run('kind: Pod\napiVersion: v1\nmetadata: {name: "a\\e[31m"}\nspec: 3\n')
    assert "\x1b" not in result.err
    assert "\\x1b[31m" in result.err


def answer(*arguments: object) -> tuple[int, str, str]:
    """Exit status, stdout and stderr, where there is no fixture for each example."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


# -- documents with a part removed, doubled or replaced

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

DOCUMENTS = [document for name in _NAMES for document in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())]

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
    return [place, *(inner for key, item in items for inner in places(item, (*place, key)))]


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
    return [document for number, document in enumerate(made) if number not in missing]


FLAGS = [[], ["-o", "yaml"], ["--drain", "mixed-1"], ["--taint", "gpu.nvidia.com=x:NoExecute"]]

FLAGS += [["--add-node", "more=mixed-1"], ["--server-version", "1.34"]]


@settings(max_examples=25, derandomize=True, database=None)
@given(objects=clusters(), flags=st.sampled_from(FLAGS))
def test_any_input_is_answered(objects, flags, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    status, out, err = answer("simulate", path, *flags)
    assert status in {0, 1, 2}
    assert (status == 2) == (out == "")
    assert err


def test_the_undamaged_documents_are_valid(tmp_path, capsys):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": DOCUMENTS}))
    assert main(["simulate", str(path)]) == 1  # dave gets no pizza
    assert " 3 of 4 claims would be allocated (tested without a pod);" in capsys.readouterr().err


# -- text with damaged lines

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


@settings(max_examples=40, derandomize=True, database=None)
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
