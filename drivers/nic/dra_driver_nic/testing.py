"""Network namespaces and sysfs trees for tests of this driver.

`PrivateNetworks` has namespaces of the real kernel, a private one that stands for the node's, so a test never touches
the interfaces of the machine; it needs root. `write_interface` and `write_rdma_device` describe hardware in files.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Final, TypeVar

from dra_driver_nic.config import (
    EthtoolConfig,
    InterfaceConfig,
    NeighbourConfig,
    NicConfig,
    RouteConfig,
    RuleConfig,
)
from dra_driver_nic.driver import NicDriver
from dra_driver_nic.kernel import KernelNamespace
from dra_driver_nic.links import EthtoolSettings
from dra_sdk import PodSandbox
from dra_sdk.testing import DriverHarness, FakeNode

T = TypeVar("T")
_CLONE_NEWNET: Final = 0x40000000
EVERY_FIELD: Final = NicConfig(
    interface=InterfaceConfig(
        name="net1",
        mtu=1400,
        hardware_addr="02:00:00:00:00:77",
        addresses=("10.1.1.5/24", "fd07::5/64"),
        arp_ignore=1,
        arp_announce=2,
        sysctls={"ipv4.conf.rp_filter": "2"},
    ),
    routes=(
        RouteConfig(destination="10.2.0.0/16", gateway="10.3.0.1"),
        RouteConfig(destination="10.3.0.0/24", scope=253),
        RouteConfig(destination="fd08::/64", gateway="fd07::1", source="fd07::5"),
    ),
    rules=(RuleConfig(priority=50, source="10.1.1.0/24", table=99),),
    neighbors=(NeighbourConfig(destination="10.1.1.9", hardware_addr="02:00:00:00:00:99"),),
    ethtool=EthtoolConfig(features={"tso": False, "rx-gro": True}, channels={"rx": 1, "tx": 1}),
)
"""A configuration of an interface with every field that a veth can have."""


class PrivateNamespace:
    """A new network namespace, which ends when it is closed and nothing else is in it."""

    def __init__(self, file: int | None = None) -> None:
        self._file = _in_thread(_new_namespace) if file is None else file

    @classmethod
    def of_this_thread(cls) -> PrivateNamespace:
        """The namespace in which the calling thread is."""
        return cls(os.open("/proc/thread-self/ns/net", os.O_RDONLY))

    @property
    def path(self) -> Path:
        """By which this process and its children open it."""
        return Path(f"/proc/self/fd/{self._file}")

    def open(self) -> KernelNamespace:
        """Open it once more."""
        return KernelNamespace(self.path)

    def enter(self, work: Callable[[], T]) -> T:
        """Call a function inside it. Programs that it starts and sockets that it opens belong to it, too."""
        opened = self.open()
        try:
            return opened.run(lambda _network: work())
        finally:
            opened.close()

    def ip(self, *arguments: str) -> str:
        """Run the program `ip` inside it, once for each argument; the output. AssertionError if one fails."""
        return self.enter(lambda: "".join(_ip(each) for each in arguments))

    def names(self) -> set[str]:
        """The names of its interfaces."""
        return {each["ifname"] for each in json.loads(self.ip("-j link"))}

    def state(self, seconds: float = 10.0) -> dict[str, object]:
        """All that `ip` and the sysctls tell, and `rdma` and `devlink` where the kernel has them.

        Routes and neighbours are sorted: the kernel has them in any order.

        The kernel needs a moment for a link that comes up: for its IPv6 address, and for the routes of that. So the
        state is read until it is the same twice, and no address is still being examined; after `seconds` as it is.
        """
        end = time.monotonic() + seconds
        last: dict[str, object] = {}
        while True:
            now = self._read_state()
            if (now == last and _is_settled(str(now["addresses"]))) or time.monotonic() > end:
                return now
            last = now
            time.sleep(0.02)

    def _read_state(self) -> dict[str, object]:
        return {
            "links": self.ip("-d -j link"),
            "addresses": self.ip("-d -j addr"),
            "neighbours": sorted(self.ip("neigh show nud permanent").splitlines()),
            "rules": self.ip("rule", "-6 rule"),
            "routes": sorted(self.ip("route show table all", "-6 route show table all").splitlines()),
            "sysctls": self.enter(_sysctls),
            "ethtool": {name: self._ethtool(name) for name in sorted(self.names() - {"lo"})},
            **{" ".join(each): sorted(self.enter(partial(_output, each)).splitlines()) for each in _others()},
        }

    def _ethtool(self, name: str) -> EthtoolSettings:
        opened = self.open()
        try:
            return opened.run(lambda network: network.ethtool(name))
        finally:
            opened.close()

    def close(self) -> None:
        """Leave it."""
        os.close(self._file)


@cache
def _others() -> tuple[tuple[str, ...], ...]:
    """The commands that tell of RDMA devices and of cards, as far as this machine and its kernel have them."""
    commands = (("rdma", "link"), ("devlink", "dev"), ("devlink", "port"))
    known = [each for each in commands if shutil.which(each[0])]
    return tuple(each for each in known if not subprocess.run(each, check=False, capture_output=True).returncode)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _is_settled(addresses: str) -> bool:
    """Whether no IPv6 address is tentative, and each link that is up has its link-local one, by `ip -d -j addr`."""
    for link in json.loads(addresses):
        found = [each for each in link.get("addr_info", ()) if each["family"] == "inet6"]
        if any(each.get("tentative") for each in found):
            return False
        makes_one = link["link_type"] == "ether" and link.get("inet6_addr_gen_mode", "none") != "none"
        is_up = {"UP", "LOWER_UP"} <= set(link["flags"])
        has_ipv6 = bool(found) or not link.get("addr_info")
        if is_up and makes_one and has_ipv6 and not any(each["scope"] == "link" for each in found):
            return False
    return True


class PrivateNetworks:
    """A node and its pods: a namespace that stands for the node's, and one for each pod.

    node: the namespace of the node.
    """

    def __init__(self) -> None:
        self.node = PrivateNamespace()
        self._pods: dict[str, PrivateNamespace] = {}

    def add_pod(self, name: str) -> PrivateNamespace:
        """A namespace for a pod. Its path on the node is `/run/netns/NAME`."""
        self._pods[name] = PrivateNamespace()
        return self._pods[name]

    def end_pod(self, name: str) -> None:
        """End the namespace of a pod."""
        self._pods.pop(name).close()

    def remove_path(self, name: str) -> PrivateNamespace:
        """The path of a pod's namespace no longer exists. The namespace ends when the caller closes it."""
        return self._pods.pop(name)

    def open(self, path: Path | None) -> KernelNamespace:
        """As `dra_driver_nic.node.OpenNamespace`."""
        if path is None:
            return self.node.open()
        if path.name not in self._pods:
            raise FileNotFoundError(f"there is no namespace {path}")
        return self._pods[path.name].open()

    def close(self) -> None:
        """End all namespaces."""
        for name in [*self._pods]:
            self.end_pod(name)
        self.node.close()


