"""RDMA netlink: its bytes, and what the kernel's answers mean."""

from __future__ import annotations

import errno
import struct

import pytest
from dra_driver_nic.network.links import NetworkError
from dra_driver_nic.network.rdma_netlink import add_link, devices, is_exclusive, move, remove_link

SYS_GET = "10000000 06140500 01000000 00000000".replace(" ", "")
GET = "10000000 01140103 01000000 00000000".replace(" ", "")
SET = "20000000 02140500 01000000 00000000 0800010003000000 0800440009000000".replace(" ", "")
NEW_LINK = (
    "30000000 03140500 01000000 00000000 09000200 7278653000 000000 08004100 72786500 09003300 6e65743100 000000"
).replace(" ", "")
DELETE_LINK = "18000000 04140500 01000000 00000000 0800010003000000".replace(" ", "")
ACK = "24000000 02000000 01000000 00000000 00000000 10000000 06140500 01000000 00000000".replace(" ", "")
DONE = "14000000 03000200 01000000 00000000 00000000".replace(" ", "")
SHARED, EXCLUSIVE = (
    f"18000000 06140000 01000000 00000000 05004200 {mode} 000000".replace(" ", "") for mode in ("01", "00")
)
TWO = (
    "24000000 01140200 01000000 00000000 0800010000000000 0b000200 6d6c78355f3000 00"
    "2c000000 01140200 01000000 00000000 0800010003000000 0b000200 6d6c78355f3100 00 0800030001000000"
).replace(" ", "")


class Kernel:
    """A socket that answers with these messages, in hexadecimal."""

    def __init__(self, *answers: str) -> None:
        self.sent: list[str] = []
        self.is_closed = False
        self._answers = [bytes.fromhex(answer) for answer in answers]

    def send(self, message: bytes) -> int:
        self.sent.append(message.hex())
        return len(message)

    def recv(self, size: int) -> bytes:
        if not self._answers:
            raise TimeoutError("timed out")
        answer = self._answers.pop(0)
        assert len(answer) <= size
        return answer

    def close(self) -> None:
        self.is_closed = True


def refusal(number: int) -> str:
    return (struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -number) + bytes(16)).hex()


@pytest.mark.parametrize(("mode", "exclusive"), [(SHARED, False), (EXCLUSIVE, True)])
def test_the_mode_of_namespaces_is_read(mode: str, exclusive: bool) -> None:
    kernel = Kernel(mode, ACK)
    assert is_exclusive(lambda: kernel) is exclusive
    assert kernel.sent == [SYS_GET]
    assert kernel.is_closed


def test_a_kernel_without_rdma_has_no_exclusive_devices() -> None:
    def refuse() -> Kernel:
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    assert not is_exclusive(refuse)
    with pytest.raises(NetworkError, match="RDMA netlink cannot be opened: Protocol not supported"):
        devices(refuse)


def test_devices_are_listed_by_name() -> None:
    kernel = Kernel(TWO, DONE)
    assert devices(lambda: kernel) == {"mlx5_0": 0, "mlx5_1": 3}
    assert kernel.sent == [GET]
    together = Kernel(TWO + DONE)
    assert devices(lambda: together) == {"mlx5_0": 0, "mlx5_1": 3}


def test_a_device_is_moved_by_its_index_and_an_open_namespace() -> None:
    kernel = Kernel(ACK)
    move(lambda: kernel, "mlx5_1", 3, 9)
    assert kernel.sent == [SET]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EOPNOTSUPP, "refused to move RDMA device mlx5_1 to another network namespace: Operation not supported"),
        (errno.EPERM, "refused to move RDMA device mlx5_1 to another network namespace: Operation not permitted"),
    ],
)
def test_what_the_kernel_refuses_is_a_sentence(number: int, message: str) -> None:
    kernel = Kernel(refusal(number))
    with pytest.raises(NetworkError, match=message) as caught:
        move(lambda: kernel, "mlx5_1", 3, 9)
    assert caught.value.errno == number
    assert kernel.is_closed


def test_a_kernel_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(NetworkError, match="the kernel did not list RDMA devices: timed out"):
        devices(lambda: Kernel(TWO))


def test_a_device_in_software_is_made_and_removed() -> None:
    kernel = Kernel(ACK, ACK)
    add_link(lambda: kernel, "rxe0", "rxe", "net1")
    remove_link(lambda: kernel, "rxe0", 3)
    assert kernel.sent == [NEW_LINK, DELETE_LINK]


def test_a_refusal_names_the_device_and_its_interface() -> None:
    with pytest.raises(NetworkError, match="refused to make RDMA device rxe0 on interface net1: File exists") as raised:
        add_link(lambda: Kernel(refusal(errno.EEXIST)), "rxe0", "rxe", "net1")
    assert raised.value.errno == errno.EEXIST
    with pytest.raises(NetworkError, match="refused to remove RDMA device rxe0: No such device"):
        remove_link(lambda: Kernel(refusal(errno.ENODEV)), "rxe0", 3)
