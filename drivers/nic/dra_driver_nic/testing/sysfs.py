"""Network interfaces and RDMA devices as files of sysfs, for tests without hardware."""

from __future__ import annotations

from collections.abc import Sequence

from dra_sdk.testing import FakeNode


def write_interface(
    node: FakeNode, name: str, index: int, device: str = "", *, mac: str = "02:00:00:00:00:01", **files: object
) -> None:
    """Write an interface of `/sys/class/net`.

    device: the directory of its device below /sys/devices, such as `pci0000:00/0000:00:05.0`; empty for software.
    files: other files of the interface with their content, such as `speed=25000`; None for a file that the kernel
        refuses to read, and an archive therefore lacks.
    """
    directory = f"/sys/devices/{device}/net/{name}" if device else f"/sys/devices/virtual/net/{name}"
    content = {
        "address": mac,
        "carrier": 1,
        "dev_port": 0,
        "flags": "0x1003",
        "ifindex": index,
        "mtu": 1500,
        "operstate": "up",
        "type": 1,
        **files,
    }
    for key, value in content.items():
        if value is not None:
            node.file(f"{directory}/{key}", f"{value}\n")
    if device:
        node.link(f"{directory}/device", "../..")
    node.link(f"/sys/class/net/{name}", f"../../{directory.removeprefix('/sys/')}")


def write_rdma_device(
    node: FakeNode,
    name: str,
    device: str,
    number: int,
    *,
    layer: str = "Ethernet",
    state: str = "4: ACTIVE",
    interfaces: Sequence[str] = (),
    **files: object,
) -> None:
    """Write an RDMA device with one port, and its device nodes.

    device: the directory of its device below /sys/devices.
    number: the number of its `uverbs`.
    files: other files of the device with their content, such as `fw_ver="1.2"` or `**{"ports/1/pkeys/1": "0x8001"}`.
    """
    directory = f"/sys/devices/{device}/infiniband/{name}"
    port = f"{directory}/ports/1"
    for path, content in {
        f"{directory}/node_guid": "0c42:a103:0065:1234",
        f"{directory}/fw_ver": "22.31.1014",
        f"{port}/state": state,
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/link_layer": layer,
        f"{port}/rate": "100 Gb/sec (4X EDR)",
        f"{port}/lid": "0x1f",
        f"{port}/pkeys/0": "0xffff",
        f"{port}/pkeys/1": "0x0000",
        f"/sys/class/infiniband_verbs/uverbs{number}/ibdev": name,
        f"/sys/class/infiniband_mad/umad{number}/ibdev": name,
        **{f"{port}/gid_attrs/ndevs/{place}": interface for place, interface in enumerate(interfaces)},
        **{f"{directory}/{key}": value for key, value in files.items()},
    }.items():
        node.file(path, f"{content}\n")
    node.link(f"{directory}/device", "../..")
    node.link(f"/sys/class/infiniband/{name}", f"../../{directory.removeprefix('/sys/')}")
    for path in (f"/dev/infiniband/uverbs{number}", f"/dev/infiniband/umad{number}"):
        node.device_node(path, major=231, minor=192 + number)
    if not node.path("/dev/infiniband/rdma_cm").exists():
        node.device_node("/dev/infiniband/rdma_cm", major=10, minor=122)
