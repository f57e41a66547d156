"""Network namespaces of the real kernel, for tests; they need root.

`PrivateNetworks` has a private one that stands for the node's, so a test never touches the interfaces of the machine.
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

from dra_driver_nic.network.kernel import KernelNamespace
from dra_driver_nic.network.links import EthtoolSettings

T = TypeVar("T")
_CLONE_NEWNET: Final = 0x40000000


class PrivateNamespace:
    """A new network namespace, which ends when it is closed and nothing else is in it."""

    def __init__(self, file: int | None = None) -> None:
        self._file = _in_thread(_new_namespace) if file is None else file

    @classmethod
    def of_this_thread(cls) -> PrivateNamespace:
        """Open the namespace in which the calling thread is."""
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
        """Run the program `ip` inside it, once for each argument; return the output. AssertionError if one fails."""
        return self.enter(lambda: "".join(_ip(command) for command in arguments))

    def names(self) -> set[str]:
        """Return the names of its interfaces."""
        return {link["ifname"] for link in json.loads(self.ip("-j link"))}

    def state(self, seconds: float = 10.0) -> dict[str, object]:
        """Return all that `ip` and the sysctls show, and `rdma` and `devlink` where the kernel has them.

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
            **{" ".join(command): sorted(self.enter(partial(_output, command)).splitlines()) for command in _others()},
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
    """Return the commands that show RDMA devices and cards, as far as this machine and its kernel have them."""
    commands = (("rdma", "link"), ("devlink", "dev"), ("devlink", "port"))
    known = [command for command in commands if shutil.which(command[0])]
    return tuple(
        command for command in known if not subprocess.run(command, check=False, capture_output=True).returncode
    )


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _is_settled(addresses: str) -> bool:
    """Return whether no IPv6 address is tentative and each link that is up has a link-local one, by `ip -d -j addr`."""
    for link in json.loads(addresses):
        ipv6 = [address for address in link.get("addr_info", ()) if address["family"] == "inet6"]
        if any(address.get("tentative") for address in ipv6):
            return False
        makes_one = link["link_type"] == "ether" and link.get("inet6_addr_gen_mode", "none") != "none"
        is_up = {"UP", "LOWER_UP"} <= set(link["flags"])
        has_ipv6 = bool(ipv6) or not link.get("addr_info")
        if is_up and makes_one and has_ipv6 and not any(address["scope"] == "link" for address in ipv6):
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
        """Make a namespace for a pod. Its path on the node is `/run/netns/NAME`."""
        self._pods[name] = PrivateNamespace()
        return self._pods[name]

    def end_pod(self, name: str) -> None:
        """End the namespace of a pod."""
        self._pods.pop(name).close()

    def remove_path(self, name: str) -> PrivateNamespace:
        """Remove the path of a pod's namespace, and return the namespace, which ends when the caller closes it."""
        return self._pods.pop(name)

    def open(self, path: Path | None) -> KernelNamespace:
        """Open a namespace, as `dra_driver_nic.describe.node.OpenNamespace`."""
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


def _ip(arguments: str) -> str:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ip {arguments}: {done.stderr.strip()}")
    return done.stdout


def _sysctls() -> dict[str, str]:
    """Read the sysctls of all interfaces that can be read."""
    values = {}
    for path in sorted(Path("/proc/sys/net").glob("ipv[46]/*/*/*")):
        try:
            values[str(path)] = path.read_text(encoding="ascii")
        except OSError:
            continue
    return values


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
