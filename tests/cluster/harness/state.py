"""What a cluster keeps between two commands: its version, feature gates, ports and processes."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from . import network
from .errors import HarnessError
from .processes import Process

PORTS = ("etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler", "kubelet", "kubelet-health")
_PORT_RANGE = range(20000, 30000)
"""Below the ports that the kernel usually gives to outgoing connections (from 32768), so these take none of ours."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class State:
    """The state of one cluster. It is saved at each change, so after a killed harness it is at most one step behind.

    name: the name of the cluster.
    version: the Kubernetes version, without a leading v.
    gates: the feature gates of every component.
    cache: the path of the cache with the binaries.
    ports: the TCP ports by the names of PORTS.
    sysctls: the sysctls as they were before the cluster changed them.
    ready: whether the cluster came up completely.
    boot: the boot of the machine in which it was saved.
    processes: the processes of the components that were started and not stopped.
    """

    name: str
    version: str
    gates: dict[str, bool]
    cache: str
    ports: dict[str, int]
    sysctls: dict[str, str]
    ready: bool = False
    boot: str = ""
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Reads the state; None if there is none, or if the machine has booted since."""
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise HarnessError(f"{path} is not JSON ({error}); `down` can still remove the cluster") from error
        processes = {name: Process(**ids) for name, ids in content.pop("processes").items()}
        state = cls(**content, processes=processes)
        return state if state.boot == boot_id() else None

    def save(self, path: Path) -> None:
        """Writes the state completely or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({**asdict(self), "boot": boot_id()}, indent=2) + "\n")
        partial.replace(path)


def boot_id() -> str:
    """Returns the identifier of this boot of the machine."""
    return BOOT_ID.read_text().strip()


def choose_ports(service_address: str) -> dict[str, int]:
    """Returns a free TCP port for each name of PORTS.

    The API server gets port 443 of its own address, which is the address of its service. If another program listens
    on port 443 of all addresses, it gets another port, and pods cannot reach it by its service.
    """
    ports: dict[str, int] = {}
    for port in random.sample(_PORT_RANGE, 500):
        if len(ports) == len(PORTS):
            break
        if network.is_free("127.0.0.1", port):
            ports[PORTS[len(ports)]] = port
    else:
        raise HarnessError(f"no {len(PORTS)} free TCP ports from {_PORT_RANGE.start} to {_PORT_RANGE.stop - 1}")
    if network.is_free(service_address, network.HTTPS):
        ports["apiserver"] = network.HTTPS
    return ports
