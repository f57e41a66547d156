"""Resources of containers as messages of NRI, and back again."""

from __future__ import annotations

import pytest

from dra_sdk.node.nri.messages import fill, resources_of, updates_of
from dra_sdk.nri import ContainerResources
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb


def test_resources_survive_a_message() -> None:
    resources = ContainerResources(frozenset({0, 1, 5}), frozenset({1}), -1, {"1GB": 1 << 30})
    message = pb.LinuxResources()
    fill(message, resources)
    assert (message.cpu.cpus, message.cpu.mems) == ("0-1,5", "1")
    assert resources_of(message) == resources
    assert resources_of(pb.LinuxResources()) == ContainerResources()


@pytest.mark.parametrize("cpus", ["garbage", "3-1", "0-99999999", "-", "é"])
def test_a_list_that_cannot_be_read_counts_as_unknown(cpus: str) -> None:
    assert resources_of(pb.LinuxResources(cpu=pb.LinuxCPU(cpus=cpus))) == ContainerResources()


def test_of_several_updates_only_the_required_one_must_not_fail() -> None:
    resources = ContainerResources(cpus=frozenset({1, 2}))
    first, second = updates_of({"a": resources, "b": resources}, required="b")
    assert (first.container_id, first.ignore_failure, first.linux.resources.cpu.cpus) == ("a", True, "1-2")
    assert (second.container_id, second.ignore_failure) == ("b", False)
