"""Preparing a claim: everything slow, so that a pod's sandbox only needs to move interfaces; and undoing it.

What an interface is on the node goes into the claim's data; what changes here, the settings of a virtual function or
its kernel driver, goes into the journal first.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from dra_driver_nic.config import MACVLAN, NicConfig
from dra_driver_nic.describe.devices import NicRecord, attributes, device_name, record_name
from dra_driver_nic.describe.nics import Nic
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.network.links import Network
from dra_driver_nic.network.rdma import CONNECTION_MANAGER
from dra_driver_nic.prepare import status
from dra_driver_nic.prepare.attachment import Attachment
from dra_driver_nic.prepare.leases import LEASE, end_lease, lease_address
from dra_driver_nic.prepare.plan import Allocated, check_interface, plan_attachment
from dra_driver_nic.prepare.rdma_links import LINKS, RdmaLink, links_on, one_at_a_time, restore_links
from dra_driver_nic.prepare.sandbox import (
    ATTACHMENT,
    RDMA,
    attachments,
    bring_back,
    moves,
    port_of,
    return_interface,
)
from dra_driver_nic.prepare.virtual_functions import VfStep
from dra_sdk import (
    Claim,
    ContainerEdits,
    DeviceNode,
    HardwareError,
    HeldClaim,
    PermanentError,
    PreparedDevice,
    RetriableError,
)
from dra_sdk.hardware import exists, read_pci_device
from dra_sdk.hardware.vfio import Passthrough, vfio_device

log = logging.getLogger(__name__)
_SHARED_MAC: Final = frozenset({"ipvlan", "ipvtap"})
_BUSY_SECONDS: Final = 20.0  # how long a virtual machine may take to close a function


def prepare(node: NicNode, claim: Claim[NicConfig]) -> Iterator[PreparedDevice]:
    """Set up a claim's devices, as far as that is possible without its pod."""
    with node.namespace() as namespace:
        nics, plans = namespace.run(lambda network: _plan(node, network, claim))
    _check_together(claim, plans)
    for device in claim.devices:
        claim.deadline.check()
        if device.admin_access:  # another claim may hold the device, so nothing is changed
            yield device.prepared()
            continue
        nic, plan = nics[device.name], plans.get(record_name(device))
        _begin(node, claim, device, nic, nics.values())
        yield (_prepare if device.config.driver is None else _pass_through)(node, claim, device, nic, plan)


def _plan(node: NicNode, network: Network, claim: Claim[NicConfig]) -> tuple[Mapping[str, Nic], dict[str, Attachment]]:
    """Return the claim's devices and those that belong to them by name, and the plans of their interfaces by record.

    The network is read once, so all checks are about the same moment. Raises PermanentError or RetriableError.
    """
    snapshot = network.snapshot()
    wanted = [(number, device) for number, device in enumerate(claim.devices) if not device.admin_access]
    nics = node.devices(snapshot, {place for _, device in wanted for place in _places(device)})
    if not {device.name for _, device in wanted} <= nics.keys():  # an overlay may say that a device is elsewhere
        nics = node.devices(snapshot)
    for _, device in wanted:
        if device.name not in nics:
            raise RetriableError(f"device {device.name}: {node.absence(device.name, snapshot)}")
    for _, device in wanted:
        _check(nics[device.name], device)
        _check_whole_function(nics, nics[device.name], device)
    return nics, {
        record_name(device): plan_attachment(node, network, snapshot, claim, nics[device.name], number=number)
        for number, device in wanted
        if nics[device.name].link is not None
    }


def _places(device: Allocated) -> Iterator[str]:
    """Yield where a device was when it was published."""
    attributes = {} if device.device is None else device.device.attributes
    yield from (str(attributes[key]) for key in ("pciAddress", "ifName") if key in attributes)


def unprepare(node: NicNode, claim: HeldClaim) -> None:
    """Bring a claim's interfaces back, and undo what its journal lists; all is tried. A reboot has undone everything.

    What the records have is needed until all has succeeded.
    """
    if not claim.rebooted:
        for move in reversed([*moves(claim)]):
            with (
                claim.undoing(f"record of {move}"),
                node.records.locked(move.record) as record,
                one_at_a_time(node, move.links),
            ):
                bring_back(node, move, record)
        for entry in reversed(claim.journal):
            with claim.undoing(_step_name(entry), harmless=LEASE in entry):
                _undo(node, claim, entry)
    for device in [] if claim.undo.refused else claim.devices:
        with claim.undoing(f"record of device {device.name}"), node.records.locked(record_name(device)) as record:
            if record.claim == claim.uid:
                node.records.save(record_name(device), NicRecord())


