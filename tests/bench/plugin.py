"""The device plugin bridge: a prepare beside the plugin's own Allocate and beside a driver that calls nobody.

python -m tests.bench.plugin [ROUNDS]

The plugin has 64 devices and a process of its own. Each round measures the three right after each other, on this
machine, without kubelet or API server. The bridge should take at most two Allocates and what the
other driver takes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, Final

from dra_driver_plugin import PluginDriver, PluginSettings
from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.client import PluginClient
from dra_driver_plugin.testing import FakePlugin

from dra_sdk import Claim, ContainerEdits, Device, DriverInfo, PreparedDevice
from dra_sdk.testing import DriverHarness, FakeNode, claim

ROUNDS: Final = 200
DEVICES: Final = {f"thing{number}": "Healthy" for number in range(64)}
_SERVE: Final = "--serve"
_START: Final = 120.0  # seconds until the plugin has registered, on a busy machine


class PlainDriver:
    """The same devices and edits, from nobody."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("plain.example.com")

    def dra_discover(self) -> Iterator[Device]:
        yield from (Device(name) for name in DEVICES)

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"THINGS": device.name}))


def answer(ids: Any) -> wire.AllocateResponse:
    found = wire.ContainerAllocateResponse(envs={"THINGS": ",".join(ids)})
    return wire.AllocateResponse(container_responses=[found])


def serve(directory: Path) -> None:
    """The plugin, until SIGTERM."""
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with FakePlugin(directory, DEVICES, options=wire.DevicePluginOptions(), allocate=answer) as plugin:
        plugin.follow_kubelet()
        stop.wait()


def prepare_and_back(driver: DriverHarness) -> float:
    """Milliseconds of a prepare; the claim is given back.

    The harness discovers and allocates before it prepares, which the kubelet does not wait for. That is measured by
    itself, with the claim that is allocated already, and subtracted.
    """
    wanted = driver.allocate(claim("thing"))
    before, _ = timed(lambda: driver.allocate(wanted))
    spent, prepared = timed(lambda: driver.prepare(wanted))
    driver.unprepare(prepared)
    return spent - before


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return 1000 * (time.perf_counter() - start), found


def measure(rounds: int) -> dict[str, float]:
    """Medians in milliseconds."""
    with ExitStack() as life:
        directory, *roots = (Path(life.enter_context(TemporaryDirectory(prefix="dra-"))) for _ in range(3))
        plugin = subprocess.Popen([sys.executable, "-m", "tests.bench.plugin", _SERVE, str(directory)])
        life.callback(plugin.wait)
        life.callback(plugin.terminate)
        settings = PluginSettings(directory=str(directory))
        bridge = DriverHarness(PluginDriver, node=FakeNode(roots[0]), settings=settings)
        plain = DriverHarness(PlainDriver, node=FakeNode(roots[1]))
        watching = life.enter_context(bridge.watching())
        while not bridge.devices:
            watching.wait_changed(_START)
        client = PluginClient(directory / "thing.sock")
        life.callback(client.close)
        found: dict[str, list[float]] = {"allocate": [], "plain": [], "bridge": []}
        for _ in range(rounds):
            found["allocate"].append(timed(lambda: client.allocate(["thing0"], 10))[0])
            found["plain"].append(prepare_and_back(plain))
            found["bridge"].append(prepare_and_back(bridge))
    return {name: median(values) for name, values in found.items()}


def main(rounds: int = ROUNDS) -> None:
    """Print the medians and the share of the limit."""
    found = measure(rounds)
    limit = 2 * found["allocate"] + found["plain"]
    print(", ".join(f"{name} {value:.2f} ms" for name, value in found.items()))
    print(f"the bridge takes {found['bridge'] / limit:.2f} of two Allocates and a plain prepare ({limit:.2f} ms)")


if __name__ == "__main__":
    if sys.argv[1:2] == [_SERVE]:
        serve(Path(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
