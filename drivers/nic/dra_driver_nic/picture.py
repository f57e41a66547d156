"""Which claim has which network device, as a picture for a terminal: a line for an interface, a letter for a claim.

    CARD       ADDRESS       NUMA  SPEED  STATE  VFS
    ens1f0np0  0000:3b:00.0  0     100G   up     AB.!....

    INTERFACE  ADDRESS       NUMA  SPEED  STATE  HELD
    ens1f1np1  0000:3b:00.1  0     100G   up     C
    eth1       -             -     10G    up     DE (shared)

    A  default/train-0  ens1f0v0 as net1 in default/train-0
    .  free
    !  no carrier, or no kernel driver

Each character of `VFS` is a virtual function, by its number. `-` is one that claims cannot have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Final

from dra_driver_nic.describe.devices import NicRecord, record_name
from dra_driver_nic.describe.nics import Nic, read_nics
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.prepare.attachment import Attachment
from dra_driver_nic.prepare.sandbox import moves
from dra_sdk import HeldClaim

FREE: Final = "."
KEPT: Final = "-"
UNHEALTHY: Final = "!"
MORE: Final = "+"
_LETTERS: Final = ascii_letters[26:] + ascii_letters[:26]
_GIGABIT: Final = 1000  # megabits


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """What the picture shows of a node.

    nics: all network devices that are on the node.
    published: those that claims may have, by the names of their devices.
    records: what is kept of devices that claims have, by the name of the record.
    unhealthy: the names of devices that are not healthy.
    """

    nics: Sequence[Nic]
    published: Mapping[str, Nic]
    records: Mapping[str, NicRecord]
    unhealthy: frozenset[str]


def read_network(node: NicNode, unhealthy: frozenset[str]) -> NodeNetwork:
    """Read the network of a node. Raises DraError."""
    snapshot = node.snapshot()
    records = node.records
    return NodeNetwork(
        read_nics(node.host, snapshot),
        node.devices(snapshot),
        {name: records.read(name) for name in records.devices()},
        unhealthy,
    )


def draw(network: NodeNetwork, held: Sequence[HeldClaim]) -> Iterator[str]:
    """Yield the lines of the picture. The first 52 claims have letters of their own, all others `+`."""
    names = [f"{claim.namespace}/{claim.name}" for claim in held]
    letters = {claim.uid: _LETTERS[number] if number < len(_LETTERS) else MORE for number, claim in enumerate(held)}
    owners: dict[str, str] = {}
    for claim in held:
        for device in claim.devices:
            if not device.admin_access:
                owners[device.name] = owners.get(device.name, "") + letters[claim.uid]
    cards = [nic for nic in network.nics if nic.pci is not None and nic.pci.sriov is not None and nic.pci.sriov.vfs]
    if cards:
        rows = [(*_facts(card), _bar(card, network, owners)) for card in cards]
        yield from _table([("CARD", "ADDRESS", "NUMA", "SPEED", "STATE", "VFS"), *rows])
        yield ""
    yield from _table([("INTERFACE", "ADDRESS", "NUMA", "SPEED", "STATE", "HELD"), *_interfaces(network, owners)])
    yield ""
    width = max(map(len, names), default=0)
    for name, claim in zip(names, held, strict=True):
        for text in _devices_of(claim, network.records):
            yield f"{letters[claim.uid]}  {name.ljust(width)}  {text}".rstrip()
    yield f"{FREE}  free"
    if network.unhealthy:
        yield f"{UNHEALTHY}  free and unhealthy: {', '.join(sorted(network.unhealthy - owners.keys())) or 'none'}"


def _facts(nic: Nic) -> tuple[str, str, str, str, str]:
    """Return name, PCI address, NUMA node, speed and state."""
    link, pci = nic.link, nic.pci
    name = link.name if link is not None else nic.rdma[0].name if nic.rdma else "-"
    numa = "-" if pci is None or pci.numa_node is None else str(pci.numa_node)
    state = link.state if link is not None else _rdma_state(nic)
    return name, pci.address if pci is not None else "-", numa, _speed(nic.speed), state


def _rdma_state(nic: Nic) -> str:
    states = {port.state.lower() for device in nic.rdma for port in device.ports}
    if states:
        return ", ".join(sorted(states))
    return "-" if nic.pci is None or nic.pci.driver is None else nic.pci.driver


def _speed(megabits: int | None) -> str:
    if megabits is None:
        return "-"
    return f"{megabits // _GIGABIT}G" if megabits % _GIGABIT == 0 else f"{megabits}M"


def _bar(card: Nic, network: NodeNetwork, owners: Mapping[str, str]) -> str:
    """Draw a character for each virtual function; all are the letter of a claim that has the card itself."""
    vfs = card.pci.sriov.vfs if card.pci is not None and card.pci.sriov is not None else ()
    by_address = {
        **{str(record.attributes.get("pciAddress")): name for name, record in network.records.items()},
        **{nic.pci.address: name for name, nic in network.published.items() if nic.pci is not None},
    }
    owner = owners.get(by_address.get(card.pci.address, ""), "") if card.pci is not None else ""
    return "".join(owner or _symbol(by_address.get(address), network, owners) for address in vfs)


def _symbol(device: str | None, network: NodeNetwork, owners: Mapping[str, str]) -> str:
    if device is None:
        return KEPT
    return owners.get(device) or (UNHEALTHY if device in network.unhealthy else FREE)


def _interfaces(network: NodeNetwork, owners: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each device that is no virtual function, also of one that is away in a pod."""
    for name, nic in network.published.items():
        if nic.pf is None:
            note = " (shared)" if nic.shared else ""
            yield (*_facts(nic), f"{_symbol(name, network, owners)}{note}")
    for name, record in network.records.items():
        attributes = record.attributes
        if name in network.published or name not in owners or attributes.get("isSriovVf"):
            continue
        speed = attributes.get("speed")
        facts = (str(attributes.get(key, "-")) for key in ("ifName", "pciAddress", "numaNode"))
        yield (*facts, _speed(speed if isinstance(speed, int) else None), "in a pod", owners[name])


def _devices_of(claim: HeldClaim, records: Mapping[str, NicRecord]) -> Iterator[str]:
    """Yield what a claim has: each device, its name in the pod, and the pod."""
    moving = {move.record: move for move in moves(claim)}
    for device in claim.devices:
        move = moving.get(record_name(device))
        if device.admin_access:
            yield f"{device.name} (admin access)"
        elif move is None or move.attachment is None:
            yield device.name
        else:
            record = records.get(move.record)
            yield f"{device.name}: {_place(move.attachment, record)}"


def _place(attachment: Attachment, record: NicRecord | None) -> str:
    what = f"{attachment.parent or attachment.host.name} as {attachment.pod.name}"
    return f"{what} in {record.pod_name}" if record is not None and record.pod_name else f"{what}, not in a pod"


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