def _step_name(entry: Mapping[str, Any]) -> str:
    """Return what an entry of the journal brings back, in words."""
    if LEASE in entry:
        return f"lease of device {entry[LEASE]}"
    if "functions" in entry:
        return f"kernel driver of device {entry.get('device')}"
    if "pf" in entry:
        return f"settings of a virtual function of {entry['pf']}"
    return f"journal entry {dict(entry)}"  # of another version


def _undo(node: NicNode, claim: HeldClaim, entry: Mapping[str, Any]) -> None:
    if LEASE in entry:
        end_lease(node, entry)
        return
    if "functions" not in entry:
        VfStep.from_entry(entry).restore(node, claim)
        return
    step = Passthrough.from_entry(entry)
    step.wait_until_free(node.access, f"network device {entry['device']}", _BUSY_SECONDS)
    step.restore(node.access)
    if entry[ATTACHMENT] is not None and step.is_there(node.access):
        attachment = Attachment.from_entry(entry[ATTACHMENT])
        name = _restore_new_interface(node, claim, attachment)
        links = [RdmaLink.from_entry(link) for link in entry.get(LINKS, ())]
        undoing = claim.undoing(f"RDMA devices in software of {attachment}", harmless=True)
        with undoing, one_at_a_time(node, links), node.namespace() as namespace:
            restore_links(node, links, namespace, name)


def _restore_new_interface(node: NicNode, claim: HeldClaim, attachment: Attachment) -> str:
    """Make an interface what the old one was: a kernel driver that is bound again makes a new one. Its name."""
    names = [attachment.host.name]

    def restored() -> bool:
        with node.namespace() as namespace:
            links = namespace.run(lambda network: network.links())
            returned = [link for link in links if port_of(node, link.name)[0] == attachment.pci]
            for link in returned[:1]:
                if attachment.tag not in link.altnames:
                    namespace.run(partial(_tag, link=link.index, tag=attachment.tag))
                names[:] = [return_interface(node, attachment, NicRecord(), claim)]
        return bool(returned) or not exists(node.function(attachment.pci) / "driver")

    if not node.access.clock.until(restored, node.settings.return_seconds):
        raise RetriableError(f"{attachment} has not come back after its kernel driver was bound again")
    return names[0]


def _tag(network: Network, link: int, tag: str) -> None:
    network.add_altname(link, tag)


# -- checks


def _check(nic: Nic, device: Allocated) -> None:
    """Refuse a configuration that the device cannot have. Raises PermanentError with the field."""
    config, link = device.config, nic.link
    if config.rdma and not nic.rdma:
        raise PermanentError(f"device {device.name} ({nic}): rdma is true, but it has no RDMA device")
    if config.vf is not None and nic.pf is None:
        raise PermanentError(f"device {device.name} ({nic}): vf is for virtual functions, and it is none")
    if config.driver is not None and nic.pci is None:
        raise PermanentError(f"device {device.name} ({nic}): driver is {config.driver}, but it is no PCI function")
    if link is None and not nic.rdma and config.driver is None:
        bound = "no kernel driver" if nic.pci is None or nic.pci.driver is None else f"kernel driver {nic.pci.driver}"
        raise PermanentError(
            f"device {device.name} has {bound}, so it has no interface; ask for it with driver: vfio-pci"
        )
    if nic.shared and (config.driver is not None or config.vf is not None):
        raise PermanentError(f"device {device.name} ({nic}): driver and vf cannot be given for a shared interface")
    if config.shared_mode is not None and not nic.shared:
        raise PermanentError(f"device {device.name} ({nic}): sharedMode is for shared interfaces, and it is none")
    if link is None and config.configures_interface:
        raise PermanentError(
            f"device {device.name} has no interface, so it takes no interface, routes, rules, neighbors, ethtool, cni"
        )
    if link is not None:
        check_interface(nic, link, device)


def _check_whole_function(nics: Mapping[str, Nic], nic: Nic, device: Allocated) -> None:
    """Refuse to bind a PCI function to VFIO for a device that is only a part of it: its other parts would end."""
    others = [name for name, other in nics.items() if other.pci == nic.pci and other is not nic]
    if device.config.driver is not None and (nic.part or others):
        parts = f"so are {', '.join(others)}" if others else "it has others"
        raise PermanentError(
            f"device {device.name} ({nic}): driver {device.config.driver} takes a PCI function as a whole, and this is "
            f"a part of one; {parts}"
        )


