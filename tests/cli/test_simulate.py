"""`dra-sdk simulate`: what it prints and draws, and what comes of the examples in docs/examples."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from dra_sdk.cli.main import main
from dra_sdk.cli.picture import write_picture
from dra_sdk.errors import SettingsError
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.wire.validation import validate
from tests.cli.cards import make_cards
from tests.cli.commands import EXAMPLES, Run, runner
from tests.cli.simulated import EXPECTED, ROOT, SLICE, claim_text, claims_of, command, got, pod_text, simulating
from tests.tools.scheduling import clusters
from tests.tools.scheduling.explain import situations
from tests.tools.scheduling.picture.html_page import Page


@pytest.fixture
def run(capsys, tmp_path, monkeypatch) -> Run:
    return simulating(capsys, tmp_path, monkeypatch)


def test_the_table_has_a_row_for_each_device(run):
    result = run(SLICE + claim_text("a") + pod_text("a") + claim_text("b"))
    assert result.status == 0
    assert result.cells == [
        ["a", "node-a", "a", "gpu", "gpu.example.com/node-a/gpu-0"],
        ["(no pod)", "node-a", "b", "gpu", "gpu.example.com/node-a/gpu-1"],
    ]
    assert result.err.splitlines() == [
        "note: no Node object for node-a: assuming nodes without labels and limits that accept every pod",
        "gpu.example.com: 0 of 2 pieces of hardware wholly free, nothing in parts",
        "1 of 1 pod placed, on 1 node; 1 of 1 claim would be allocated (tested without a pod)",
    ]


def test_a_claim_that_requests_nothing_has_no_device(run):
    result = run(SLICE + "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a}\nspec: {}\n")
    assert result.cells == [["(no pod)", "node-a", "a", "-", "-"]]


def test_a_pod_that_is_not_placed_has_a_reason_and_status_1(run):
    result = run(SLICE + "".join(claim_text(name) + pod_text(name) for name in "abc"))
    assert result.status == 1
    assert result.cells[2] == ["c", "-", "-", "-", "0 of 1 nodes: no devices for claim gpu on 1 node"]
    assert result.out.endswith("\nWould a new node help? Yes: 1 more node like node-a would be enough for c.\n")
    assert "2 of 3 pods placed" in result.err


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_claims_are_printed_as_in_the_api(run, output):
    result = run(SLICE + claim_text("a") + pod_text("a") + claim_text("b"), "-o", output)
    objects = list(yaml.safe_load_all(result.out)) if output == "yaml" else json.loads(result.out)["items"]
    assert {obj["kind"] for obj in objects} == {"ResourceSlice", "ResourceClaim"}
    claims = [obj for obj in objects if obj["kind"] == "ResourceClaim"]
    assert [obj["metadata"]["name"] for obj in claims] == ["a", "b"]
    assert claims[0]["status"]["reservedFor"][0]["name"] == "a"
    assert claims[1]["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"


def test_top_reads_the_printed_objects(run, capsys, tmp_path):
    (tmp_path / "outcome.json").write_text(run(SLICE + claim_text("a") + pod_text("a"), "-o", "json").out)
    shown = runner(capsys)("top", tmp_path / "outcome.json")
    assert [row[-2:] for row in shown.cells] == [["default/a", "a"], ["-", "-"]]
    assert "note:" not in shown.err


@pytest.mark.parametrize(
    ("stored", "shown"), [("3906250Ki", "4G"), ("80Gi", "80Gi"), ("1500m", "1500m"), ("1536Mi", "1536Mi"), ("1k", "1k")]
)
def test_an_amount_is_shown_with_the_shorter_suffix(run, stored, shown):
    share = f"name: gpu-0, allowMultipleAllocations: true, capacity: {{memory: {{value: {stored}}}}},"
    result = run(SLICE.replace("name: gpu-0,", share) + claim_text("a"))
    assert f"(memory={shown})" in result.out


def test_with_objects_on_stdout_advice_and_changes_go_to_stderr(run):
    result = run(SLICE + claim_text("a") + claim_text("b") + claim_text("c"), "-o", "json", "--drain", "node-a")
    json.loads(result.out)
    assert "What changes:" in result.err
    assert "Would a new node help?" in result.err


def test_a_share_of_a_device_has_its_consumed_capacity(run):
    shared = SLICE.replace(
        "name: gpu-0,", "name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 8Gi}},"
    )
    result = run(shared + claim_text("a"))
    assert result.cells[0][-1] == "gpu.example.com/node-a/gpu-0 (memory=8Gi)"


def test_an_added_node_is_used(run):
    three = SLICE + "".join(claim_text(name) + pod_text(name) for name in "abc")
    result = run(three, "--add-node", "node-b=node-a")
    assert result.status == 0
    assert "What changes:\n  pod c: not placed → node-b with gpu gpu.example.com/node-b/gpu-0\n" in result.out
    assert "Would a new node help?" not in result.out


def test_a_tainted_device_is_replaced(run):
    result = run(SLICE + claim_text("a") + pod_text("a"), "--taint", "gpu.example.com/node-a/gpu-0=broken:NoExecute")
    assert result.status == 0
    change = "pod a: node-a with gpu gpu.example.com/node-a/gpu-0 → node-a with gpu gpu.example.com/node-a/gpu-1"
    assert f"  {change} (evicted: device gpu.example.com/node-a/gpu-0 has taint broken:NoExecute)\n" in result.out


def test_a_tainted_pool_leaves_no_devices(run):
    result = run(SLICE + claim_text("a") + pod_text("a"), "--taint", "gpu.example.com/node-a=broken=yes:NoExecute")
    assert result.status == 1
    assert "→ not placed, 0 of 1 nodes: no devices for claim gpu on 1 node" in result.out
    assert "Yes: 1 more node like node-a would be enough for a." in result.out


def test_a_taint_that_does_not_evict_changes_nothing_for_holders(run):
    result = run(SLICE + claim_text("a") + pod_text("a"), "--taint", "gpu.example.com=broken:NoSchedule")
    assert (result.status, result.out.partition("\n\n")[2]) == (0, "Nothing changes.\n")


def test_a_drained_node_is_replaced_by_an_added_one(run):
    result = run(SLICE + claim_text("a") + pod_text("a"), "--add-node", "node-b=node-a", "--drain", "node-a")
    assert result.status == 0
    assert result.cells == [["a", "node-b", "a", "gpu", "gpu.example.com/node-b/gpu-0"]]


def test_the_advice_says_that_no_node_would_help(run):
    result = run(SLICE + claim_text("a", 'device.attributes["gpu.example.com"].model == "h100"'))
    assert result.out.endswith("Would a new node help? No: no node like the existing ones would change anything.\n")


def test_the_advice_says_which_claims_a_node_would_help(run):
    none = claim_text("d", 'device.attributes["gpu.example.com"].model == "h100"')
    result = run(SLICE + none + "".join(claim_text(name) for name in "abc"))
    assert result.out.endswith("In part: 1 more node like node-a would be enough for c, not for d.\n")


def test_a_class_that_does_not_exist_leaves_the_claim_without_devices(run):
    result = run(SLICE + claim_text("a").replace("deviceClassName: gpu", "deviceClassName: npu"))
    assert result.status == 1
    assert result.cells == [["(no pod)", "-", "a", "-", "claim a: request gpu: there is no DeviceClass npu"]]


def test_an_incomplete_pool_is_noted(run):
    result = run(SLICE.replace("resourceSliceCount: 1", "resourceSliceCount: 2") + claim_text("a"))
    assert result.status == 1
    assert "note: pool node-a of driver gpu.example.com is incomplete: " in result.err


def test_missing_nodes_and_slices_are_noted(run):
    result = run(claim_text("a"))
    assert result.status == 1
    note = "there are no Nodes and no ResourceSlices, so nothing can be scheduled: add a file that has them, --driver"
    assert result.err.startswith(f"note: {note}")
    assert "Would a new node help?" not in result.out
    assert run("kind: Node\napiVersion: v1\nmetadata: {name: a}\n---\n" + pod_text("a")).err.startswith(
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


def test_allocated_devices_that_do_not_exist_are_noted(run):
    device = "{request: gpu, driver: gpu.example.com, pool: old, device: gpu-9}"
    allocated = claim_text("a").replace("---\n", f"status: {{allocation: {{devices: {{results: [{device}]}}}}}}\n---\n")
    assert "note: claim a holds gpu.example.com/old/gpu-9, which is in no ResourceSlice\n" in run(SLICE + allocated).err


def test_fields_that_an_older_cluster_drops_are_noted(run):
    tolerating = claim_text("a").replace("Name: gpu,", "Name: gpu, tolerations: [{operator: Exists}],")
    result = run(SLICE + tolerating, "--server-version", "1.35")
    assert result.status == 0
    field = "spec.devices.requests[0].exactly.tolerations"
    assert f"note: cluster.yaml:23: ResourceClaim/a: {field}: dropped by the server" in result.err


@pytest.mark.parametrize(("version", "times", "named"), [(None, 2, True), ("1.36", 2, True), ("1.37", 1, False)])
def test_the_allocation_follows_the_release(run, version, times, named):
    """Configuration for two requests is there twice up to 1.36; since 1.37 once, without names if these are all."""
    entry = "{requests: [gpu, more], opaque: {driver: gpu.example.com, parameters: {a: b}}}"
    more = f"    - {{name: more, exactly: {{deviceClassName: gpu}}}}\n    config: [{entry}]\n---"
    both = claim_text("a").replace("---", more)
    flags = [] if version is None else ["--server-version", version]
    result = run(SLICE + both, *flags, "-o", "json")
    (made,) = (obj for obj in json.loads(result.out)["items"] if obj["kind"] == "ResourceClaim")
    config = made["status"]["allocation"]["devices"]["config"]
    assert [entry.get("requests") for entry in config] == [["gpu", "more"] if named else None] * times


def test_hardware_and_nodes_that_are_lost(run):
    text = SLICE + claim_text("a", 'device.attributes["gpu.example.com"].model == "a100"') + pod_text("a")
    result = run(text, "--lose", "gpu.example.com/node-a/gpu-0")
    assert result.status == 1
    assert "pod a: node-a with gpu gpu.example.com/node-a/gpu-0 → not placed" in result.out
    result = run(text, "--add-nodes", "2=node-a", "--lose-node", "node-a")
    assert result.status == 0
    assert "→ node-a-new-1 with gpu gpu.example.com/node-a-new-1/gpu-0" in result.out


def test_a_file_of_other_slices_shows_what_an_upgrade_changes(run, tmp_path):
    text = SLICE + claim_text("a") + pod_text("a") + claim_text("b") + pod_text("b")
    upgraded = SLICE.partition("---")[0].replace("  - {name: gpu-1, attributes: {model: {string: l4}}}\n", "")
    (tmp_path / "new.yaml").write_text(upgraded)
    result = run(text, "--override", "new.yaml")
    assert result.status == 0, "what is allocated stays"
    (tmp_path / "new.yaml").write_text(claim_text("c") + pod_text("c"))
    result = run(text, "--override", "new.yaml")
    assert result.status == 1
    assert "pod c: did not exist → not placed" in result.out


# -- pictures


def drawn(path: Path, *objects: object) -> str:
    write_picture(schedule(clusters.cluster(*objects)), path)  # type: ignore[arg-type]
    return Page(path.read_text()).text


def test_a_picture_says_why_a_claim_waits_and_what_would_help(tmp_path: Path):
    write_picture(schedule(situations.memory()), tmp_path / "a.html")
    shown = Page((tmp_path / "a.html").read_text()).text
    assert (
        "claim c on any of 7 nodes: request gpu: none of 4 devices passes selector 0 (memory is 40Gi) "
        'Would help: request gpu, selector 0: change "80Gi" to "40Gi"'
    ) in shown


def test_pods_with_the_same_reason_are_grouped(tmp_path: Path):
    waiting = [
        obj
        for name in "ab"
        for obj in (clusters.claim(name, clusters.exactly("gpu", clusters.GPU, count=3)), clusters.pod(name, name))
    ]
    shown = drawn(tmp_path / "a.html", clusters.gpus("n1"), waiting)
    assert "pod a, pod b on n1: request gpu: 2 of 2 of class gpu.nvidia.com, 3 needed" in shown


def test_a_pod_without_its_claim_has_the_schedulers_reason(tmp_path: Path):
    waiting = clusters.pod("p", "missing")
    assert "there is no ResourceClaim missing in namespace default" in drawn(
        tmp_path / "a.html", clusters.gpus("n1"), waiting
    )


def test_after_twenty_explanations_the_schedulers_reason_is_shown(tmp_path: Path):
    waiting = [clusters.claim(f"c{index:02}", clusters.exactly("gpu", clusters.GPU, count=3)) for index in range(22)]
    shown = drawn(tmp_path / "a.html", clusters.gpus("n1"), waiting)
    assert "claim c20, claim c21 0 of 1 nodes: no devices for claim" in shown or "claim c20 0 of 1 nodes" in shown


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"cannot write .*: No such file or directory"):
        write_picture(schedule(clusters.cluster()), tmp_path / "no" / "a.html")


CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "cpus"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]},
}


def cpu_claim(name: str, amount: int) -> dict[str, object]:
    request = {"deviceClassName": "cpus", "capacity": {"requests": {"dra.cpu/cpu": str(amount)}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "cpu", "exactly": request}]}},
    }


def test_a_driver_draws_the_planned_claims_of_each_of_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    regular_machine(cores=4).write(tmp_path / "host")
    objects = tmp_path / "claims.json"
    items = [CLASS, cpu_claim("big", 5), cpu_claim("small", 2), cpu_claim("other", 4)]
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    flags = ["--driver", "cpu", "--fixture", str(tmp_path / "host"), "--node", "n1", "--node", "n2"]
    assert main(["simulate", *flags, str(objects), "--picture", str(tmp_path / "a.html")]) == 0
    text = (tmp_path / "a.html").read_text()
    first, second = [part.partition("</pre>")[0].splitlines() for part in text.split('class="driver-picture">')[1:]]
    assert [line for line in first if line] == [
        "SOCKET  NUMA  L3  CPUS  CORES",
        "0       0     0   0-7   .A AA AA BB",
        "A  default/big    1-2,4-6",
        "B  default/small  3,7",
        ".  shared by all other containers: 0",
    ]
    assert "A  default/other  1-2,5-6" in second
    assert "note: the picture" not in capsys.readouterr().err


def test_a_driver_that_cannot_draw_planned_claims_is_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = ["--driver", "tests.cli.cards:Drawing", "--fixture", str(make_cards(tmp_path / "host"))]
    assert main(["simulate", *flags, "--picture", str(tmp_path / "a.html")]) == 0
    assert "<pre" not in (tmp_path / "a.html").read_text()
    assert "note: the picture has none of driver tests.cli.cards:Drawing: " in capsys.readouterr().err


# -- the examples, as their first lines say


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_has_the_expected_outcome(name, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    result = runner(capsys)(*command(name), "-o", "json")
    claims = claims_of(result.out)
    expected = {key: value for key, value in EXPECTED[name].items() if value is not None}
    assert got(claims) == expected
    assert result.status == (0 if len(expected) == len(EXPECTED[name]) else 1)
    for claim in claims:
        stored = claim | {"metadata": claim["metadata"] | {"resourceVersion": "1"}}
        before = {key: value for key, value in stored.items() if key != "status"}
        assert validate(stored, old=before, subresource="status") == [], claim["metadata"]["name"]


def test_every_example_is_tested():
    files = {
        str(path.relative_to(EXAMPLES).with_suffix(""))
        for path in EXAMPLES.rglob("*.yaml")
        if path.parent.name != "nodes"
    }
    assert files - {"classes"} == set(EXPECTED)


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_an_api_server_would_accept_the_objects_of_an_example(path, capsys):
    result = runner(capsys)("validate", path)
    assert result.status == 0, result.out


def configs(name, capsys, monkeypatch, claim=0):
    monkeypatch.chdir(ROOT)
    claims = claims_of(runner(capsys)(*command(name), "-o", "json").out)
    return [
        (entry["source"], entry.get("requests"), entry["opaque"]["parameters"].get("sharing"))
        for entry in claims[claim]["status"]["allocation"]["devices"]["config"]
    ]


def test_the_users_time_slicing_reaches_the_driver(capsys, monkeypatch):
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    assert configs("gpu-use-cases/04-time-slicing", capsys, monkeypatch) == [("FromClaim", ["gpu"], sharing)]


def test_the_users_mps_limits_reach_the_driver(capsys, monkeypatch):
    limits = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
    sharing = {"strategy": "MPS", "mpsConfig": limits}
    assert configs("gpu-use-cases/05-mps", capsys, monkeypatch) == [("FromClaim", ["gpu"], sharing)]


def test_each_request_of_an_application_has_its_own_policy(capsys, monkeypatch):
    entries = configs("gpu-use-cases/12-application-policies", capsys, monkeypatch)
    assert [(requests, sharing["strategy"]) for _, requests, sharing in entries] == [
        (["prefill"], "TimeSlicing"),
        (["decode"], "MPS"),
    ]


def test_devices_of_a_claim_are_aligned(capsys, monkeypatch):
    """By the attributes in the slices, not by names."""
    monkeypatch.chdir(ROOT)
    given = command("gpu-use-cases/08-gpu-nic-alignment")
    documents = [document for name in given[1:] for document in yaml.safe_load_all((ROOT / name).read_text())]
    root = {
        (document["spec"]["driver"], device["name"]): device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"]
        for document in documents
        if document["kind"] == "ResourceSlice"
        for device in document["spec"]["devices"]
    }
    for claim in claims_of(runner(capsys)(*given, "-o", "json").out):
        results = claim["status"]["allocation"]["devices"]["results"]
        at = {result["request"]: root[result["driver"], result["device"]] for result in results}
        assert at["gpu-a"] == at["nic-a"]
        assert at["gpu-b"] == at["nic-b"]
        assert at["gpu-a"] != at["gpu-b"]


def test_shares_of_a_gpu_never_add_up_to_more_than_it_has(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    claims = claims_of(runner(capsys)(*command("gpu-use-cases/01-controlled-sharing"), "-o", "json").out)
    used: dict[str, int] = {}
    for claim in claims:
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["consumedCapacity"]["memory"] == "24Gi"
        used[result["device"]] = used.get(result["device"], 0) + 24
    assert used == {"gpu-0": 72, "gpu-1": 24}


@pytest.mark.parametrize(("page", "number"), [("simulate", 0), ("simulate", 1), ("simulate", 2), ("explain", 1)])
def test_the_documentation_shows_the_real_output(page, number, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / f"{page}.md").read_text()
    given, _, shown = text.split("\n$ dra-sdk ")[number + 1].partition("\n```")[0].partition("\n")
    assert runner(capsys)(*shlex.split(given)).out == f"{shown}\n"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("gpu-use-cases/10-dynamic-mig", "Yes: 1 more node like dyn-1 would be enough for small."),
        ("pizza", "No: no node like the existing ones would change anything."),
    ],
)
def test_the_advice_for_an_example(name, advice, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert runner(capsys)(*command(name)).out.endswith(f"Would a new node help? {advice}\n")
