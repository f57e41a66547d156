"""The resources of containers in messages of NRI.

Source: containerd/nri pkg/api/api.proto, messages LinuxResources, ContainerUpdate and ContainerAdjustment.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dra_sdk.hardware.cpuset import format_cpuset, parse_cpuset
from dra_sdk.model.container import ContainerAdjustment, ContainerResources
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

_LISTS: Final = 256  # CPU lists that are kept: most containers have the same one


def resources_of(message: pb.LinuxResources) -> ContainerResources:
    """Return the resources of a message; None for those that it does not state, or not in a form that can be read."""
    cpu = message.cpu
    return ContainerResources(
        _numbers(cpu.cpus),
        _numbers(cpu.mems),
        cpu.quota.value if cpu.HasField("quota") else None,
        {hugepages.page_size: hugepages.limit for hugepages in message.hugepage_limits},
    )


@lru_cache(maxsize=_LISTS)
def _numbers(text: str) -> frozenset[int] | None:
    try:
        return parse_cpuset(text) or None
    except ValueError:
        return None


def fill(message: pb.LinuxResources, resources: ContainerResources) -> None:
    """Write resources into a message."""
    if resources.cpus is not None:
        message.cpu.cpus = format_cpuset(resources.cpus)
    if resources.mems is not None:
        message.cpu.mems = format_cpuset(resources.mems)
    if resources.cpu_quota is not None:
        message.cpu.quota.value = resources.cpu_quota
    for size, limit in resources.hugepage_limits.items():
        message.hugepage_limits.add(page_size=size, limit=limit)


def updates_of(updates: Mapping[str, ContainerResources], *, required: str = "") -> list[pb.ContainerUpdate]:
    """Return the updates that give containers these resources; only the container `required` must not fail."""
    messages = []
    for container, resources in updates.items():
        messages.append(pb.ContainerUpdate(container_id=container, ignore_failure=container != required))
        fill(messages[-1].linux.resources, resources)
    return messages


def adjustment_of(
    adjustment: ContainerAdjustment,
    resources: ContainerResources | None,
    joined: Mapping[str, str] = MappingProxyType({}),
) -> pb.ContainerAdjustment:
    """Return the adjustment of a container that is being created, with these resources and joined variables.

    A runtime refuses a variable that two plugins set, unless the second one removes it first, as for joined ones: their
    value has what the first has put into it. What the adjustment itself sets comes before them.
    """
    message = pb.ContainerAdjustment(annotations=adjustment.annotations)
    for name in joined.keys() - adjustment.env.keys():
        message.env.add(key=f"-{name}")
        message.env.add(key=name, value=joined[name])
    for name, value in adjustment.env.items():
        message.env.add(key=name, value=value)
    if resources is not None:
        fill(message.linux.resources, resources)
    return message
