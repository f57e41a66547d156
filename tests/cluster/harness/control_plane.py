"""A control plane without nodes: etcd, an API server and, on request, a scheduler and a controller manager.

It needs no root and leaves nothing behind. All its files are in one folder, and it listens on 127.0.0.1 only, so any
number of control planes can run at the same time, also beside clusters.
"""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from . import network, pki
from .api import Api
from .build import ensure_kubernetes
from .cache import Cache, Version
from .components import Component, Components
from .errors import HarnessError
from .layout import Layout
from .processes import MARK, kill, spawn
from .runtime import ensure_runtime
from .state import PORTS, State
from .waiting import poll

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from .processes import Process
    from .progress import Progress

BETA = {"AllAlpha": False, "AllBeta": True}
"""The feature gates by default, as those of clusters."""
_PORT_RANGE = range(30000, 32700)


class _Loopback(Layout):
    """A layout whose API server listens on 127.0.0.1, because there is no pod that needs its service."""

    @property
    def service_address(self) -> str:
        return "127.0.0.1"


@dataclass(frozen=True)
class ControlPlaneSettings:
    """What a control plane consists of.

    version: the Kubernetes version.
    gates: the feature gates of its components.
    users: further users in the group system:masters, who get a kubeconfig like `admin`.
    flags: further flags for the components, by their names.
    scheduler: whether it has a scheduler.
    controllers: whether it has a controller manager.
    nodes: the names of nodes that may join it, which get a certificate each.
    hosts: further addresses and names under which nodes reach the API server.
    start_with: a program, with arguments, that becomes each component, such as setpriv.
    """

    version: str
    gates: Mapping[str, bool] = field(default_factory=lambda: dict(BETA))
    users: Sequence[str] = ()
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    scheduler: bool = False
    controllers: bool = False
    nodes: Sequence[str] = ()
    hosts: Sequence[str] = ()
    start_with: Sequence[str] = ()


class ControlPlane:
    """A running control plane.

    version: its Kubernetes version, without a leading v.
    api: its API server, for the administrator.
    processes: its processes, by the names of the components.
    """

    def __init__(self, layout: Layout, version: str, api: Api) -> None:
        self.version, self.api = version, api
        self._layout = layout
        self.processes: dict[str, Process] = {}

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.api.server

    def log(self, component: str) -> Path:
        """Returns the log of `etcd`, `apiserver`, `scheduler` or `controller-manager`."""
        return self._layout.log(component)

    def kubeconfig(self, user: str) -> Path:
        """Returns the kubeconfig of `admin`, `scheduler` or one of the users of its settings."""
        return _kubeconfig_path(self._layout, user)

    @property
    def authority(self) -> pki.Authority:
        """Its certificates and keys, among them `ca`, `server`, `admin`, and one with the name of each node."""
        return pki.Authority(self._layout.pki)

    def check(self) -> None:
        """Raises HarnessError with the end of the log if a component has died."""
        for name, process in self.processes.items():
            if not process.alive():
                raise HarnessError(f"{name} died; its log ends:\n{self._layout.tail(name)}")


@contextmanager
def control_plane(name: str, root: Path, settings: ControlPlaneSettings, progress: Progress) -> Iterator[ControlPlane]:
    """Runs a control plane in a new folder `name` below `root`, and removes it afterwards."""
    cache, parsed = Cache.from_env(), Version.parse(settings.version)
    runtime = ensure_runtime(cache, progress)
    kube = ensure_kubernetes(cache, parsed, progress)
    layout, ports = _Loopback.of(name, root), _free_ports()
    layout.root.mkdir(mode=0o700)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, layout.root)
        authority = _certificates(layout, settings)
        api = Api(authority, f"https://{layout.service_address}:{ports['apiserver']}")
        for user in ("admin", "scheduler", "controller-manager", *settings.users):
            text = pki.kubeconfig(api.server, authority.certificate("ca"), authority.user(user))
            _kubeconfig_path(layout, user).write_text(text)
        state = State(name, str(parsed), dict(settings.gates), str(cache.root), ports, {})
        parts = Components(layout, state, kube, runtime, api)
        environment = {**parts.environment(), MARK: f"{name}-{ports['etcd']}"}
        plane = ControlPlane(layout, str(parsed), api)
        for part in _chosen(parts.all(), settings):
            with progress.step(f"starting {part.name}"):
                _start(part, layout, environment, plane, stack)
        yield plane


def _chosen(components: Mapping[str, Component], settings: ControlPlaneSettings) -> list[Component]:
    optional = {"scheduler": settings.scheduler, "controller-manager": settings.controllers}
    names = ["etcd", "apiserver", *(name for name, wanted in optional.items() if wanted)]
    wanted = [components[name] for name in names]
    flags, first = settings.flags, settings.start_with
    return [replace(part, command=[*first, *part.command, *flags.get(part.name, ())]) for part in wanted]


def _free_ports() -> dict[str, int]:
    free = [port for port in random.sample(_PORT_RANGE, 200) if network.is_free("127.0.0.1", port)]
    return dict(zip(PORTS, free[: len(PORTS)], strict=True))


def _certificates(layout: Layout, settings: ControlPlaneSettings) -> pki.Authority:
    for folder in (layout.logs, layout.temporary):
        folder.mkdir(mode=0o700)
    authority = pki.Authority(layout.pki)
    authority.create()
    authority.signing_key("sa")
    authority.issue("server", "plane-server", hosts=["127.0.0.1", "localhost", *settings.hosts])
    authority.issue("etcd-client", "apiserver")
    authority.issue("scheduler", "system:kube-scheduler")
    authority.issue("controller-manager", "system:kube-controller-manager")
    for user in ("admin", *settings.users):
        authority.issue(user, user, group="system:masters")
    for node in settings.nodes:
        authority.issue(node, f"system:node:{node}", group="system:nodes")
    return authority


def _kubeconfig_path(layout: Layout, user: str) -> Path:
    return layout.root / f"{user}.kubeconfig"


def _start(
    part: Component, layout: Layout, environment: Mapping[str, str], plane: ControlPlane, stack: ExitStack
) -> None:
    process = spawn(part.command, layout.log(part.name), environment)
    # Its data is deleted next, so a crash does no harm.
    stack.callback(kill, [process])
    plane.processes[part.name] = process
    if not poll(lambda: part.healthy() or not process.alive()) or not process.alive():
        raise HarnessError(f"{part.name} did not start; its log ends:\n{layout.tail(part.name)}")
