"""What happens when a pod's sandbox starts and stops: its interfaces and RDMA devices go there, and come back.

All slow work was done in `dra_prepare`; here nothing is read that the claim's data does not have. What is on disk
about a device, and which of it counts after a crash, is in the section "State on disk" of the driver's README.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from dra_driver_nic.describe.devices import NicRecord, function_name, record_name
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.network.dhcp import Lease
from dra_driver_nic.network.links import NetworkNamespace
from dra_driver_nic.network.rdma import pci_address_of
from dra_driver_nic.prepare import status
from dra_driver_nic.prepare.attach import attach
from dra_driver_nic.prepare.attachment import Attachment
from dra_driver_nic.prepare.cni import Chain, CniCall
from dra_driver_nic.prepare.detach import detach, is_tagged
from dra_driver_nic.prepare.leases import with_lease
from dra_driver_nic.prepare.rdma_links import RdmaLink, links_of, make_links, one_at_a_time, remove_links, restore_links
from dra_driver_nic.prepare.shares import make_shares, remove_share
from dra_sdk import DraError, HeldClaim, HeldDevice, PermanentError, RetriableError
from dra_sdk.hardware import exists, read_if_exists, read_int
from dra_sdk.nri import PodSandbox

log = logging.getLogger(__name__)
ATTACHMENT = "attachment"
"""The key of an attachment in the data of a device."""
RDMA = "rdma"
"""The key of the names of RDMA devices that move with the device, in its data."""

_CALL: Final = "call"  # in a record: for whom plugins of CNI were called
_RESULT: Final = "result"


class InUseError(RetriableError):
    """A device is in another pod. What its claim's status says stays true."""


