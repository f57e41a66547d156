"""The examples in docs/examples: each is run as its first lines say, and must come out as they say."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml

from dra_sdk.wire.validation import validate
from tests.cli.commands import EXAMPLES, runner

ROOT = EXAMPLES.parents[1]
#: Example → where each pod runs, and its devices by request; None for a pod or claim that gets none.
EXPECTED = {
    "gpu-use-cases/01-controlled-sharing": {
        "team-a/notebook-1": ("shared-1", {"gpu": ["gpu-0"]}),
        "team-a/notebook-2": ("shared-1", {"gpu": ["gpu-0"]}),
        "team-b/notebook-1": ("shared-1", {"gpu": ["gpu-0"]}),
        "team-b/notebook-2": ("shared-1", {"gpu": ["gpu-1"]}),
    },
    "gpu-use-cases/02-complex-constraints": {
        "default/train": ("hpc-1", {"gpu": ["gpu-3"], "vf": ["pci-0000-9f-00-1"]})
    },
    "gpu-use-cases/03-several-gpu-types": {
        "default/train": ("mixed-1", {"gpu": ["gpu-2"]}),
        "default/infer": ("mixed-1", {"gpu": ["gpu-0"]}),
        "default/anything": ("mixed-1", {"container-0-request-0": ["gpu-1"]}),
    },
    "gpu-use-cases/04-time-slicing": {
        "default/simulation-1": ("mixed-1", {"gpu": ["gpu-0"]}),
        "default/simulation-2": ("mixed-1", {"gpu": ["gpu-0"]}),
    },
    "gpu-use-cases/05-mps": {"default/chat": ("mixed-1", {"gpu": ["gpu-0"]})},
    "gpu-use-cases/06-vfio": {
        "default/container": ("vm-1", {"gpu": ["gpu-0"]}),
        "default/machine-1": ("vm-1", {"gpu": ["gpu-vfio-1"]}),
        "default/machine-2": None,
    },
    "gpu-use-cases/07-management": {
        "default/train": ("mixed-1", {"gpu": ["gpu-0"]}),
        "gpu-operations/monitor": ("mixed-1", {"gpus": ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]}),
        "default/batch": ("mixed-1", {"gpu": ["gpu-1"]}),
    },
    "gpu-use-cases/08-gpu-nic-alignment": {
        "default/worker-0": (
            "rail-1",
            {
                "gpu-a": ["gpu-0"],
                "nic-a": ["pci-0000-9f-00-0"],
                "gpu-b": ["gpu-1"],
                "nic-b": ["pci-0000-65-00-0"],
            },
        ),
        "default/worker-1": (
            "rail-1",
            {
                "gpu-a": ["gpu-2"],
                "nic-a": ["pci-0000-3f-00-0"],
                "gpu-b": ["gpu-3"],
                "nic-b": ["pci-0000-1a-00-0"],
            },
        ),
    },
    "gpu-use-cases/09-mig-alignment": {
        "default/stream": (
            "mig-1",
            {
                "compute": ["gpu-1-mig-3g20gb-9-0"],
                "decode": ["gpu-1-mig-1g5gb-19-6"],
                "nic": ["pci-0000-3f-00-1"],
            },
        )
    },
    "gpu-use-cases/10-dynamic-mig": {
        "default/half-1": ("dyn-1", {"mig": ["gpu-0-mig-3g40gb-9-4"]}),
        "default/half-2": ("dyn-1", {"mig": ["gpu-0-mig-3g40gb-9-0"]}),
        "default/whole": ("dyn-1", {"container-0-request-0": ["gpu-1"]}),
        "default/small": None,
    },
    "gpu-use-cases/11-mig-shared-memory": {
        "default/agent": (
            "sub-1",
            {"planner": ["gpu-0-mig-2c3g20gb-ci0-9-0"], "tools": ["gpu-0-mig-1c3g20gb-ci1-9-0"]},
        ),
        "default/worker-1": ("sub-1", {"mig": ["gpu-0-mig-1c3g20gb-ci0-9-4"]}),
        "default/worker-2": ("sub-1", {"mig": ["gpu-0-mig-1c3g20gb-ci1-9-4"]}),
        "default/whole": None,
    },
    "gpu-use-cases/12-application-policies": {
        "default/replica-1": ("mixed-1", {"prefill": ["gpu-2"], "decode": ["gpu-0"]}),
        "default/replica-2": ("mixed-1", {"prefill": ["gpu-2"], "decode": ["gpu-0"]}),
    },
    "priorities": {
        "default/notebook": ("gpu-a", {"gpus": ["gpu-0", "gpu-1"]}),
        "default/serve": ("gpu-b", {"gpu": ["gpu-0"]}),
        "default/batch": None,
        "default/train": None,
    },
    "mig-by-cel": {
        "large-1": (None, {"mig": ["gpu-0-mig-3g20gb-9-0"]}),
        "large-2": (None, {"mig": ["gpu-1-mig-3g20gb-9-0"]}),
        "large-3": None,
    },
    "prioritized-alternatives": {
        "default/replica-1": ("mixed-1", {"gpu/a100": ["gpu-2"]}),
        "default/replica-2": ("mixed-1", {"gpu/a100": ["gpu-3"]}),
        "default/replica-3": ("mixed-1", {"gpu/l4": ["gpu-0", "gpu-1"]}),
    },
    "cpu-numa": {
        "default/database": ("numa-1", {"cpus": ["cpudevnuma000"]}),
        "default/cache": ("numa-1", {"cpus": ["cpudevnuma001"]}),
        "default/balanced": ("numa-1", {"near": ["cpudevnuma000"], "far": ["cpudevnuma001"]}),
    },
    "cpu-memory": {
        "default/packets": ("numa-1", {"cpus": ["cpudevnuma000"], "hugepages": ["hugepages-2mi-numa0"]}),
        "default/database": (
            "numa-1",
            {"cpus": ["cpudevnuma001"], "memory": ["memory-numa1"], "hugepages": ["hugepages-2mi-numa1"]},
        ),
    },
    "nic/gpu-and-vf": {
        "default/train-0": ("net-1", {"gpu": ["gpu-0"], "nic": ["pci-0000-9e-00-2"]}),
        "default/train-1": ("net-1", {"gpu": ["gpu-1"], "nic": ["pci-0000-3b-00-2"]}),
        "default/train-2": None,
    },
    "nic/dpdk": {"default/packets": ("net-1", {"ports": ["pci-0000-18-0a-0", "pci-0000-18-0a-1"]})},
    "nic/kubevirt": {"default/virt-launcher-machine": ("net-1", {"nic": ["pci-0000-9e-00-2"]})},
    "nic/macvlan": {
        "default/web-0": ("net-1", {"nic": ["pci-0000-04-00-0"]}),
        "default/web-1": ("net-1", {"nic": ["pci-0000-04-00-0"]}),
        "default/web-2": None,
        "default/logs": ("net-1", {"nic": ["pci-0000-04-00-0"]}),
    },
    "hardware-cpu": {
        "default/neutral": ("amd-1", {"cpus": ["socket-0"]}),
        "default/for-amd": ("amd-1", {"cpus": ["socket-0"]}),
        "default/for-arm": ("arm-1", {"cpus": ["socket-0"]}),
        "default/for-amx": ("intel-1", {"cpus": ["socket-0"]}),
    },
    "pizza": {
        "alice": (None, {"lunch": ["margherita"]}),
        "bob": (None, {"lunch": ["funghi"]}),
        "carol": (None, {"lunch/spicy": ["diavola"]}),
        "dave": None,
    },
}


def command(name: str) -> list[str]:
    """The arguments that the example's own first lines name."""
    lines = (EXAMPLES / f"{name}.yaml").read_text().splitlines()
    (given,) = [line.removeprefix("# dra-sdk ") for line in lines if line.startswith("# dra-sdk simulate ")]
    return shlex.split(given)


