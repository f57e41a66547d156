from __future__ import annotations

import io
import json
import sys

import pytest
import yaml

from tests.cli.commands import EXAMPLES, runner

NODES = EXAMPLES / "nodes"
MIXED = (EXAMPLES / "classes.yaml", NODES / "gpu-mixed.yaml")
SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec:
  driver: gpu.example.com
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  nodeName: node-a
  devices:
  - {name: gpu-0, attributes: {model: {string: a100}}}
  - {name: gpu-1, attributes: {model: {string: l4}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu, selectors: [{cel: {expression: 'EXPRESSION'}}]}}
---
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: NAME}]
---
"""


def claim(name, expression='device.driver == "gpu.example.com"'):
    return CLAIM.replace("NAME", name).replace("EXPRESSION", expression)


def pod(name):
    return POD.replace("NAME", name)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run `simulate` on a text, given as file `cluster.yaml`; further arguments as they are."""
    go = runner(capsys)
    monkeypatch.chdir(tmp_path)

    def simulate(text, *arguments):
        (tmp_path / "cluster.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return go("simulate", "cluster.yaml", *arguments)

    return simulate


def test_the_table_has_a_row_for_each_device(run):
    result = run(SLICE + claim("a") + pod("a") + claim("b"))
    assert result.status == 0
    assert result.cells == [
        ["a", "node-a", "a", "gpu", "gpu.example.com/node-a/gpu-0"],
        ["(no pod)", "node-a", "b", "gpu", "gpu.example.com/node-a/gpu-1"],
    ]
    assert result.err.splitlines() == [
        "note: no Node object for node-a: assuming nodes without labels and limits that accept every pod",
        "gpu.example.com: 0 of 2 pieces of hardware wholly free, nothing in parts",
        "1 of 1 pod placed, on 1 node; 1 of 1 claim without a pod allocated as if one used it",
    ]


def test_a_pod_that_is_not_placed_has_a_reason_and_status_1(run):
    result = run(SLICE + "".join(claim(name) + pod(name) for name in "abc"))
    assert result.status == 1
    assert result.cells[2] == ["c", "-", "-", "-", "0 of 1 nodes: no devices for claim gpu (1)"]
    assert result.out.endswith("\nWould a new node help? Yes: 1 more node like node-a would be enough for c.\n")
    assert "2 of 3 pods placed" in result.err


def test_standard_input_is_read(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(claim("a").encode())))
    assert run(SLICE, "-").status == 0


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_claims_are_printed_as_in_the_api(run, output):
    result = run(SLICE + claim("a") + pod("a") + claim("b"), "-o", output)
    found = list(yaml.safe_load_all(result.out)) if output == "yaml" else json.loads(result.out)["items"]
    assert {each["kind"] for each in found} == {"ResourceSlice", "ResourceClaim"}
    claims = [each for each in found if each["kind"] == "ResourceClaim"]
    assert [each["metadata"]["name"] for each in claims] == ["a", "b"]
    assert claims[0]["status"]["reservedFor"][0]["name"] == "a"
    assert claims[1]["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"


def test_top_reads_the_printed_objects(run, capsys, tmp_path):
    (tmp_path / "outcome.json").write_text(run(SLICE + claim("a") + pod("a"), "-o", "json").out)
    shown = runner(capsys)("top", tmp_path / "outcome.json")
    assert [row[-2:] for row in shown.cells] == [["default/a", "a"], ["-", "-"]]
    assert "note:" not in shown.err


@pytest.mark.parametrize(
    ("stored", "shown"), [("3906250Ki", "4G"), ("80Gi", "80Gi"), ("1500m", "1500m"), ("1536Mi", "1536Mi"), ("1k", "1k")]
)
def test_an_amount_is_shown_with_the_shorter_suffix(run, stored, shown):
    share = f"name: gpu-0, allowMultipleAllocations: true, capacity: {{memory: {{value: {stored}}}}},"
    found = run(SLICE.replace("name: gpu-0,", share) + claim("a"))
    assert f"(memory={shown})" in found.out


def test_with_objects_on_stdout_advice_and_changes_go_to_stderr(run):
    result = run(SLICE + claim("a") + claim("b") + claim("c"), "-o", "json", "--drain", "node-a")
    json.loads(result.out)
    assert "What changes:" in result.err
    assert "Would a new node help?" in result.err


def test_a_share_of_a_device_has_its_consumed_capacity(run):
    shared = SLICE.replace(
        "name: gpu-0,", "name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 8Gi}},"
    )
    result = run(shared + claim("a"))
    assert result.cells[0][-1] == "gpu.example.com/node-a/gpu-0 (memory=8Gi)"


# -- what if


def test_an_added_node_is_used(run):
    three = SLICE + "".join(claim(name) + pod(name) for name in "abc")
    result = run(three, "--add-node", "node-b=node-a")
    assert result.status == 0
    assert "What changes:\n  pod c: not placed → node-b with gpu gpu.example.com/node-b/gpu-0\n" in result.out
    assert "Would a new node help?" not in result.out


def test_a_tainted_device_is_replaced(run):
    result = run(SLICE + claim("a") + pod("a"), "--taint", "gpu.example.com/node-a/gpu-0=broken:NoExecute")
    assert result.status == 0
    change = "pod a: node-a with gpu gpu.example.com/node-a/gpu-0 → node-a with gpu gpu.example.com/node-a/gpu-1"
    assert f"  {change} (evicted: device gpu.example.com/node-a/gpu-0 has taint broken:NoExecute)\n" in result.out


def test_a_tainted_pool_leaves_no_devices(run):
    result = run(SLICE + claim("a") + pod("a"), "--taint", "gpu.example.com/node-a=broken=yes:NoExecute")
    assert result.status == 1
    assert "→ not placed, 0 of 1 nodes: no devices for claim gpu (1)" in result.out
    assert "Yes: 1 more node like node-a would be enough for a." in result.out


def test_a_taint_that_does_not_evict_changes_nothing_for_holders(run):
    result = run(SLICE + claim("a") + pod("a"), "--taint", "gpu.example.com=broken:NoSchedule")
    assert (result.status, result.out.partition("\n\n")[2]) == (0, "Nothing changes.\n")


def test_a_drained_node_is_replaced_by_an_added_one(run):
    result = run(SLICE + claim("a") + pod("a"), "--add-node", "node-b=node-a", "--drain", "node-a")
    assert result.status == 0
    assert result.cells == [["a", "node-b", "a", "gpu", "gpu.example.com/node-b/gpu-0"]]


def test_the_advice_says_that_no_node_would_help(run):
    result = run(SLICE + claim("a", 'device.attributes["gpu.example.com"].model == "h100"'))
    assert result.out.endswith("Would a new node help? No: no node like the existing ones would change anything.\n")


def test_the_advice_says_which_claims_a_node_would_help(run):
    none = claim("d", 'device.attributes["gpu.example.com"].model == "h100"')
    result = run(SLICE + none + "".join(claim(name) for name in "abc"))
    assert result.out.endswith("In part: 1 more node like node-a would be enough for c, not for d.\n")


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
        (["--feature-gates", "Nonsense=true"], "feature gate 'Nonsense' has no effect here"),
        (["--fixture", "x"], "--fixture and --node need --driver NAME"),
        (["--driver", "nonsense"], "unknown driver 'nonsense'"),
        (["--kubeconfig", "missing", "--from-cluster"], "kubeconfig missing cannot be read: No such file or directory"),
    ],
)
def test_wrong_flags_are_reported_in_a_sentence(run, flags, message):
    result = run(SLICE + claim("a"), *flags)
    assert result.status == 2
    assert message in result.err
    assert "Traceback" not in result.err
    assert result.out == ""


