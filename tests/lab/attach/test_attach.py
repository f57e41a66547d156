"""How long a container runtime waits for virtual functions, and what a hundred pods leave behind.

The machine's clock counts instructions, a nanosecond each: `make bench-lab`. The driver is a process of its own; this
process is the API server, the kubelet and the container runtime, as in `tests.bench.net`.
"""

from __future__ import annotations

from collections.abc import Iterator
from subprocess import run

import pytest

from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime
from tests.bench.net import CYCLES, DRIVER, LIMIT, Bench
from tests.bench.runtime import HEAD, print_row, running_driver
from tests.bench.stats import quantile
from tests.lab.harness.node import LIMIT as PATIENCE
from tests.lab.inside.functions import Function, functions_of
from tests.lab.inside.node.test_network import add_virtual_functions, changes, device, network, virtual_functions


@pytest.fixture(scope="module")
def card() -> Iterator[Function]:
    """A card with two virtual functions."""
    run(["modprobe", "igbvf"], check=True)
    found = functions_of("igb")[0]
    run(["ip", "link", "set", *found.interfaces, "up"], check=True)
    carrier = found.path / "net" / found.interfaces[0] / "carrier"
    wait(lambda: carrier.read_text() == "1\n", PATIENCE)
    add_virtual_functions(found)
    wait(lambda: len(virtual_functions()) == 2, PATIENCE)
    yield found
    (found.path / "sriov_numvfs").write_text("0")
    run(["ip", "link", "set", *found.interfaces, "down"], check=True)


@pytest.fixture(scope="module")
def bench(card: Function, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The driver, with the virtual functions."""
    folder = tmp_path_factory.mktemp("bench")
    settings = {"DRA_NIC_STATE_DIR": str(folder / "state")}
    with (
        EmbeddedCluster() as cluster,
        NriRuntime(folder / "nri.sock") as runtime,
        running_driver("nic", cluster, runtime, environment=settings),
    ):
        cluster.kubelet.wait_for_driver(DRIVER)
        cluster.wait_slices(DRIVER)
        yield Bench(cluster, runtime, {device(each): each.interfaces[0] for each in virtual_functions()})


@pytest.mark.timeout(0)
@pytest.mark.parametrize("functions", [1, 2])
def test_a_hundred_pods_wait_a_moment_and_leave_everything_as_it_was(bench: Bench, functions: int) -> None:
    """For one function at most 150 ms, p99."""
    before = network()
    calls = bench.run(functions, CYCLES)
    print(f"\n{HEAD}")
    for method in ("RunPodSandbox", "StopPodSandbox"):
        print_row(f"{method}, {functions} functions", calls[method])
    wait(lambda: changes(before) == {}, PATIENCE)
    assert functions > 1 or quantile(calls["RunPodSandbox"], 0.99) <= LIMIT
    assert bench.late == 0
