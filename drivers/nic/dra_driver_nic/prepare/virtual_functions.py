"""What the physical function prescribes for a virtual function while a claim has it: VLAN, trust, rates and more.

The journal has the settings of before, because the kernel no longer has them after the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Final, Self

from dra_driver_nic.config import VfConfig
from dra_driver_nic.describe.nics import PhysicalFunction
from dra_driver_nic.describe.node import NicNode
from dra_driver_nic.network.links import Link, Network, VfSettings
from dra_driver_nic.network.rdma import pci_address_of
from dra_sdk import HardwareError, HeldClaim, NotNeededError, PermanentError
from dra_sdk.hardware.host import exists

_LINK_STATES: Final = {"auto": 0, "enable": 1, "disable": 2}
_TOGETHER: Final = {
    "VLAN": ("vlan", "qos"),
    "spoof check": ("spoofchk",),
    "trust": ("trust",),
    "rates": ("min_tx_rate", "max_tx_rate"),
    "link state": ("link_state",),
}
"""The settings that the kernel takes by one message each (`VfSettings`)."""
_HARMLESS: Final = frozenset({"rates", "link state"})
"""Those that let a function do no more than before: how fast it is, and whether it has a carrier."""


@dataclass(frozen=True, slots=True)
class VfStep:
    """A change of a virtual function's settings.

    pf: PCI address of the physical function.
    before: the settings before, of those that change.
    after: the settings that the claim asks for.
    """

    pf: str
    before: VfSettings
    after: VfSettings

    @classmethod
    def plan(cls, node: NicNode, pf: PhysicalFunction, config: VfConfig) -> Self:
        """Plan what must change for a claim; change nothing.

        Raises PermanentError for a setting that the physical function does not have.
        """
        after = _wanted(pf.number, config)
        with node.namespace() as namespace:
            link = namespace.run(lambda network: _pf_link(node, network, pf.pci.address))
        now = next((vf for vf in link.vfs if vf.number == pf.number), None)
        if now is None:
            raise PermanentError(f"physical function {pf.pci.address} does not tell the settings of VF {pf.number}")
        changed = {
            field.name: getattr(now, field.name) for field in fields(after) if getattr(after, field.name) is not None
        }
        missing = sorted(name for name, value in changed.items() if value is None)
        if missing:
            raise PermanentError(f"physical function {pf.pci.address} has no setting {', '.join(missing)} for its VFs")
        return cls(pf.pci.address, VfSettings(**changed), after)

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """Return the change that a journal keeps."""
        return cls(entry["pf"], VfSettings(**entry["before"]), VfSettings(**entry["after"]))

    @property
    def entry(self) -> dict[str, Any]:
        """What a journal keeps, as JSON."""
        return {"pf": self.pf, "before": asdict(self.before), "after": asdict(self.after)}

    def apply(self, node: NicNode) -> None:
        """Make the change. Raises NetworkError."""
        self._set(node, self.after)

    def restore(self, node: NicNode, claim: HeldClaim) -> None:
        """Make the settings what they were, each in a step of its own; those that are so already are left alone.

        What lets a function do more than before is no harmless setting. NotNeededError if the function is gone, with
        the card or with the number of functions.
        """
        function = node.function(self.pf)
        if not exists(function):
            raise NotNeededError(f"physical function {self.pf} is gone")
        if exists(function / "sriov_numvfs") and not exists(function / f"virtfn{self.before.number}"):
            raise NotNeededError(f"physical function {self.pf} has no virtual function {self.before.number} any more")
        with node.namespace() as namespace:
            link = namespace.run(lambda network: _pf_link(node, network, self.pf))
            now = next((vf for vf in link.vfs if vf.number == self.before.number), VfSettings(number=-1))
            for what, names in _TOGETHER.items():
                before = {name: getattr(self.before, name) for name in names if getattr(self.before, name) is not None}
                if any(getattr(now, name) != value for name, value in before.items()):
                    settings = VfSettings(number=self.before.number, **before)
                    step = f"{what} of virtual function {settings.number} of {self.pf}"
                    with claim.undoing(step, harmless=what in _HARMLESS):
                        namespace.run(partial(_set_vf, link=link.index, settings=settings))

    def _set(self, node: NicNode, settings: VfSettings) -> None:
        with node.namespace() as namespace:
            namespace.run(lambda network: network.set_vf(_pf_link(node, network, self.pf).index, settings))


def _set_vf(network: Network, link: int, settings: VfSettings) -> None:
    network.set_vf(link, settings)


def _wanted(number: int, config: VfConfig) -> VfSettings:
    return VfSettings(
        number=number,
        vlan=config.vlan,
        qos=None if config.vlan is None else config.qos or 0,
        trust=config.trust,
        spoofchk=config.spoofchk,
        min_tx_rate=config.min_tx_rate,
        max_tx_rate=config.max_tx_rate,
        link_state=None if config.link_state is None else _LINK_STATES[config.link_state],
    )


def _pf_link(node: NicNode, network: Network, address: str) -> Link:
    """Find the interface of a physical function that knows its VFs. Raises HardwareError if there is none."""
    for link in network.links():
        if link.vfs and pci_address_of(node.host.sys / "class/net" / link.name) == address:
            return link
    raise HardwareError(f"physical function {address} has no interface on the node by which its VFs are set")