# -- bad input

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
            claim("a", 'device.attributes["gpu.example.com"].model = "a"'),
            f"cluster.yaml:7: ResourceClaim/a: {EXPRESSION}: line 1, column 44: ",
        ),
        (claim("a", "devic.driver"), "\n    devic.driver\n    ^\n"),
        (
            claim("a").replace("---\n", "status: {allocation: {devices: {results: [{driver: x}]}}}\n---\n"),
            "cluster.yaml:8: ResourceClaim/a: status.allocation.devices.results[0].pool: must be set",
        ),
        ("kind: List\nitems: 3\n", "cluster.yaml:2: List/*: items: must be a list, is 3"),
        (
            pod("a").replace("{name: a}", '{name: "a\\nb"}'),
            "cluster.yaml:3: Pod/a\\nb: metadata.name: must be a DNS subdomain",
        ),
        (
            pod("a").replace("resourceClaimName", "claim"),
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
    assert (
        result.err
        == "cluster.yaml:1: Node/*: metadata.name: must be set\nother.yaml:1: Pod/*: metadata.name: must be set\n"
    )


def test_all_files_that_cannot_be_read_are_reported(run, tmp_path):
    (tmp_path / "empty").mkdir()
    result = run("a: [", "missing.yaml", "empty")
    assert result.status == 2
    assert "dra-sdk: cluster.yaml: line " in result.err
    assert "dra-sdk: cannot read missing.yaml: No such file or directory" in result.err
    assert "dra-sdk: cannot read empty: it is a directory without files that end in .json, .yaml, .yml" in result.err


def test_a_class_that_does_not_exist_leaves_the_claim_without_devices(run):
    result = run(SLICE + claim("a").replace("deviceClassName: gpu", "deviceClassName: npu"))
    assert result.status == 1
    assert result.cells == [["(no pod)", "-", "a", "-", "claim a: request gpu: there is no DeviceClass npu"]]


def test_an_incomplete_pool_is_noted(run):
    result = run(SLICE.replace("resourceSliceCount: 1", "resourceSliceCount: 2") + claim("a"))
    assert result.status == 1
    assert "note: pool node-a of driver gpu.example.com is incomplete: " in result.err


def test_a_source_of_objects_is_required(capsys):
    result = runner(capsys)("simulate")
    assert (result.status, result.out) == (2, "")
    assert result.err == "dra-sdk: there are no objects to read: give files, --driver NAME or --from-cluster\n"


def test_missing_nodes_and_slices_are_noted(run):
    result = run(claim("a"))
    assert result.status == 1
    note = "there are no Nodes and no ResourceSlices, so nothing can be scheduled: add a file that has them, --driver"
    assert result.err.startswith(f"note: {note}")
    assert "Would a new node help?" not in result.out
    assert run("kind: Node\napiVersion: v1\nmetadata: {name: a}\n---\n" + pod("a")).err.startswith(
        "note: there are no ResourceSlices, so there are no devices: add a file"
    )


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("{schedulingGates: [{name: quota}, {name: topology}]}", "blocked by scheduling gates quota, topology"),
        (
            "{resourceClaims: [{name: x, resourceClaimName: z}]}",
            "claim x: there is no ResourceClaim z in namespace default",
        ),
    ],
)
def test_there_is_no_advice_if_nodes_are_not_the_reason(run, spec, reason):
    result = run(f"{SLICE}kind: Pod\napiVersion: v1\nmetadata: {{name: p}}\nspec: {spec}\n")
    assert result.status == 1
    assert result.cells == [["p", "-", "-", "-", reason]]
    assert "Would a new node help?" not in result.out


