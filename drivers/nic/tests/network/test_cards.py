"""What kernel drivers know of cards: firmware, and the mode of the eswitch. No kernel here has such a card."""

from __future__ import annotations

from typing import Any

from dra_driver_nic.network.cards import read_eswitch_modes, read_firmware
from dra_driver_nic.network.netlink import Content, MessageKind
from dra_driver_nic.testing import PrivateNetworks
from pyroute2.netlink import GENL_ID_CTRL
from pyroute2.netlink.devlink import DEVLINK_NAMES
from pyroute2.netlink.exceptions import NetlinkError

CARDS = {"0000:3b:00.0": 1, "0000:3b:00.1": 0, "0000:3b:00.2": None, "0000:5e:00.0": 7}
"""Numbers of modes by PCI address; None for a card without an eswitch, 7 for an unknown mode."""


class FakeDevlink:
    """A socket of generic netlink: answers as devlink of the kernel does, by messages that went through its coding."""

    family = 22

    def __init__(self, *, known: bool = True) -> None:
        self.known, self.closed = known, False

    def read_one(self, kind: MessageKind, command: int, content: Content) -> Any:
        if command == GENL_ID_CTRL:
            asked = decoded(kind, content.fields, *content.attributes)
            assert asked.get_attr("CTRL_ATTR_FAMILY_NAME") == "devlink"
            if not self.known:
                raise NetlinkError(2, "No such file or directory")
            return decoded(kind, {}, ("CTRL_ATTR_FAMILY_ID", self.family))
        assert command == self.family
        asked = decoded(kind, content.fields, *content.attributes)
        assert asked["cmd"] == DEVLINK_NAMES["DEVLINK_CMD_ESWITCH_GET"]
        assert asked.get_attr("DEVLINK_ATTR_BUS_NAME") == "pci"
        mode = CARDS[asked.get_attr("DEVLINK_ATTR_DEV_NAME")]
        if mode is None:
            raise NetlinkError(95, "Operation not supported")
        return decoded(kind, {}, ("DEVLINK_ATTR_ESWITCH_MODE", mode))

    def read_all(self, kind: MessageKind, command: int, content: Content) -> list[Any]:
        assert command == self.family
        assert decoded(kind, content.fields)["cmd"] == DEVLINK_NAMES["DEVLINK_CMD_GET"]
        devices = [("auxiliary", "mlx5_core.sf.4"), *(("pci", address) for address in CARDS)]
        return [
            decoded(kind, {}, ("DEVLINK_ATTR_BUS_NAME", bus), ("DEVLINK_ATTR_DEV_NAME", name)) for bus, name in devices
        ]

    def close(self) -> None:
        self.closed = True


def decoded(kind: MessageKind, fields: dict[str, int], *attributes: tuple[str, Any]) -> Any:
    """Write a message, and read it again."""
    message = kind()
    message.update(fields)
    message["attrs"] = list(attributes)
    message.encode()
    again = kind(bytes(message.data))
    again.decode()
    return again


def test_devlink_has_the_mode_of_each_card_with_an_eswitch() -> None:
    devlink = FakeDevlink()
    assert read_eswitch_modes(lambda: devlink) == {"0000:3b:00.0": "switchdev", "0000:3b:00.1": "legacy"}
    assert devlink.closed


def test_a_kernel_without_devlink_has_no_modes() -> None:
    devlink = FakeDevlink(known=False)
    assert read_eswitch_modes(lambda: devlink) == {}
    assert devlink.closed


def test_this_kernel_is_asked_without_an_error() -> None:
    assert isinstance(read_eswitch_modes(), dict)


def test_software_has_no_firmware(networks: PrivateNetworks) -> None:
    assert networks.node.enter(lambda: read_firmware(["nic0", "lo", "none"])) == {}