def _check_together(claim: Claim[NicConfig], plans: Mapping[str, Attachment]) -> None:
    """Refuse a name that two devices of the claim want, and an address that a device of this node has already."""
    names: dict[str, str] = {}
    addresses = dict(_addresses_of_others(claim.held()))
    for device, plan in plans.items():
        if plan.pod.name in names:
            raise PermanentError(
                f"devices {names[plan.pod.name]} and {device} would both be interface {plan.pod.name} in the pod; "
                "give each request an interface.name of its own"
            )
        names[plan.pod.name] = device
        _check_vrf(plans, device, plan)
        _check_shared_mode(claim, plans, plan)
        for address in plan.pod.addresses:
            ip = str(ipaddress.ip_interface(address.address).ip)
            if ip in addresses:
                raise PermanentError(f"device {device}: address {ip} of interface.addresses is used by {addresses[ip]}")
            addresses[ip] = f"device {device} of the same claim"


def _check_shared_mode(claim: Claim[NicConfig], plans: Mapping[str, Attachment], plan: Attachment) -> None:
    """Refuse an ipvlan on an interface that has a macvlan, and the other way round, as the kernel does."""
    others = [(other, f"claim {held}") for held in claim.held() for other in attachments(held)]
    for other, owner in [*others, *((other, "the same claim") for other in plans.values())]:
        if plan.parent and other.parent == plan.parent and (other.kind or MACVLAN) != plan.kind:
            raise RetriableError(
                f"{plan}: sharedMode {plan.kind} is not possible now, because {owner} has a {other.kind or MACVLAN} on "
                f"{plan.parent}, and the kernel has one of the two kinds on an interface at a time"
            )


def _check_vrf(plans: Mapping[str, Attachment], device: str, plan: Attachment) -> None:
    """Refuse a VRF that another device of the claim wants with another table, or whose name is that of an interface."""
    vrf = plan.pod.vrf
    if vrf is None:
        return
    for name, other in plans.items():
        if other.pod.name == vrf.name:
            raise PermanentError(
                f"device {name} would be interface {vrf.name} in the pod, which is the VRF of device {device}; "
                "give one of them another name"
            )
        if other.pod.vrf is not None and other.pod.vrf.name == vrf.name and other.pod.vrf.table != vrf.table:
            raise PermanentError(
                f"devices {device} and {name} would both have VRF {vrf.name} in the pod, with table {vrf.table} and "
                f"with table {other.pod.vrf.table}; give them one table"
            )


def _addresses_of_others(held: Iterable[HeldClaim]) -> Iterator[tuple[str, str]]:
    for claim in held:
        for attachment in attachments(claim):
            for address in attachment.pod.addresses:
                yield str(ipaddress.ip_interface(address.address).ip), f"{attachment} of {claim}"


# -- steps


def _prepare(
    node: NicNode, claim: Claim[NicConfig], device: Allocated, nic: Nic, plan: Attachment | None
) -> PreparedDevice:
    """Prepare RDMA, and an address by DHCP; the interface follows when the sandbox starts."""
    nodes = _rdma_nodes(node, nic, device) if device.config.rdma is not False else []
    edits = ContainerEdits(device_nodes=[DeviceNode(path) for path in nodes])
    rdma = _rdma_that_moves(node, device, nic)
    links = links_on(nic, in_pod=device.config.rdma is not False) if plan is not None else []
    data: dict[str, Any] = {RDMA: rdma} if rdma else {}
    if links:
        data[LINKS] = [link.entry for link in links]
    if plan is None:
        return device.prepared(edits, data=data, status=status.prepared())
    if device.config.interface.dhcp:
        shared = nic.link is not None and nic.link.kind in _SHARED_MAC
        plan = lease_address(node, claim, device.config, plan, _client(plan) if shared else "")
    data[ATTACHMENT] = plan.entry
    network = status.network_data(plan)
    metadata = {"interfaceName": network.interface_name, "mac": network.hardware_address}
    return device.prepared(edits, data=data, status=status.waiting(plan), metadata=metadata)