def test_an_error_in_an_expression_of_several_lines_has_its_column(run):
    text = claim("a").replace("'device.driver == \"gpu.example.com\"'", "EXPRESSION")
    folded = text.replace("{cel: {expression: EXPRESSION}}", '{cel: {expression: "true &&\\n  devic.driver"}}')
    assert "line 2, column 3: " in (err := run(folded).err)
    assert err.endswith("\n      devic.driver\n      ^\n")


def test_allocated_devices_that_do_not_exist_are_noted(run):
    device = "{request: gpu, driver: gpu.example.com, pool: old, device: gpu-9}"
    allocated = claim("a").replace("---\n", f"status: {{allocation: {{devices: {{results: [{device}]}}}}}}\n---\n")
    assert "note: claim a holds gpu.example.com/old/gpu-9, which is in no ResourceSlice\n" in run(SLICE + allocated).err


def test_an_empty_file_is_an_empty_cluster(run):
    result = run("")
    assert result.status == 0
    assert result.out.split() == ["POD", "NODE", "CLAIM", "REQUEST", "DEVICE"]


def test_fields_that_an_older_cluster_drops_are_noted(run):
    tolerating = claim("a").replace("Name: gpu,", "Name: gpu, tolerations: [{operator: Exists}],")
    result = run(SLICE + tolerating, "--server-version", "1.35")
    assert result.status == 0
    field = "spec.devices.requests[0].exactly.tolerations"
    assert f"note: cluster.yaml:23: ResourceClaim/a: {field}: dropped by the server" in result.err


