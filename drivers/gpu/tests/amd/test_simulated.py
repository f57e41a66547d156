"""Ways to ask for AMD GPUs: allocated by `dra-sdk simulate` from what the driver finds on a node made of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_driver_amd.testing import RX7900XTX, FakeAmdGpu, mi300x, write_gpus

from dra_sdk.cli.main import main

SPX, CPX = [mi300x()] * 8, [mi300x("cpx", "nps4")] * 8


@pytest.fixture
def simulate(manifests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The devices of a claim with these requests on a node with these GPUs; none if it cannot be allocated."""

    def run(gpus: list[FakeAmdGpu], *requests: dict[str, Any], **spec: Any) -> list[str]:
        write_gpus(tmp_path / "node", gpus)
        devices = {"requests": [{"name": f"r{n}", "exactly": request} for n, request in enumerate(requests)], **spec}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "claim"},
            "spec": {"devices": devices},
        }
        (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
        files = [str(manifests), str(tmp_path / "claim.yaml")]
        status = main(["simulate", *files, "--driver", "gpu-amd", "--fixture", str(tmp_path / "node"), "-o", "json"])
        out, err = capsys.readouterr()
        assert status in {0, 1}, err
        (allocated,) = [item for item in json.loads(out)["items"] if item["kind"] == "ResourceClaim"]
        allocation = allocated.get("status", {}).get("allocation", {"devices": {"results": []}})
        return [result["device"] for result in allocation["devices"]["results"]]

    return run


def ask(kind: str, *expressions: str, count: int = 1) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"deviceClassName": kind, "count": count, **({"selectors": selectors} if selectors else {})}


def test_eight_whole_gpus(simulate: Callable[..., list[str]]) -> None:
    devices = simulate(SPX, ask("whole.gpu.amd.com", count=8))
    assert devices == [f"gpu-{1 + 8 * n}-{128 + 8 * n}" for n in range(8)]


def test_a_whole_gpu_is_none_of_its_partitions(simulate: Callable[..., list[str]]) -> None:
    assert simulate(CPX, ask("whole.gpu.amd.com")) == []


def test_as_many_partitions_as_a_claim_can_have(simulate: Callable[..., list[str]]) -> None:
    assert len(simulate(CPX, ask("partition.gpu.amd.com", count=32))) == 32


def test_partitions_of_one_gpu(simulate: Callable[..., list[str]]) -> None:
    same = [{"requests": ["r0"], "matchAttribute": "resource.kubernetes.io/pciBusID"}]
    assert len(simulate(CPX, ask("partition.gpu.amd.com", count=8), constraints=same)) == 8


def test_four_gpus_of_one_numa_node(simulate: Callable[..., list[str]]) -> None:
    same = [{"requests": ["r0"], "matchAttribute": "resource.kubernetes.io/numaNode"}]
    devices = simulate(SPX, ask("whole.gpu.amd.com", count=4), constraints=same)
    assert devices == ["gpu-1-128", "gpu-17-144", "gpu-33-160", "gpu-49-176"]


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["gpu.amd.com"].family == "AI"',
        'device.attributes["gpu.amd.com"].gfxTarget == "gfx942"',
        'device.attributes["gpu.amd.com"].gfxVersion.isLessThan(semver("10.0.0"))',
        'device.capacity["gpu.amd.com"].memory.compareTo(quantity("100Gi")) > 0',
        'device.attributes["gpu.amd.com"].?memoryPartition.orValue("") == "nps1"',
    ],
)
def test_a_gpu_by_its_kind(simulate: Callable[..., list[str]], expression: str) -> None:
    assert simulate([RX7900XTX, mi300x()], ask("gpu.amd.com", expression)) == ["gpu-2-129"]


def test_virtual_functions(simulate: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_AMD_PASSTHROUGH", "true")
    gpus = [mi300x(driver="gim", vfs=2), mi300x()]
    devices = simulate(gpus, ask("vfio.gpu.amd.com", 'device.attributes["gpu.amd.com"].isVF', count=2))
    assert devices == ["gpu-vfio-0000-c1-02-0", "gpu-vfio-0000-c1-02-1"]


def test_a_vfio_device_is_no_gpu_for_a_container(
    simulate: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRA_AMD_PASSTHROUGH", "true")
    assert simulate([mi300x(driver="vfio-pci")], ask("gpu.amd.com")) == []
