"""What kernel drivers tell of cards: firmware, and the mode of the eswitch. No kernel here has such a card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dra_driver_nic.cards import read_eswitch_modes, read_firmware
from dra_driver_nic.testing import PrivateNetworks
from pyroute2.netlink.devlink import DEVLINK_NAMES, devlinkcmd
from pyroute2.netlink.exceptions import NetlinkError

CARDS = {"0000:3b:00.0": 1, "0000:3b:00.1": 0, "0000:3b:00.2": None, "0000:5e:00.0": 7}
"""Numbers of modes by PCI address; None for a card without an eswitch, 7 for a mode that nobody knows."""


class FakeDevlink:
    """A generic netlink socket: answers as devlink of the kernel does, by messages that went through its coding."""

    prid = 22

    def __init__(self, *, known: bool = True) -> None:
        self.known, self.closed = known, False

    def bind(self, family: str, kind: type) -> None:
        assert (family, kind) == ("devlink", devlinkcmd)
        if not self.known:
            raise NetlinkError(2, "No such file or directory")

    def nlm_request(self, message: Any, msg_type: int, msg_flags: int) -> Iterator[Any]:
        assert msg_type == self.prid
        assert msg_flags
        asked = decoded(message)
        if asked["cmd"] == DEVLINK_NAMES["DEVLINK_CMD_GET"]:
            yield answer(DEVLINK_ATTR_BUS_NAME="auxiliary", DEVLINK_ATTR_DEV_NAME="mlx5_core.sf.4")
            for address in CARDS:
                yield answer(DEVLINK_ATTR_BUS_NAME="pci", DEVLINK_ATTR_DEV_NAME=address)
            return
        assert asked["cmd"] == DEVLINK_NAMES["DEVLINK_CMD_ESWITCH_GET"]
        assert asked.get_attr("DEVLINK_ATTR_BUS_NAME") == "pci"
        mode = CARDS[asked.get_attr("DEVLINK_ATTR_DEV_NAME")]
        if mode is None:
            raise NetlinkError(95, "Operation not supported")
        yield answer(DEVLINK_ATTR_ESWITCH_MODE=mode)

    def close(self) -> None:
        self.closed = True


def decoded(message: Any) -> Any:
    message.encode()
    found = devlinkcmd(bytes(message.data))
    found.decode()
    return found


def answer(**attributes: Any) -> Any:
    made = devlinkcmd()
    made["attrs"] = [[name, value] for name, value in attributes.items()]
    return decoded(made)


def test_devlink_tells_the_mode_of_each_card_with_an_eswitch() -> None:
    devlink = FakeDevlink()
    assert read_eswitch_modes(lambda: devlink) == {"0000:3b:00.0": "switchdev", "0000:3b:00.1": "legacy"}
    assert devlink.closed


def test_a_kernel_without_devlink_tells_nothing() -> None:
    devlink = FakeDevlink(known=False)
    assert read_eswitch_modes(lambda: devlink) == {}
    assert devlink.closed


def test_this_kernel_is_asked_without_an_error() -> None:
    assert isinstance(read_eswitch_modes(), dict)


def test_software_has_no_firmware(networks: PrivateNetworks) -> None:
    assert networks.node.enter(lambda: read_firmware(["nic0", "lo", "none"])) == {}
