"""A cluster for all tests of a module, and in it an environment for each driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.kube.client import KubeClient
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.conformance.driver_under_test import DriverUnderTest
from dra_sdk.tools.conformance.environment import USER_AGENT, KitClient, NodeEnvironment
from dra_sdk.tools.conformance.nri_node import runtime_for
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.timeouts import Timeouts
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from tests.tools.conformance.mutants import NONE, Faults
from tests.tools.conformance.mutants.launcher import MutantLauncher

PATIENT_KUBELET = KubeletTiming(get_info=LONG, notify=LONG)
"""A second for GetInfo is too short for tests on a busy machine that are not about it."""
TIMEOUTS = Timeouts(
    start=LONG,
    stop=LONG,
    slices=LONG,
    quiet=0.3,
    health=LONG,
    settle=0.2,
    nri_connect=LONG,
    nri_reconnect=LONG,
    nri_registration=LONG,
    nri_request=LONG,
    kubelet=PATIENT_KUBELET,
)
"""Long for what happens, short for what never happens."""
OpenRun = Callable[..., AbstractContextManager[Run]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.kubelet.stop()
        yield running


@pytest.fixture(scope="module")
def open_run(cluster: EmbeddedCluster) -> Iterator[OpenRun]:
    """`open_run(faults, timeouts, …)`: a run against a driver with these faults; options as for `Run`."""
    numbers = itertools.count(1)
    api = KitClient(KubeClient.connect(cluster.kubeconfig, agent=USER_AGENT))

    @contextmanager
    def opened(faults: Faults = NONE, timeouts: Timeouts = TIMEOUTS, **options: Any) -> Iterator[Run]:
        number = next(numbers)
        namespace = f"conformance-{number}"
        api.create_namespace(namespace)
        environment = _environment(cluster, api, namespace, cluster.root / str(number))
        if options.pop("host_tree", True):
            environment = replace(environment, host_root=_host(cluster.root / str(number) / "host"))
        launcher = options.pop("launcher", MutantLauncher(f"m{number}.example.com", faults))
        if not options.pop("request_log", True):
            environment = replace(environment, requests=None)
        cluster.server.log.clear()
        with ExitStack() as stack:
            driver = stack.enter_context(closing(DriverUnderTest(environment, launcher, "", timeouts)))
            nri = stack.enter_context(runtime_for(driver)) if "nri" in faults else None
            yield Run(driver, nri=nri, **options)

    with closing(api):
        yield opened


def _environment(cluster: EmbeddedCluster, api: KitClient, namespace: str, root: Path) -> NodeEnvironment:
    folders = [root / name for name in ("k/plugins_registry", "k/plugins", "static", "cdi")]
    for folder in folders:
        folder.mkdir(parents=True)
    registry, plugins, static, cdi = folders
    log = cluster.server.log
    return NodeEnvironment(
        api,
        cluster.node_name,
        namespace,
        registry,
        plugins,
        (static, cdi),
        cluster.kubeconfig,
        requests=lambda: [record for record in log.records() if USER_AGENT not in record.user_agent],
        nri_socket=root / "nri/nri.sock",
    )


def _host(root: Path) -> Path:
    """A host with eight CPUs."""
    online = root / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-7\n")
    return root
