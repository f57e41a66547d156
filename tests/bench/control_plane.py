"""A real etcd and API server for the benchmark alone: own folder, own ports, no root, nothing left behind.

The pieces are those of the cluster harness; a kubelet and containers are not needed, because the benchmark plays the
kubelet itself. Every request of the drivers is in the audit log.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dra_sdk.kube.client import KubeClient
from tests.cluster.harness import network, pki
from tests.cluster.harness.api import Api
from tests.cluster.harness.build import ensure_kubernetes
from tests.cluster.harness.cache import Cache, Version
from tests.cluster.harness.components import Component, Components
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.processes import MARK, kill, spawn
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.runtime import ensure_runtime
from tests.cluster.harness.state import PORTS, State

NAME = "bench"
_PORT_RANGE = range(30000, 32700)
_START_TIMEOUT = 60.0
_GATES = {"AllAlpha": False, "AllBeta": True}


class _Loopback(Layout):
    """A layout whose API server listens on 127.0.0.1: there is no pod that would look for it elsewhere."""

    @property
    def service_address(self) -> str:
        return "127.0.0.1"


@dataclass(frozen=True)
class ControlPlane:
    """A running API server: `client` is its administrator, `audit_log` grows with each request of `users`."""

    version: str
    server: str
    client: KubeClient
    audit_log: Path
    kubeconfigs: dict[str, Path]
    pids: dict[str, int]


@contextmanager
def control_plane(root: Path, version: str, users: list[str], progress: Progress) -> Iterator[ControlPlane]:
    """Run etcd and an API server in the folder `root`, with an administrator's kubeconfig for each of `users`."""
    cache, parsed = Cache.from_env(), Version.parse(version)
    runtime = ensure_runtime(cache, progress)
    kube = ensure_kubernetes(cache, parsed, progress)
    layout = _Loopback.of(NAME, root)
    ports = _free_ports()
    authority = _certificates(layout, users)
    api = Api(authority, f"https://{layout.service_address}:{ports['apiserver']}")
    parts = Components(layout, State(NAME, str(parsed), _GATES, str(cache.root), ports, {}), kube, runtime, api)
    environment = {**parts.environment(), MARK: f"{NAME}-{ports['etcd']}"}
    components = parts.all()
    apiserver = _with_audit(components["apiserver"], layout, users)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, layout.root)
        pids = {}
        for part in (components["etcd"], apiserver):
            with progress.step(f"starting {part.name}"):
                pids[part.name] = _start(part, layout, environment, stack)
        client = KubeClient.connect(_kubeconfig(layout, authority, api.server, "admin"), agent="bench")
        stack.callback(client.close)
        kubeconfigs = {user: _kubeconfig(layout, authority, api.server, user) for user in users}
        yield ControlPlane(str(parsed), api.server, client, _audit_log(layout), kubeconfigs, pids)


def _free_ports() -> dict[str, int]:
    free = [port for port in random.sample(_PORT_RANGE, 200) if network.is_free("127.0.0.1", port)]
    return dict(zip(PORTS, free[: len(PORTS)], strict=True))


def _certificates(layout: Layout, users: list[str]) -> pki.Authority:
    for folder in (layout.root, layout.logs, layout.temporary):
        folder.mkdir(mode=0o700)
    authority = pki.Authority(layout.pki)
    authority.create()
    authority.signing_key("sa")
    authority.issue("server", "bench-server", hosts=["IP:127.0.0.1", "DNS:localhost"])
    authority.issue("etcd-client", "apiserver")
    for user in ("admin", *users):
        authority.issue(user, user, groups=["system:masters"])
    return authority


def _kubeconfig(layout: Layout, authority: pki.Authority, server: str, user: str) -> Path:
    path = layout.root / f"{user}.kubeconfig"
    path.write_text(pki.kubeconfig(server, authority.certificate("ca"), authority.user(user)))
    return path


def _with_audit(apiserver: Component, layout: Layout, users: list[str]) -> Component:
    """The API server, made to write down each request of `users`, once (watches when they begin)."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    }
    path = layout.root / "audit-policy.json"
    path.write_text(json.dumps(policy))
    flags = [f"--audit-policy-file={path}", f"--audit-log-path={_audit_log(layout)}"]
    return replace(apiserver, command=[*apiserver.command, *flags])


def _audit_log(layout: Layout) -> Path:
    return layout.logs / "audit.log"


def _start(part: Component, layout: Layout, environment: dict[str, str], stack: ExitStack) -> int:
    process = spawn(part.command, layout.log(part.name), environment)
    # Its data is thrown away next, so a crash is as good as an orderly stop.
    stack.callback(kill, [process])
    deadline = time.monotonic() + _START_TIMEOUT
    while not part.healthy():
        if not process.alive() or time.monotonic() > deadline:
            raise HarnessError(f"{part.name} did not come up; its log ends:\n{layout.tail(part.name)}")
        time.sleep(0.05)
    return process.pid