def sandbox(driver: DriverHarness, pod: str, uid: str = "uid-1") -> PodSandbox:
    """The sandbox of a pod that has all claims which the driver holds, in the namespace `pod`."""
    return PodSandbox(
        id=f"sandbox-{pod}",
        namespace="default",
        name=f"name-{uid}",
        uid=uid,
        claims=driver.held,
        network_namespace=f"/run/netns/{pod}",
    )


def nic_driver(driver: DriverHarness) -> NicDriver:
    """The driver of a harness."""
    if not isinstance(driver.plugin, NicDriver):
        raise TypeError(f"this needs a NicDriver, not {driver.plugin!r}")
    return driver.plugin


def run_sandbox(driver: DriverHarness, pod: str, uid: str = "uid-1") -> PodSandbox:
    """Start such a sandbox without a container runtime."""
    made = sandbox(driver, pod, uid)
    nic_driver(driver).dra_run_pod_sandbox(made, driver.node.node)
    return made


def stop_sandbox(driver: DriverHarness, made: PodSandbox) -> None:
    """Stop it."""
    nic_driver(driver).dra_stop_pod_sandbox(made, driver.node.node)


def wait_for_state(namespace: PrivateNamespace, wanted: Mapping[str, object], seconds: float = 50.0) -> None:
    """Wait until a namespace is as it was: the kernel notices a little later that a link is ready.

    AssertionError with what differs.
    """
    end = time.monotonic() + seconds
    while (now := namespace.state()) != wanted:
        if time.monotonic() > end:
            differing = [f"{key}: {wanted[key]} → {now[key]}" for key in now if now[key] != wanted[key]]
            raise AssertionError("\n".join(differing))
        time.sleep(0.02)


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
        **{f"{port}/gid_attrs/ndevs/{each}": interface for each, interface in enumerate(interfaces)},
        **{f"{directory}/{key}": value for key, value in files.items()},
    }.items():
        node.file(path, f"{content}\n")
    node.link(f"{directory}/device", "../..")
    node.link(f"/sys/class/infiniband/{name}", f"../../{directory.removeprefix('/sys/')}")
    for path in (f"/dev/infiniband/uverbs{number}", f"/dev/infiniband/umad{number}"):
        node.device_node(path, major=231, minor=192 + number)
    if not node.path("/dev/infiniband/rdma_cm").exists():
        node.device_node("/dev/infiniband/rdma_cm", major=10, minor=122)


def _ip(arguments: str) -> str:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ip {arguments}: {done.stderr.strip()}")
    return done.stdout


def _sysctls() -> dict[str, str]:
    """The sysctls of all interfaces that can be read."""
    found = {}
    for path in sorted(Path("/proc/sys/net").glob("ipv[46]/*/*/*")):
        try:
            found[str(path)] = path.read_text(encoding="ascii")
        except OSError:
            continue
    return found


def _new_namespace() -> int:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot make a network namespace: {os.strerror(number)}")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _in_thread(work: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[OSError] = []

    def call() -> None:
        try:
            results.append(work())
        except OSError as error:
            errors.append(error)

    thread = Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
