"""RDMA devices in software (`rdma_rxe`), which stand on an interface and follow it into a pod and back.

The kernel removes such a device when its interface leaves the network namespace, and never moves it. So it is
removed before the interface moves, and made again where the interface arrives, with its name. The kernel gives a new
device the lowest number that no other has in `/dev/infiniband/uverbsN`. Containers get device nodes by the number that
the device had when its claim was prepared, so a lock lets only one device be removed and made at a time: it then gets
its number back.

Source: `rxe_notify` of drivers/infiniband/sw/rxe/rxe_net.c and `ib_uverbs_add_one` of
drivers/infiniband/core/uverbs_main.c of the kernel.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from dra_driver_nic.describe.devices import OF_SHARE
from dra_driver_nic.describe.nics import Nic
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.network.links import NetworkError, NetworkNamespace
from dra_driver_nic.network.rdma import read_rdma_devices
from dra_sdk import HeldDevice, RetriableError

LINKS: Final = "rdmaLinks"
"""The key of a device's RDMA devices in software, in its data."""
_SOFT_ROCE: Final = "rxe"
_LOCK: Final = f"rdma{OF_SHARE}links"
"""The record that is locked; no device has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaLink:
    """An RDMA device in software.

    name: its name, such as `rxe0`.
    kind: its kind as `rdma link add` takes it: `rxe`.
    nodes: its device nodes, which containers get.
    in_pod: whether the pod gets it with the interface. It is on the node in any case.
    """

    name: str
    kind: str
    nodes: Sequence[str]
    in_pod: bool

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> Self:
        """Return the device that a claim's data has."""
        return cls(name=entry["name"], kind=entry["kind"], nodes=tuple(entry["nodes"]), in_pod=entry["in_pod"])

    @property
    def entry(self) -> dict[str, Any]:
        """What a claim's data keeps, as JSON."""
        return {**asdict(self), "nodes": list(self.nodes)}


def links_on(nic: Nic, *, in_pod: bool) -> list[RdmaLink]:
    """Return the RDMA devices in software on an interface. Only `rxe` has a parent in sysfs."""
    return [
        RdmaLink(name=rdma.name, kind=_SOFT_ROCE, nodes=rdma.nodes, in_pod=in_pod) for rdma in nic.rdma if rdma.parent
    ]


def links_of(device: HeldDevice) -> tuple[RdmaLink, ...]:
    """Return the RDMA devices in software that follow a claim's device."""
    return tuple(RdmaLink.from_entry(entry) for entry in device.data.get(LINKS, ()))


@contextmanager
def one_at_a_time(node: NicNode, links: Collection[RdmaLink]) -> Iterator[None]:
    """Let no other thread or process of this driver make or remove RDMA devices. RetriableError if one takes long."""
    if not links:
        yield
        return
    with node.records.locked(_LOCK):
        yield


def remove_links(node: NicNode, links: Collection[RdmaLink], namespace: NetworkNamespace) -> None:
    """Remove those that a namespace sees; one that disappears during the call is removed too. Raises NetworkError."""
    there = node.rdma_in(namespace) if links else {}
    for link in links:
        if link.name in there:
            try:
                node.remove_rdma(link.name, there[link.name], namespace)
            except NetworkError as error:
                if error.errno != errno.ENODEV:
                    raise


def make_links(node: NicNode, links: Collection[RdmaLink], pod: NetworkNamespace, interface: str) -> None:
    """Make them on the interface of a pod.

    Raises NetworkError; RetriableError if one has other device nodes than containers get.
    """
    for link in links:
        if not link.in_pod:
            continue
        _make(node, link, pod, interface)
        now = next((device.nodes for device in read_rdma_devices(node.host) if device.name == link.name), ())
        if now != link.nodes:
            raise RetriableError(
                f"RDMA device {link.name} has device nodes {', '.join(now) or 'none'} now, and containers of its claim "
                f"would get {', '.join(link.nodes)}: something else has removed or made RDMA devices; "
                "make the pod again, so that its claim is prepared with the new ones"
            )


def restore_links(node: NicNode, links: Collection[RdmaLink], namespace: NetworkNamespace, interface: str) -> None:
    """Make those that the node does not have on its interface. Raises NetworkError."""
    there = node.rdma_in(namespace) if links else {}
    for link in links:
        if link.name not in there:
            _make(node, link, namespace, interface)


def _make(node: NicNode, link: RdmaLink, namespace: NetworkNamespace, interface: str) -> None:
    """Make a device; wait for one of its name that the kernel still removes."""

    def made() -> bool:
        try:
            node.add_rdma(link.name, link.kind, interface, namespace)
        except NetworkError as error:
            if error.errno != errno.EEXIST:
                raise
            return False
        return True

    if not node.access.clock.until(made, node.settings.return_seconds):
        raise RetriableError(f"RDMA device {link.name} cannot be made on interface {interface}: there is one already")