@dataclass(frozen=True, slots=True)
class Move:
    """A device that goes to a pod.

    claim: its claim.
    device: the device in the claim.
    attachment: what happens to its interface. None for a device with RDMA alone.
    rdma: the names of its RDMA devices that move as well, in the exclusive mode of the kernel.
    links: its RDMA devices in software, which are removed here and made again there.
    cni: what the status says of the plugins of CNI: their result as `cni`, a failed CHECK as `cniCheck`; empty
        without plugins.
    """

    claim: HeldClaim
    device: HeldDevice
    attachment: Attachment | None
    rdma: tuple[str, ...]
    links: tuple[RdmaLink, ...] = ()
    cni: Mapping[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> str:
        """The name of its record."""
        return record_name(self.device)

    def __str__(self) -> str:
        return f"device {self.device.name}" if self.attachment is None else str(self.attachment)


def moves(claim: HeldClaim) -> Iterator[Move]:
    """Yield the devices of a claim that move."""
    for device in claim.devices:
        entry, rdma = device.data.get(ATTACHMENT), tuple(device.data.get(RDMA, ()))
        if entry is not None or rdma:
            attachment = Attachment.from_entry(entry) if entry is not None else None
            yield Move(claim, device, attachment, rdma, links_of(device))


def attachments(claim: HeldClaim) -> Iterator[Attachment]:
    """Yield the interfaces that a claim moves."""
    for move in moves(claim):
        if move.attachment is not None:
            yield move.attachment


def run_pod_sandbox(node: NicNode, pod: PodSandbox) -> None:
    """Move and configure all devices of a pod's claims, or none, and report what became of them.

    Does nothing if the pod has them all. Raises PermanentError for a pod in the node's own network, RetriableError if
    the kernel refuses a step.
    """
    wanted = [move for claim in pod.claims for move in moves(claim)]
    if not wanted or _has_all(node, pod, wanted):
        return
    try:
        moved = _attach(node, pod, wanted)
    except InUseError:
        raise
    except DraError as error:
        for move in wanted:
            pod.report(move.claim, move.device, status.failed(error))
        raise
    for move in moved:
        pod.report(move.claim, move.device, status.attached(move.attachment, move.cni))


def _has_all(node: NicNode, pod: PodSandbox, wanted: Sequence[Move]) -> bool:
    """Return whether a pod has all devices: by the records, and by what is in its network namespace."""
    for move in wanted:
        record = node.records.read(move.record)
        if not (record.attached and record.pod == pod.uid and record.namespace == pod.network_namespace):
            return False
    with node.pod_namespace(pod.network_namespace) as there:
        return there is not None and all(_has(node, there, move) for move in wanted)


def _has(node: NicNode, namespace: NetworkNamespace, move: Move) -> bool:
    if move.attachment is not None:
        return is_tagged(namespace, move.attachment)
    return _has_rdma(node, namespace, move.rdma)


def _attach(node: NicNode, pod: PodSandbox, wanted: Sequence[Move]) -> Sequence[Move]:
    """Move the devices; as they are moved, with the addresses that they have then."""
    if not pod.network_namespace:
        raise PermanentError(f"{pod} uses the network of its node (hostNetwork), so it cannot get {wanted[0]}")
    with ExitStack() as stack:
        records = {move.record: stack.enter_context(node.records.locked(move.record)) for move in wanted}
        stack.enter_context(one_at_a_time(node, [link for move in wanted for link in move.links]))
        namespace = stack.enter_context(node.namespace())
        target = stack.enter_context(node.pod_namespace(pod.network_namespace))
        if target is None:
            raise RetriableError(f"the network namespace {pod.network_namespace} of {pod} does not exist")
        wanted = [_with_lease(move, records[move.record]) for move in wanted]
        for move in wanted:
            _take_from_before(node, namespace, move, records[move.record], pod)
        for move in wanted:
            record = records[move.record]
            record.pod, record.pod_name, record.attached = pod.uid, f"{pod.namespace}/{pod.name}", False
            record.namespace, record.namespace_id = pod.network_namespace, target.identity
            record.tag = move.attachment.tag if move.attachment else ""
            node.records.save(move.record, record)
        _attach_interfaces(node, (namespace, target), wanted)
        try:
            for move in wanted:
                _send_rdma(node, move, namespace, target)
            wanted = [_add_to_network(node, move, records[move.record], pod, (namespace, target)) for move in wanted]
        except BaseException as error:
            problems = [problem for move in reversed(wanted) if (problem := _undo(node, move, records))]
            if problems:
                raise RetriableError(f"{error}; and the undo failed: {'; '.join(problems)}") from error
            raise
        for move in wanted:
            record = records[move.record]
            record.attached = True
            node.records.save(move.record, record)
        return wanted


def _with_lease(move: Move, record: NicRecord) -> Move:
    """Give a move the address that its interface has by DHCP now."""
    if move.attachment is None or not record.lease:
        return move
    return replace(move, attachment=with_lease(move.attachment, Lease.from_entry(record.lease)))


def _add_to_network(
    node: NicNode, move: Move, record: NicRecord, pod: PodSandbox, namespaces: tuple[NetworkNamespace, NetworkNamespace]
) -> Move:
    """Call the plugins of CNI for an interface that is in the pod; the record says so first. Raises CniError."""
    if move.attachment is None or not move.attachment.cni:
        return move
    call = CniCall(container=pod.id, pod_namespace=pod.namespace, pod_name=pod.name, pod_uid=pod.uid)
    record.cni = {_CALL: asdict(call)}
    node.records.save(move.record, record)
    chain = _chain(node, move.attachment, namespaces[0], record)
    result = chain.add(namespaces[1])
    record.cni[_RESULT] = result
    node.records.save(move.record, record)
    problem = chain.check(namespaces[1], result)
    if problem:
        log.warning("%s", problem)
    return replace(move, cni={"cni": result, **({"cniCheck": problem} if problem else {})})


def _remove_from_network(node: NicNode, move: Move, record: NicRecord) -> None:
    """Undo that. Raises CniError; then the record still has it, and the next call tries again."""
    if move.attachment is None or not record.cni:
        return
    with node.namespace() as namespace, _pod_of(node, record) as pod:
        _chain(node, move.attachment, namespace, record).delete(pod, record.cni.get(_RESULT, {}))
    record.cni = {}
    node.records.save(move.record, record)


def _chain(node: NicNode, attachment: Attachment, namespace: NetworkNamespace, record: NicRecord) -> Chain:
    call = CniCall(**record.cni[_CALL])
    return Chain(node.access, node.settings.cni_bin_dirs, namespace, attachment, call, record.namespace)


def _attach_interfaces(
    node: NicNode, namespaces: tuple[NetworkNamespace, NetworkNamespace], wanted: Sequence[Move]
) -> None:
    """Make those that stand on shared interfaces, and move and configure all."""
    interfaces = [move.attachment for move in wanted if move.attachment is not None]
    try:
        for move in wanted:
            remove_links(node, move.links, namespaces[0])
        make_shares(namespaces[0], interfaces)
        attach(*namespaces, interfaces)
    except Exception:
        for interface in interfaces:
            remove_share(namespaces[0], interface)
        for move in wanted:
            if move.attachment is not None:
                restore_links(node, move.links, namespaces[0], move.attachment.host.name)
        raise


def _send_rdma(node: NicNode, move: Move, namespace: NetworkNamespace, pod: NetworkNamespace) -> None:
    if missing := node.move_rdma(move.rdma, namespace, pod):
        raise RetriableError(f"{move}: RDMA device {missing[0]} is not on the node; it may have gone")
    if move.attachment is not None:
        make_links(node, move.links, pod, move.attachment.pod.name)


def _undo(node: NicNode, move: Move, records: dict[str, NicRecord]) -> str:
    try:
        bring_back(node, move, records[move.record])
    except (DraError, OSError) as error:
        return f"{move}: {error}"
    return ""


def _take_from_before(
    node: NicNode, namespace: NetworkNamespace, move: Move, record: NicRecord, pod: PodSandbox
) -> None:
    """Bring a device back that an earlier sandbox has, or that a crash has left on the way."""
    attachment = move.attachment
    if record.pod and record.pod != pod.uid:
        with _pod_of(node, record) as other:
            if other is not None and _has(node, other, move):
                raise InUseError(f"{move} is in pod {record.pod_name}; it can be in one pod only")
    if record.namespace or (attachment is not None and is_tagged(namespace, attachment)):
        bring_back(node, move, record)


def _has_rdma(node: NicNode, namespace: NetworkNamespace, names: Collection[str]) -> bool:
    return not node.rdma_in(namespace).keys().isdisjoint(names)


def bring_back(node: NicNode, move: Move, record: NicRecord) -> None:
    """Bring the devices of a move back from the pod in which they are: RDMA first, because it stands on the interface.

    All is tried, each in a step of its own of the claim's undo. Plugins of CNI, and RDMA devices in software, which the
    kernel removes with the interface, are no reason to keep a device that is back.
    """
    undoing = move.claim.undoing
    with undoing(f"CNI network of {move}", harmless=True):
        _remove_from_network(node, move, record)
    if move.rdma:
        with undoing(f"RDMA devices of {move}"), node.namespace() as namespace, _pod_of(node, record) as pod:
            if pod is not None:
                node.move_rdma(move.rdma, pod, namespace)
    if move.attachment is not None:
        if move.links and record.namespace:
            step = undoing(f"RDMA devices in software of {move} in the pod", harmless=True)
            with step, node.namespace() as namespace, _pod_of(node, record) as pod:
                remove_links(node, move.links, pod or namespace)
        with undoing(f"interface of {move}"):
            _bring_interface_back(node, move, move.attachment, record)


def _bring_interface_back(node: NicNode, move: Move, attachment: Attachment, record: NicRecord) -> None:
    name = return_interface(node, attachment, record, move.claim)
    with node.namespace() as namespace:
        remove_share(namespace, attachment)
        if move.links:
            with move.claim.undoing(f"RDMA devices in software of {move}", harmless=True):
                restore_links(node, move.links, namespace, name)


def _pod_of(node: NicNode, record: NicRecord) -> AbstractContextManager[NetworkNamespace | None]:
    """Open the namespace in which a device was put; None if it has ended."""
    return node.pod_namespace(record.namespace, record.namespace_id)


def return_interface(node: NicNode, attachment: Attachment, record: NicRecord, claim: HeldClaim) -> str:
    """Bring an interface back from the pod in which it is, and restore it. Its name on the node.

    The kernel returns hardware from a namespace that has ended, a little later; interfaces in software end with it. A
    kernel driver that was loaded again has made a new one, which becomes what the old one was. Raises RetriableError if
    hardware has not come back.
    """
    names: list[str] = []
    with node.namespace() as namespace, _pod_of(node, record) as pod:

        def is_back() -> bool:
            names[:] = [name] if (name := _returned(node, (namespace, pod), attachment, record, claim)) else []
            return bool(names)

        seconds = node.settings.return_seconds
        if not node.access.clock.until(is_back, seconds):
            raise RetriableError(
                f"{attachment} has not come back from {record.namespace} of pod {record.pod_name} in {seconds:g} s"
            )
    return names[0]


def _returned(
    node: NicNode,
    namespaces: tuple[NetworkNamespace, NetworkNamespace | None],
    attachment: Attachment,
    record: NicRecord,
    claim: HeldClaim,
) -> str:
    """Return the name of an interface that is back; empty if it is in a namespace that ends."""
    namespace, wanted = namespaces[0], attachment.host.name
    if name := detach(*namespaces, attachment, claim):
        return name
    if not record.namespace or not attachment.pci:  # it never left, or has ended with the pod
        return wanted
    links = namespace.run(lambda network: network.links())
    own = [link for link in links if port_of(node, link.name) == _port(attachment)]
    if not own and exists(node.function(attachment.pci) / "driver"):
        return ""
    if not own or any(link.name == wanted for link in own):
        return wanted
    namespace.run(lambda network: network.add_altname(own[0].index, attachment.tag))
    return detach(*namespaces, attachment, claim)


def port_of(node: NicNode, name: str) -> tuple[str, int]:
    """Return the PCI address of an interface of the node, empty in software, and its port of that function."""
    directory = node.host.sys / "class/net" / name
    return pci_address_of(directory), read_if_exists(read_int, directory / "dev_port") or 0


def _port(attachment: Attachment) -> tuple[str, int]:
    """Return the same of an interface that was on the node, by the name of its device."""
    suffix = attachment.device.removeprefix(function_name(attachment.pci)).lstrip("-")
    return attachment.pci, int(suffix) if suffix.isdecimal() else 0


def stop_pod_sandbox(node: NicNode, pod: PodSandbox) -> None:
    """Bring back what a pod's sandbox has. Raises RetriableError; `dra_unprepare` tries again."""
    for claim in pod.claims:
        for move in moves(claim):
            with node.records.locked(move.record) as record, one_at_a_time(node, move.links):
                if record.pod == pod.uid and pod.network_namespace in {record.namespace, ""}:
                    bring_back(node, move, record)
                    record.pod = record.pod_name = record.tag = ""
                    record.attached = False
                    if not record.cni:  # else `dra_unprepare` calls the plugins once more
                        record.namespace = record.namespace_id = ""
                    node.records.save(move.record, record)
                    pod.report(move.claim, move.device, status.detached())