def got(claims) -> dict:
    """Node and devices by request for each pod, from the claims alone; a claim that no pod uses stands for itself."""
    found: dict = {}
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation", {})
        reserved = claim.get("status", {}).get("reservedFor", ())
        users = [f"{claim['metadata']['namespace']}/{each['name']}" for each in reserved]
        for user in users or [claim["metadata"]["name"]] if allocation else ():
            selector = allocation.get("nodeSelector")
            node = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"][0] if selector and users else None
            devices = found.setdefault(user, (node, {}))[1]
            for result in allocation["devices"]["results"]:
                devices.setdefault(result["request"], []).append(result["device"])
    return found


def claims_of(printed):
    return [each for each in json.loads(printed)["items"] if each["kind"] == "ResourceClaim"]


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
        (each["source"], each.get("requests"), each["opaque"]["parameters"].get("sharing"))
        for each in claims[claim]["status"]["allocation"]["devices"]["config"]
    ]


def test_the_users_time_slicing_reaches_the_driver(capsys, monkeypatch):
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    assert configs("gpu-use-cases/04-time-slicing", capsys, monkeypatch) == [("FromClaim", ["gpu"], sharing)]


def test_the_users_mps_limits_reach_the_driver(capsys, monkeypatch):
    limits = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
    sharing = {"strategy": "MPS", "mpsConfig": limits}
    assert configs("gpu-use-cases/05-mps", capsys, monkeypatch) == [("FromClaim", ["gpu"], sharing)]


def test_each_request_of_an_application_has_its_own_policy(capsys, monkeypatch):
    found = configs("gpu-use-cases/12-application-policies", capsys, monkeypatch)
    assert [(requests, sharing["strategy"]) for _, requests, sharing in found] == [
        (["prefill"], "TimeSlicing"),
        (["decode"], "MPS"),
    ]


def test_devices_of_a_claim_are_aligned(capsys, monkeypatch):
    """By the attributes in the slices, not by names."""
    monkeypatch.chdir(ROOT)
    given = command("gpu-use-cases/08-gpu-nic-alignment")
    documents = [each for name in given[1:] for each in yaml.safe_load_all((ROOT / name).read_text())]
    root = {
        (each["spec"]["driver"], device["name"]): device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"]
        for each in documents
        if each["kind"] == "ResourceSlice"
        for device in each["spec"]["devices"]
    }
    for claim in claims_of(runner(capsys)(*given, "-o", "json").out):
        results = claim["status"]["allocation"]["devices"]["results"]
        at = {each["request"]: root[each["driver"], each["device"]] for each in results}
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
