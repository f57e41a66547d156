from __future__ import annotations

import json

import pytest
import yaml

from dra_sdk.cli.main import main
from tests.tools.scheduling.clusters import GPU, claim, cluster, exactly, gpus, pod, with_devices
from tests.tools.scheduling.explain import situations

UNKNOWN = "dra-sdk: there is no claim"
CLAIMS = "claims are: old-gpu-0, old-gpu-1, o, c"
OBJECTS = ("nodes", "slices", "classes", "claims", "pods")


@pytest.fixture
def run(capsys, tmp_path):
    """Run the command on the objects of a snapshot in a file; status, stdout and stderr."""

    def go(snapshot, *arguments):
        path = tmp_path / "cluster.yaml"
        if isinstance(snapshot, str):
            path.write_text(snapshot)
        else:
            objects = [obj for kind in OBJECTS for obj in getattr(snapshot, kind)]
            path.write_text(yaml.safe_dump_all([json.loads(json.dumps(obj)) for obj in objects]))
        status = main(["explain", str(path), *arguments])
        return status, *capsys.readouterr()

    return go


def test_a_claim_is_explained(run):
    status, out, err = run(situations.taken(), "--claim", "default/c")
    assert status == 1
    assert out.startswith(
        "claim c cannot be allocated on any of 2 nodes: request gpu: 1 of 2 free (1 in use), 2 needed\n\non n2"
    )
    assert err == ""


def test_a_claim_that_can_be_allocated(run):
    status, out, _ = run(situations.alternatives(), "--claim", "c")
    assert status == 0
    assert out.startswith("claim c can be allocated on n1")


def test_a_pod_or_everything_that_waits_is_explained(run):
    status, one, _ = run(situations.together(), "--pod", "p")
    assert (status, one.startswith("pod p cannot run")) == (1, True)
    assert run(situations.together())[1] == one
    assert run(situations.taken())[1].startswith("claim c cannot be allocated")


def test_no_value_can_forge_a_line_or_turn_one_round(run):
    """What breaks a line for `str.splitlines` was a line of its own, and was printed as it is."""
    hostile = "x\x85claim c can be allocated\u2028on n1\u2029\u202ed\x0be\x1b[2J"
    pool = gpus("n1")
    for device in pool["spec"]["devices"]:
        device["attributes"]["model"] = {"string": hostile}
    selector = "device.attributes['gpu.nvidia.com'].model == 'h100'"
    status, out, _ = run(cluster(pool, claim("c", exactly("gpu", GPU, selector))), "--claim", "c")
    assert status == 1
    assert all(line.isprintable() for line in out.split("\n"))
    assert "x\\x85claim c can be allocated\\u2028on n1\\u2029\\u202ed" in out


def test_a_pod_that_has_a_node_and_does_not_run_yet_is_status_1(run):
    held = with_devices(claim("c", exactly("gpu", GPU)), ("gpu", "gpu.nvidia.com", "n1", "gpu-0"), node="n1", pod="p")
    user = pod("p", "c", node="n1")
    user["metadata"]["uid"] = held["status"]["reservedFor"][0]["uid"]
    assert run(cluster(gpus("n1"), held, user), "--pod", "p")[1].startswith("pod p runs on n1\n")
    containers = [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    user["status"] = {"phase": "Pending", "containerStatuses": containers}
    status, out, _ = run(cluster(gpus("n1"), held, user), "--pod", "p")
    assert status == 1
    assert out.startswith(
        "pod p is on n1 and does not run yet: container main waits (ContainerCreating); its devices are"
    )
    user["status"] = {"phase": "Running"}
    assert run(cluster(gpus("n1"), held, user), "--pod", "p")[0] == 0


def test_a_pod_without_a_node_can_run_where_it_fits(run):
    snapshot = cluster(gpus("n1"), claim("c", exactly("gpu", GPU)), pod("p", "c"))
    assert run(snapshot, "--pod", "p")[1].startswith("pod p can run on n1\n")


def test_nothing_that_waits_is_status_0(run):
    snapshot = cluster(gpus("n1"), claim("c", exactly("gpu", GPU)), pod("p", "c"))
    assert run(snapshot)[:2] == (0, "Every pod has a node, and every claim has its devices.\n")


def test_the_explanation_is_limited_to_one_node(run):
    assert run(situations.taken(), "--claim", "c", "--on", "n1")[1].startswith("claim c cannot be allocated on n1")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_explanations_are_printed_as_objects(run, output, read):
    status, out, _ = run(situations.memory(), "-o", output)
    (explanation,) = read(out)
    assert status == 1
    assert explanation["changes"][0]["text"] == 'request gpu, selector 0: change "80Gi" to "40Gi"'
    assert explanation["reports"][0]["nodes"] == ["a0", "a1", "a2", "a3", "a4"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--claim", "x"), f"{UNKNOWN} x; {CLAIMS}\n"),
        (("--claim", "team/c"), f"{UNKNOWN} team/c; {CLAIMS}; did you mean c?\n"),
        (("--claim", "old-gpu"), f"{UNKNOWN} old-gpu; {CLAIMS}; did you mean old-gpu-1?\n"),
        (("--pod", "x"), "dra-sdk: there is no pod x that waits or runs; pods are: none\n"),
        (("--claim", "c", "--on", "n7"), "dra-sdk: there is no node n7; nodes are: n1, n2\n"),
    ],
)
def test_an_unknown_name_is_an_error(run, arguments, said):
    assert run(situations.taken(), *arguments) == (2, "", said)


def test_bad_input_is_an_error(run, capsys):
    status, out, err = run("kind: ResourceClaim\napiVersion: resource.k8s.io/v1\nmetadata: {name: c}\nspec: 3\n")
    assert (status, out) == (2, "")
    assert "cluster.yaml:4: ResourceClaim/c: spec" in err
    with pytest.raises(SystemExit):
        run(situations.taken(), "--claim", "c", "--pod", "p")
    assert "not allowed with argument" in capsys.readouterr().err


def test_control_characters_in_names_are_escaped(run):
    slices = gpus("n1", model="\x1b[31mred")
    expression = 'device.attributes["gpu.nvidia.com"].productName == "blue"'
    _, out, _ = run(cluster(slices, claim("c", exactly("gpu", GPU, expression))))
    assert "\x1b" not in out
    assert "[31mred" in out


def test_an_unknown_node_is_an_error_even_if_nothing_waits(run):
    status, out, err = run("", "--on", "nowhere")
    assert (status, out) == (2, "")
    assert err.startswith("dra-sdk: there is no node nowhere; nodes are: none")


LAMP = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: lamp.example.com
  nodeName: node-a
  pool: {name: a, generation: 1, resourceSliceCount: 1}
  devices: [{name: lamp-0}]
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: lamp}, spec: {}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: lamp, exactly: {deviceClassName: lamp}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: m}], resourceClaims: [{name: c, resourceClaimName: c}]}
"""


def test_the_cluster_after_a_change_is_explained(run):
    assert run(LAMP)[0] == 0
    status, out, _ = run(LAMP, "--lose-node", "node-a")
    assert status == 1
    assert "pod p cannot run" in out
    status, out, _ = run(LAMP, "--lose", "lamp.example.com/a/lamp-0", "--claim", "c")
    assert status == 1
    assert "claim c" in out
