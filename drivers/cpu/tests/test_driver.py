from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dra_driver_cpu import CpuConfig, CpuDriver
from dra_driver_cpu.config import NodeSettings
from dra_driver_cpu.pick import CoreAlignmentError, NotEnoughCpusError

from dra_sdk import (
    AllocatedDevice,
    Claim,
    DraError,
    HeldClaim,
    HeldDevice,
    Node,
    PermanentError,
    PreparedDevice,
    Quantity,
)
from dra_sdk.hardware import parse_cpuset
from dra_sdk.testing.sysfs import regular_machine

UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    regular_machine(sockets=2, cores=4).write(tmp_path)  # CPUs 0-3,8-11 and 4-7,12-15
    return Node("node-a", tmp_path)


def device(
    request: str, cpus: str | None, numa: int = 0, config: CpuConfig | None = None
) -> AllocatedDevice[CpuConfig]:
    consumed = {} if cpus is None else {"dra.cpu/cpu": Quantity(cpus)}
    return AllocatedDevice(
        request, "node-a", f"cpudevnuma{numa:03d}", config or CpuConfig(), consumed_capacity=consumed
    )


def held(cpus: str) -> HeldClaim:
    return HeldClaim("ns", "other", "1", [HeldDevice("r", "node-a", "cpudevnuma000", data={"cpus": cpus})])


def prepare(node: Node, *devices: AllocatedDevice[Any], others: tuple[HeldClaim, ...] = ()) -> list[PreparedDevice]:
    driver = CpuDriver(NodeSettings(parse_cpuset("0")))
    return list(driver.dra_prepare(Claim("ns", "c", UID, node, devices, held=lambda: others)))


def test_a_claim_with_one_request_has_the_names_that_users_know(node: Node) -> None:
    (prepared,) = prepare(node, device("cpu", "2"))
    assert prepared.edits.env == {f"DRA_CPUSET_{UID}": "1,9"}
    assert prepared.cdi_name == f"claim-{UID}"
    assert prepared.data == {"cpus": "1,9"}


def test_what_others_hold_and_what_is_reserved_is_not_given_out(node: Node) -> None:
    (prepared,) = prepare(node, device("cpu", "4"), others=(held("1-2"), held("9")))
    assert prepared.data == {"cpus": "3,8,10-11"}
    with pytest.raises(NotEnoughCpusError, match="need 5 CPUs, have 4"):
        prepare(node, device("cpu", "5"), others=(held("1-2"), held("9")))


def test_each_request_has_its_own_cdi_device_and_all_its_cpus(node: Node) -> None:
    one, other, far = prepare(node, device("a", "2"), device("b", "1"), device("b", "2", numa=1))
    assert one.edits.env == {f"DRA_CPUSET_{UID}_a": "1,9"}
    assert other.edits == far.edits
    assert other.cdi_name == far.cdi_name == f"claim-{UID}_b"
    assert other.edits.env == {f"DRA_CPUSET_{UID}_b": "4,8,12"}


def test_a_subrequest_belongs_to_its_request(node: Node) -> None:
    (prepared,) = prepare(node, device("cpu/big", "1"))
    assert prepared.cdi_name == f"claim-{UID}"


def test_the_whole_node_where_capacity_cannot_be_shared(node: Node) -> None:
    (prepared,) = prepare(node, device("cpu", None))
    assert prepared.data == {"cpus": "1-3,8-11"}
    with pytest.raises(PermanentError, match="cpudevnuma009 does not exist"):
        prepare(node, device("cpu", None, numa=9))


@pytest.mark.parametrize("amount", ["0", "-1", "1500m"])
def test_only_whole_cpus(node: Node, amount: str) -> None:
    with pytest.raises(PermanentError, match=r"dra\.cpu/cpu must be a whole number of CPUs from 1"):
        prepare(node, device("cpu", amount))


def test_full_cores_on_request(node: Node) -> None:
    (prepared,) = prepare(node, device("cpu", "2", config=CpuConfig(full_cores=True)))
    assert prepared.data == {"cpus": "1,9"}
    with pytest.raises(CoreAlignmentError):
        prepare(node, device("cpu", "3", config=CpuConfig(full_cores=True)))


def test_settings_come_from_the_environment() -> None:
    assert NodeSettings.read({"DRA_CPU_RESERVED_CPUS": "0-1"}).reserved == {0, 1}
    with pytest.raises(DraError, match="DRA_CPU_RESERVED_CPUS"):
        NodeSettings.read({"DRA_CPU_RESERVED_CPUS": "one"})
