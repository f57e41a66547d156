"""The compute partition mode of a whole GPU, changed for a claim and changed back."""

from __future__ import annotations

from typing import Any

import pytest
from dra_driver_amd import GpuConfig
from dra_driver_amd.testing import RX7900XTX, mi300x

from dra_sdk import ConfigError, PermanentError, RetriableError
from dra_sdk.testing import claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
MODE = "current_compute_partition"
GPU = "0000:c1:00.0"


def divided(mode: str = "CPX", name: str = "gpu", **more: Any) -> Any:
    config = {"apiVersion": GpuConfig.api_version, "kind": "GpuConfig", "computePartition": mode}
    return claim(request(name, **more), config=config)


@pytest.mark.parametrize(("mode", "parts"), [("DPX", 2), ("QPX", 4), ("CPX", 8)])
def test_a_claim_gets_all_partitions_of_a_gpu_that_is_divided_for_it(make_node: Any, mode: str, parts: int) -> None:
    made = make_node(mi300x(), mi300x(), partitioning=True)
    before = made.driver.devices
    prepared = made.driver.prepare(divided(mode))
    assert made.read(MODE) == mode
    nodes = {"/dev/kfd", *(f"/dev/dri/card{n + 1}" for n in range(parts))}
    nodes |= {f"/dev/dri/renderD{n + 128}" for n in range(parts)}
    assert set(prepared.container().devices) == nodes
    made.driver.discover()
    assert made.driver.devices == before
    made.driver.restart()
    made.driver.discover()
    assert made.driver.devices == before
    made.driver.unprepare(prepared)
    assert made.read(MODE) == "SPX"
    assert made.records() == []
    made.driver.discover()
    assert made.driver.devices == before
    made.driver.assert_clean()


def test_the_mode_that_a_gpu_has_needs_no_change(make_node: Any) -> None:
    made = make_node(mi300x())
    prepared = made.driver.prepare(divided("SPX"))
    assert len(prepared.container().devices) == 3
    assert made.effects.calls == []


def test_a_mode_is_refused_unless_the_operator_allows_it(make_node: Any) -> None:
    made = make_node(mi300x())
    with pytest.raises(PermanentError, match="computePartition CPX: DRA_AMD_PARTITIONING is off on this node"):
        made.driver.prepare(divided())
    assert made.effects.calls == []


@pytest.mark.parametrize(("gpu", "mode", "has"), [(RX7900XTX, "CPX", "none"), (mi300x(), "TPX", "SPX, DPX, QPX, CPX")])
def test_a_mode_that_a_gpu_lacks_is_a_permanent_error(make_node: Any, gpu: Any, mode: str, has: str) -> None:
    made = make_node(gpu, partitioning=True)
    message = f"GPU gpu-1-128 has no compute partition mode {mode}; it has: {has}"
    with pytest.raises(PermanentError, match=message):
        made.driver.prepare(divided(mode))
    assert made.records() == []


def test_a_partition_cannot_be_divided(make_node: Any) -> None:
    made = make_node(mi300x("cpx"), partitioning=True)
    with pytest.raises(ConfigError, match="computePartition DPX cannot apply to device gpu-1-128, a partition of"):
        made.driver.prepare(divided("DPX"))
    assert len(made.driver.prepare(divided("CPX")).container().devices) == 3


def test_an_unknown_mode_is_an_error(make_node: Any) -> None:
    with pytest.raises(ConfigError, match="computePartition"):
        make_node(mi300x(), partitioning=True).driver.prepare(divided("cpx"))


def test_a_gpu_in_use_is_not_divided(make_node: Any) -> None:
    made = make_node(mi300x(), partitioning=True)
    asked = divided()
    made.open_by(77, "/dev/dri/renderD128")
    with pytest.raises(RetriableError, match="was still in use after 0 s, by processes 77"):
        made.driver.prepare(asked)
    assert made.read(MODE) == "SPX"
    made.close(77)
    made.driver.prepare(asked)
    assert made.read(MODE) == "CPX"


def test_a_partition_in_use_keeps_its_gpu_divided(make_node: Any) -> None:
    made = make_node(mi300x(), partitioning=True)
    prepared = made.driver.prepare(divided())
    made.open_by(77, "/dev/dri/renderD133")
    with pytest.raises(RetriableError, match="by processes 77"):
        made.driver.unprepare(prepared)
    assert made.read(MODE) == "CPX"
    made.close(77)
    made.driver.unprepare(prepared)
    assert made.read(MODE) == "SPX"


def test_a_monitor_sees_all_partitions_and_changes_nothing(make_node: Any) -> None:
    made = make_node(mi300x(), partitioning=True)
    made.driver.prepare(divided())
    monitor = made.driver.prepare(divided("DPX", "monitor", admin_access=True))
    assert len(monitor.container().devices) == 17
    made.driver.unprepare(monitor)
    assert made.read(MODE) == "CPX"


def test_after_a_reboot_there_is_nothing_to_undo(make_node: Any) -> None:
    made = make_node(mi300x(), partitioning=True)
    prepared = made.driver.prepare(divided())
    made.driver.reboot()
    calls = len(made.effects.calls)
    made.driver.unprepare(prepared)
    assert len(made.effects.calls) == calls
    made.driver.assert_clean()


def test_a_gpu_that_is_gone_does_not_keep_its_claim(make_node: Any) -> None:
    made = make_node(mi300x(), partitioning=True)
    prepared = made.driver.prepare(divided())
    made.node.remove(f"/sys/bus/pci/devices/{GPU}")
    made.driver.unprepare(prepared)
    assert made.records() == []


def test_a_change_that_no_claim_holds_is_undone_by_the_next_claim(make_node: Any) -> None:
    made = make_node(mi300x(), mi300x(), partitioning=True)
    prepared = made.driver.prepare(divided())
    for path in made.driver.data.rglob("*.json"):
        path.unlink()
    made.driver.cluster.claims.clear()
    made.driver.restart()
    where = 'device.attributes["gpu.amd.com"].cardIndex == 9'
    made.driver.prepare(claim(request("other", where=where)))
    assert made.read(MODE) == "SPX"
    assert made.records() == []
    assert prepared.names == ["gpu-1-128"]


def test_a_refused_write_leaves_the_gpu_as_it_was(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_node(mi300x(memory="nps4"), partitioning=True)
    made.node.file(f"/sys/bus/pci/devices/{GPU}/available_compute_partition", "SPX, CPX\n")
    taken = made.driver.allocate(divided())
    write = made.effects.write

    def refuse(path: Any, text: str, timeout: float | None = None) -> None:
        made.node.file(f"/sys/bus/pci/devices/{GPU}/available_compute_partition", "SPX\n")
        write(path, text, timeout)

    monkeypatch.setattr(made.effects, "write", refuse)
    with pytest.raises(RetriableError, match=r"cannot write 'CPX' to .*: Invalid argument"):
        made.driver.prepare(taken)
    assert made.read(MODE) == "SPX"
    assert made.records() == []


def test_a_gpu_with_a_damaged_record_is_left_out_and_others_are_not(make_node: Any) -> None:
    made = make_node(mi300x(), mi300x(), partitioning=True)
    made.driver.prepare(divided())
    made.node.file(f"/s/gpus/{GPU}/record.json", "{")
    made.driver.discover()
    assert list(made.driver.devices) == ["gpu-9-136"]
    made.driver.prepare(claim("other"))
