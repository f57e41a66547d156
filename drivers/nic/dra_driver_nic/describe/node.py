"""The node as this driver uses it: its network, its devices, and the records of those that claims have."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from dra_driver_nic.describe.devices import OF_SHARE, NicRecord, device_name, nic_records, published, with_held_names
from dra_driver_nic.describe.nics import Nic, read_nics
from dra_driver_nic.describe.selection import kept, shared
from dra_driver_nic.network.files import FilesNamespace
from dra_driver_nic.network.kernel import KernelNamespace
from dra_driver_nic.network.links import NetworkError, NetworkNamespace, NetworkSnapshot
from dra_driver_nic.network.rdma_netlink import (
    OpenRdmaSocket,
    RdmaSocket,
    add_link,
    devices,
    is_exclusive,
    move,
    open_socket,
    remove_link,
)
from dra_driver_nic.settings import NicSettings
from dra_sdk.hardware import Host, read_if_exists, read_text
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.records import Records

_ENDED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESRCH, errno.EINVAL})
OpenNamespace = Callable[[Path | None], NetworkNamespace]
"""Opens the network namespace of a path, or with None that of the node. OSError if it does not exist."""


@dataclass(frozen=True, slots=True)
class NicNode:
    """A node with its network.

    access: the node and the means to act on it.
    settings: the settings of the driver.
    open_namespace: opens network namespaces. None: those of the kernel, or of the tree of files that the node is.
    open_rdma: opens sockets of RDMA netlink. None: those of the kernel; a tree of files has none.
    """

    access: NodeAccess
    settings: NicSettings
    open_namespace: OpenNamespace | None = None
    open_rdma: OpenRdmaSocket | None = None

    @property
    def host(self) -> Host:
        """The host for readers of sysfs."""
        return self.access.host

    def function(self, address: str) -> Path:
        """Return the directory of a PCI function in sysfs; it may not exist."""
        return self.host.sys / "bus/pci/devices" / address

    @property
    def records(self) -> Records[NicRecord]:
        """The records of the devices that claims have."""
        return nic_records(self.access, self.settings.state_dir)

    # -- the network

    @contextmanager
    def namespace(self) -> Iterator[NetworkNamespace]:
        """Open the node's network namespace, which is that of this process: the driver's pod needs `hostNetwork`."""
        if self.open_namespace is not None:
            opened = self.open_namespace(None)
        elif self._is_this_machine():
            opened = KernelNamespace()
        else:
            opened = FilesNamespace(self.host)
        try:
            yield opened
        finally:
            opened.close()

    @contextmanager
    def pod_namespace(self, path: str, identity: str = "") -> Iterator[NetworkNamespace | None]:
        """Open the network namespace of a pod by its path on the node; None if it does not exist any more.

        It does not exist either if its file is left without a namespace, or with another one than that of an identity.
        NetworkError if it cannot be opened for another reason.
        """
        opened = self._open(path) if path else None
        if opened is not None and identity and opened.identity != identity:
            opened.close()
            opened = None
        try:
            yield opened
        finally:
            if opened is not None:
                opened.close()

    def _open(self, path: str) -> NetworkNamespace | None:
        try:
            return (self.open_namespace or KernelNamespace)(self._local(path))
        except OSError as error:
            if error.errno in _ENDED or isinstance(error, FileNotFoundError):
                return None
            raise NetworkError(
                f"network namespace {path} cannot be opened: {error.strerror}", error.errno or 0
            ) from error

    def _is_this_machine(self) -> bool:
        here = read_if_exists(read_text, Path("/proc/sys/kernel/random/boot_id"))
        return self.access.root == Path("/") or bool(here and here == self.access.boot_id)

    def _local(self, path: str) -> Path:
        """Return where this process finds a namespace; the last part may be a link that only the kernel follows."""
        pod = PurePosixPath(path)
        return self.access.local(str(pod.parent)) / pod.name

    # -- devices

    def snapshot(self) -> NetworkSnapshot:
        """Return what netlink says about the node."""
        with self.namespace() as namespace:
            return namespace.run(lambda network: network.snapshot())

    def devices(self, snapshot: NetworkSnapshot | None = None, places: Collection[str] | None = None) -> dict[str, Nic]:
        """Return the devices that claims may have and whose interface is on the node, by name.

        snapshot: what netlink says about the node; None: it is asked.
        places: where the devices are that are read, as `read_nics` takes them; None: all are read.
        """
        snapshot = snapshot or self.snapshot()
        nics = published(read_nics(self.host, snapshot, places), snapshot, self.settings)
        return with_held_names(nics, self.records.read)

    def absence(self, name: str, snapshot: NetworkSnapshot) -> str:
        """Say why a device is not among the `devices` of a snapshot, as the end of a sentence."""
        nics = shared(read_nics(self.host, snapshot), snapshot, self.settings)
        reasons = kept(nics, snapshot, self.settings)
        same = [nic for nic in nics if device_name(nic) == name]
        for nic in same:
            if nic.link is not None and nic.link.index in reasons:
                return f"{nic} {reasons[nic.link.index]}"
        if len(same) > 1:
            return f"{' and '.join(map(str, same))} have the same PCI function and port, and no number of their own"
        return "its interface is not on the node: something else has taken, renamed or removed it"

    def recorded(self) -> dict[str, NicRecord]:
        """Return the records of the devices that claims have, by device; but not of those that are shared."""
        records = self.records
        by_device = {name: records.read(name) for name in records.devices() if OF_SHARE not in name}
        return {name: record for name, record in by_device.items() if record != NicRecord()}

    # -- RDMA

    def moves_rdma(self) -> bool:
        """Return whether RDMA devices move with their interface (the kernel's exclusive mode). Raises NetworkError."""
        if self.open_rdma is None and not self._is_this_machine():
            return False
        with self.namespace() as namespace:
            return namespace.run(lambda _network: is_exclusive(self._open_rdma))

    def rdma_in(self, namespace: NetworkNamespace) -> dict[str, int]:
        """Return the indexes of the RDMA devices that a namespace sees, by name. Raises NetworkError."""
        return namespace.run(lambda _network: devices(self._open_rdma))

    def move_rdma(self, names: Collection[str], source: NetworkNamespace, target: NetworkNamespace) -> list[str]:
        """Move those of some RDMA devices that `source` has; the others that `target` does not have either.

        Raises NetworkError.
        """
        if not names:
            return []
        here, there = self.rdma_in(source), self.rdma_in(target)
        for name in names:
            if name in here:
                self._move_rdma(name, here[name], source, target)
        return [name for name in names if name not in here and name not in there]

    def _move_rdma(self, name: str, index: int, source: NetworkNamespace, target: NetworkNamespace) -> None:
        source.run(lambda _network: move(self._open_rdma, name, index, target.handle))

    def add_rdma(self, name: str, kind: str, interface: str, namespace: NetworkNamespace) -> None:
        """Make an RDMA device in software on an interface of a namespace. Raises NetworkError."""
        namespace.run(lambda _network: add_link(self._open_rdma, name, kind, interface))

    def remove_rdma(self, name: str, index: int, namespace: NetworkNamespace) -> None:
        """Remove an RDMA device in software, which a namespace sees. Raises NetworkError."""
        namespace.run(lambda _network: remove_link(self._open_rdma, name, index))

    def _open_rdma(self) -> RdmaSocket:
        return (self.open_rdma or open_socket)()
