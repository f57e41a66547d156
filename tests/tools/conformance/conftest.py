"""A cluster for all tests of one module, and on it a site of its own for each driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.kube.client import KubeClient
from dra_sdk.tools.conformance import plugin
from dra_sdk.tools.conformance.api import Api
from dra_sdk.tools.conformance.levels import load, registration
from dra_sdk.tools.conformance.plugin import TIMING
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.site import AGENT, Site
from dra_sdk.tools.conformance.subject import Patience, Subject
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.kubelet import KubeletTiming
from tests.tools.conformance.mutants.faults import NONE, Faults
from tests.tools.conformance.mutants.launcher import MutantLauncher
from tests.waiting import LONG

QUICK = Patience(start=LONG, stop=LONG, slices=LONG, quiet=0.3, health=LONG, settle=0.2)
"""What comes takes milliseconds, seconds on a busy machine; what does not come has patience of its own (table.py)."""
Opener = Callable[..., AbstractContextManager[Run]]


Deadlines = Callable[[KubeletTiming], None]


@pytest.fixture(autouse=True)
def deadlines(monkeypatch: pytest.MonkeyPatch) -> Deadlines:
    """Sets the kubelet's deadlines; a second for GetInfo is too little for tests that are not about it."""

    def impose(timing: KubeletTiming) -> None:
        for module in (plugin, registration, load):
            monkeypatch.setattr(module, "TIMING", timing)

    impose(replace(TIMING, get_info=LONG, notify=LONG))
    return impose


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.kubelet.stop()
        yield running


@pytest.fixture(scope="module")
def open_run(cluster: EmbeddedCluster) -> Iterator[Opener]:
    """`open_run(faults, **patience)`: a run against a driver with these faults."""
    numbers = itertools.count(1)
    api = Api(KubeClient.connect(cluster.kubeconfig, agent=AGENT))

    @contextmanager
    def opened(faults: Faults = NONE, **patience: float) -> Iterator[Run]:
        number = next(numbers)
        namespace = f"conformance-{number}"
        api.create_namespace(namespace)
        site = _site(cluster, api, namespace, cluster.root / str(number))
        launcher = MutantLauncher(f"m{number}.example.com", faults)
        cluster.server.log.clear()
        with closing(Subject(site, launcher, "", replace(QUICK, **patience))) as subject:
            yield Run(subject)

    with closing(api):
        yield opened


def _site(cluster: EmbeddedCluster, api: Api, namespace: str, root: Path) -> Site:
    folders = [root / name for name in ("k/plugins_registry", "k/plugins", "static", "cdi")]
    for each in folders:
        each.mkdir(parents=True)
    registry, plugins, static, cdi = folders
    log = cluster.server.log
    return Site(
        api,
        cluster.node_name,
        namespace,
        registry,
        plugins,
        (static, cdi),
        cluster.kubeconfig,
        requests=lambda: [each for each in log.records() if AGENT not in each.user_agent],
    )
