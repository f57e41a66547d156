"""What a cluster remembers between two commands: its version and gates, its ports and its processes."""

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
"""Below the kernel's usual ephemeral range (32768 up), so that no outgoing connection takes a port we chose."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class State:
    """Written before and after each change, so that a killed harness leaves a true picture or one that lags a step."""

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
        """Reads the state, None where there is none or where the machine has booted since."""
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise HarnessError(f"{path} is not JSON ({error}); `down` removes the cluster all the same") from error
        processes = {name: Process(**ids) for name, ids in content.pop("processes").items()}
        state = cls(**content, processes=processes)
        return state if state.boot == boot_id() else None

    def save(self, path: Path) -> None:
        """Writes the state, whole or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({**asdict(self), "boot": boot_id()}, indent=2) + "\n")
        partial.replace(path)


def boot_id() -> str:
    """Returns an identifier that changes with each boot of the machine."""
    return BOOT_ID.read_text().strip()


def choose_ports(service_address: str) -> dict[str, int]:
    """Returns a free TCP port per name of PORTS.

    The API server gets 443 of its own address, where pods look for it, unless something listens on 443 of all
    addresses: then pods cannot find it by its service.
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
