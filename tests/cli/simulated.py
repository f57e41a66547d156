"""Clusters as text for `simulate`, and the examples of the documentation with what must come out."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.commands import EXAMPLES, Run, runner

ROOT = EXAMPLES.parents[1]

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


def claim_text(name, expression='device.driver == "gpu.example.com"'):
    return CLAIM.replace("NAME", name).replace("EXPRESSION", expression)


def pod_text(name):
    return POD.replace("NAME", name)


def simulating(capsys: pytest.CaptureFixture[str], folder: Path, changed: pytest.MonkeyPatch) -> Run:
    """Return what runs `simulate` in a folder on a text, which becomes `cluster.yaml`, with further arguments."""
    go = runner(capsys)
    changed.chdir(folder)

    def simulate(text, *arguments):
        (folder / "cluster.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return go("simulate", "cluster.yaml", *arguments)

    return simulate


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
    placements: dict = {}
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation", {})
        reserved = claim.get("status", {}).get("reservedFor", ())
        users = [f"{claim['metadata']['namespace']}/{consumer['name']}" for consumer in reserved]
        for user in users or [claim["metadata"]["name"]] if allocation else ():
            selector = allocation.get("nodeSelector")
            node = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"][0] if selector and users else None
            devices = placements.setdefault(user, (node, {}))[1]
            for result in allocation["devices"]["results"]:
                devices.setdefault(result["request"], []).append(result["device"])
    return placements


def claims_of(printed):
    return [obj for obj in json.loads(printed)["items"] if obj["kind"] == "ResourceClaim"]