def _pass_through(
    node: NicNode, claim: Claim[NicConfig], device: Allocated, nic: Nic, plan: Attachment | None
) -> PreparedDevice:
    """Bind a PCI function to VFIO. Its interface ends, and is made what it was when the function is bound back."""
    if nic.pci is None:
        raise ValueError(f"device {device.name} is no PCI function")
    step = Passthrough.plan(node.access, nic.pci)
    entry = plan.entry if plan is not None else None
    links = [link.entry for link in links_on(nic, in_pod=False)]
    claim.journal({**step.entry, "device": device.name, ATTACHMENT: entry, LINKS: links})
    step.bind(node.access)
    bound = vfio_device(read_pci_device(node.host, nic.pci.address))
    edits = ContainerEdits(device_nodes=device.config.iommu.device_nodes(node.access, bound))
    return device.prepared(edits, status=status.prepared())


def _client(plan: Attachment) -> str:
    """Identify a DHCP client whose hardware address others have too: one for each claim and device."""
    return f"00{plan.tag.encode().hex()}"


def _begin(node: NicNode, claim: Claim[NicConfig], device: Allocated, nic: Nic, nics: Iterable[Nic]) -> None:
    """Change the settings of a virtual function.

    First the attributes of the device are kept, so that it is published as it is now while the claim has it.

    nics: the devices that were read, among them all of the same card.
    """
    with node.records.locked(record_name(device)):
        node.records.save(record_name(device), NicRecord(claim=claim.uid, attributes=attributes(nic)))
    _refuse_other_partition(node, nic, nics)
    if device.config.vf is not None and nic.pf is not None:
        step = VfStep.plan(node, nic.pf, device.config.vf)
        claim.journal(step.entry)
        step.apply(node)


def _refuse_other_partition(node: NicNode, nic: Nic, nics: Iterable[Nic]) -> None:
    """Refuse a physical function of which claims have virtual ones, and the other way round.

    The scheduler keeps them apart by counters, which an API server without `DRAPartitionableDevices` drops. The record
    of this claim is written before, so of two claims at the same time at least one sees the other.
    """
    if nic.pci is None or nic.shared:
        return
    held = {str(record.attributes.get("pciAddress")): name for name, record in node.recorded().items()}
    others = [nic.pf.pci.address] if nic.pf is not None else nic.pci.sriov.vfs if nic.pci.sriov is not None else ()
    for address in others:
        if address in held:
            raise RetriableError(
                f"device {device_name(nic)}: a claim has {held[address]}, and a physical function is used as a whole "
                "or by its virtual functions; the cluster needs the feature DRAPartitionableDevices"
            )
    if nic.pf is None and others:
        there = {other.pci.address for other in nics if other.pci is not None}
        missing = [address for address in others if address not in there]
        if missing:
            raise RetriableError(f"device {device_name(nic)}: something else uses its virtual function {missing[0]}")


def _rdma_that_moves(node: NicNode, device: Allocated, nic: Nic) -> list[str]:
    """Return the RDMA devices that go to the pod. PermanentError for IPoIB, whose interface ends with such a move."""
    if device.config.rdma is False or not nic.rdma or nic.shared or not node.moves_rdma():
        return []
    if nic.link is not None and nic.infiniband:
        raise PermanentError(
            f"device {device.name} ({nic}): RDMA devices move to pods here (`rdma system` is exclusive), and then the "
            "kernel makes an interface of InfiniBand again; use `rdma system set netns shared`, or rdma: false"
        )
    return [rdma.name for rdma in nic.rdma if not rdma.parent]  # one in software cannot move: see `rdma_links`


def _rdma_nodes(node: NicNode, nic: Nic, device: Allocated) -> list[str]:
    """Return the device nodes of RDMA that exist; one is needed only if the claim asks for RDMA.

    Then PermanentError if one is missing, and RetriableError if the kernel refuses to say whether it is there.
    """
    nodes = [path for rdma in nic.rdma for path in rdma.nodes]
    wanted = [*nodes, CONNECTION_MANAGER] if nodes else []
    return [path for path in wanted if _has_rdma_node(node, nic, device, path)]


def _has_rdma_node(node: NicNode, nic: Nic, device: Allocated, path: str) -> bool:
    subject = f"device {device.name} ({nic}): rdma is {'true' if device.config.rdma else 'not given'}"
    try:
        there = exists(node.access.local(path))
    except HardwareError as error:
        if device.config.rdma:
            raise RetriableError(f"{subject}, but it is not known whether the node has {path}: {error}") from error
        log.warning("%s, so its containers do not get %s: %s", subject, path, error)
        return False
    if not there and device.config.rdma:
        module = "rdma_ucm" if path == CONNECTION_MANAGER else "ib_uverbs"
        raise PermanentError(f"{subject}, but the node has no {path}: load the module {module}")
    return there
