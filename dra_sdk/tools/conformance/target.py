"""Which driver is checked and how it is reached, as flags and fixtures say it; opening that as a run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from dra_sdk.errors import SettingsError
from dra_sdk.loader import load_driver
from dra_sdk.tools.conformance.evidence import Recorder
from dra_sdk.tools.conformance.instance import Waiting
from dra_sdk.tools.conformance.launch import CommandLauncher, Launcher, sdk_command
from dra_sdk.tools.conformance.plugin import RegistrationClient
from dra_sdk.tools.conformance.rpc import Channel
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.site import Site, embedded_site, existing_site, fresh_site
from dra_sdk.tools.conformance.subject import Patience, Subject
from dra_sdk.tools.conformance.wanted import Wanted, read_wanted
from dra_sdk.tools.simulator.kubelet.registration import sockets_in

CDI_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))
ROOT = Path("/")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Exactly one of `driver`, `command` and `registry` is given; see `dra-sdk conformance --help` for each."""

    driver: str = ""
    command: str = ""
    registry: Path | None = None
    driver_name: str = ""
    kubeconfig: Path | None = None
    node_name: str = ""
    cdi_dir: Path | None = None
    host_root: Path = ROOT
    claim: Path | None = None
    disruptive: bool = False
    claims_held: int = 50
    patience: Patience = field(default_factory=Patience)

    @property
    def described(self) -> str:
        """How the driver is reached, for a report."""
        if self.driver:
            return f"dra-sdk run {self.driver}"
        return self.command or f"running already, registered in {self.registry}"

    @contextmanager
    def open(self) -> Iterator[Run]:
        """A run that is ready for checks, and gone at the end; SettingsError where it cannot be had."""
        if sum(map(bool, (self.driver, self.command, self.registry))) != 1:
            raise SettingsError("want exactly one of a driver's name, a command and a registration directory")
        launcher, name = self._launcher()
        wanted = read_wanted(self.claim) if self.claim else Wanted()
        with self._site() as bare:
            site = self._placed(bare)
            with closing(Subject(site, launcher, name, self.patience)) as subject:
                yield Run(
                    subject,
                    wanted,
                    sharing=launcher is None,
                    disruptive=self.disruptive,
                    claims_held=self.claims_held,
                )

    def _launcher(self) -> tuple[Launcher | None, str]:
        if self.driver:
            return sdk_command(self.driver), load_driver(self.driver).info.name
        if self.command:
            return CommandLauncher.parse(self.command), self.driver_name
        return None, self.driver_name or _only_driver(self.registry or ROOT)

    def _site(self) -> AbstractContextManager[Site]:
        if self.registry:
            dirs = (CDI_DIRS[0], self.cdi_dir) if self.cdi_dir else CDI_DIRS
            return existing_site(self.registry, self.kubeconfig, self.node_name, dirs, host_root=self.host_root)
        if self.kubeconfig:
            return fresh_site(self.kubeconfig, node=self.node_name, host_root=self.host_root)
        return embedded_site(self.node_name or "node-1", host_root=self.host_root)

    def _placed(self, site: Site) -> Site:
        """The site of a driver that runs already, with its node."""
        if site.node:
            return site
        name = self.driver_name or _only_driver(site.registry_dir)
        waiting = Waiting(self.patience.slices)
        while not (nodes := _nodes(site, name)) and waiting.pause():
            pass
        host = socket.gethostname().lower()
        if host in nodes or len(nodes) == 1:
            return replace(site, node=host if host in nodes else nodes.pop())
        raise SettingsError(f"driver {name} publishes for {len(nodes)} nodes, none of them {host}; use --node-name")


def _nodes(site: Site, driver: str) -> set[str]:
    return {each["spec"].get("nodeName", "") for each in site.api.slices(driver)} - {""}


def _only_driver(registry: Path) -> str:
    """The name of the one driver that is registered; SettingsError where there are several or none."""
    names = set()
    recorder = Recorder()
    for path in sockets_in(registry):
        channel = Channel(Path(path), recorder)
        answer = RegistrationClient(channel).get_info()
        channel.close()
        if answer.message and answer.message.type == "DRAPlugin":
            names.add(answer.message.name)
    if len(names) == 1:
        return str(names.pop())
    found = f"drivers {', '.join(sorted(names))} answer" if names else "no driver answers"
    raise SettingsError(f"{found} in {registry}; name one with --driver-name")