def test_control_characters_in_names_are_escaped(run):
    result = run('kind: Pod\napiVersion: v1\nmetadata: {name: "a\\e[31m"}\nspec: 3\n')
    assert "\x1b" not in result.err
    assert "\\x1b[31m" in result.err


def test_examples_are_found(capsys):
    assert runner(capsys)("simulate", *MIXED, EXAMPLES / "prioritized-alternatives.yaml").status == 0


@pytest.mark.parametrize(("version", "times", "named"), [(None, 2, True), ("1.36", 2, True), ("1.37", 1, False)])
def test_the_allocation_follows_the_release(run, version, times, named):
    """Configuration for two requests is there twice up to 1.36; since 1.37 once, without names if these are all."""
    entry = "{requests: [gpu, more], opaque: {driver: gpu.example.com, parameters: {a: b}}}"
    more = f"    - {{name: more, exactly: {{deviceClassName: gpu}}}}\n    config: [{entry}]\n---"
    both = claim("a").replace("---", more)
    flags = [] if version is None else ["--server-version", version]
    result = run(SLICE + both, *flags, "-o", "json")
    (made,) = (each for each in json.loads(result.out)["items"] if each["kind"] == "ResourceClaim")
    config = made["status"]["allocation"]["devices"]["config"]
    assert [each.get("requests") for each in config] == [["gpu", "more"] if named else None] * times


def test_hardware_and_nodes_that_are_lost(run):
    text = SLICE + claim("a", 'device.attributes["gpu.example.com"].model == "a100"') + pod("a")
    result = run(text, "--lose", "gpu.example.com/node-a/gpu-0")
    assert result.status == 1
    assert "pod a: node-a with gpu gpu.example.com/node-a/gpu-0 → not placed" in result.out
    result = run(text, "--add-nodes", "2=node-a", "--lose-node", "node-a")
    assert result.status == 0
    assert "→ node-a-new-1 with gpu gpu.example.com/node-a-new-1/gpu-0" in result.out


def test_a_file_of_other_slices_shows_what_an_upgrade_changes(run, tmp_path):
    text = SLICE + claim("a") + pod("a") + claim("b") + pod("b")
    upgraded = SLICE.partition("---")[0].replace("  - {name: gpu-1, attributes: {model: {string: l4}}}\n", "")
    (tmp_path / "new.yaml").write_text(upgraded)
    result = run(text, "--override", "new.yaml")
    assert result.status == 0, "what is allocated stays"
    (tmp_path / "new.yaml").write_text(claim("c") + pod("c"))
    result = run(text, "--override", "new.yaml")
    assert result.status == 1
    assert "pod c: did not exist → not placed" in result.out


@pytest.mark.parametrize("text", ["node-a", "0=node-a", "x=node-a", "1=", "10001=node-a"])
def test_a_wrong_number_of_nodes(run, text):
    result = run(SLICE, "--add-nodes", text)
    assert result.status == 2
    assert "must be COUNT=LIKE with 1 to 10000 nodes" in result.err
