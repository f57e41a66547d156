"""Which driver to check and how to reach it, as the flags and the pytest options say it; opens a run for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.loader import load_driver
from dra_sdk.tools.conformance.claim_template import ClaimTemplate, read_claim_template
from dra_sdk.tools.conformance.driver_under_test import DriverUnderTest
from dra_sdk.tools.conformance.environment import (
    NodeEnvironment,
    cluster_environment,
    embedded_environment,
    node_environment,
)
from dra_sdk.tools.conformance.launcher import CommandLauncher, Launcher, sdk_launcher
from dra_sdk.tools.conformance.nri_node import runtime_for
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.timeouts import Timeouts, wait_until
from dra_sdk.tools.simulator.kubelet.calls import PLUGIN_TYPE, KubeletCalls
from dra_sdk.tools.simulator.kubelet.registration import sockets_in
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming

CDI_DIRS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))


@dataclass(frozen=True, kw_only=True)
class Target:
    """One driver. Exactly one of `driver`, `command` and `registry` is given.

    driver: name of an installed driver of this SDK, or module:Class.
    command: a command line that starts any driver.
    registry: the kubelet's `plugins_registry`, in which a running driver has its socket.
    driver_name: the driver's name; needed if several are registered.
    kubeconfig: an existing API server to use; None for an embedded one, or kubectl's default with `registry`.
    node_name: the driver's node; empty for a Node that is created, or the one in the slices with `registry`.
    cdi_dir: with `registry`: where the driver writes CDI specs; None for /var/run/cdi.
    host_root: the directory with the host's files.
    claim: a file with the ResourceClaim and DeviceClass to request devices by; None for any device.
    disruptive: with `registry`: whether the kit may disturb the driver.
    max_claims: the most claims that the load level prepares at once.
    nri: whether the driver is an NRI plugin, which connects to the kit's container runtime.
    timeouts: how long the kit waits.
    """

    driver: str = ""
    command: str = ""
    registry: Path | None = None
    driver_name: str = ""
    kubeconfig: Path | None = None
    node_name: str = ""
    cdi_dir: Path | None = None
    host_root: Path = Path("/")
    claim: Path | None = None
    disruptive: bool = False
    max_claims: int = 50
    nri: bool = False
    timeouts: Timeouts = field(default_factory=Timeouts)

    @property
    def description(self) -> str:
        """How the driver is reached, for a report."""
        if self.driver:
            return f"dra-sdk run {self.driver}"
        return self.command or f"already running, registered in {self.registry}"

    @contextmanager
    def open(self) -> Iterator[Run]:
        """Provide a run until the context ends; SettingsError if the driver or the API server cannot be reached."""
        if sum(map(bool, (self.driver, self.command, self.registry))) != 1:
            raise SettingsError("name the driver: --driver NAME, --command '…' or --registry DIR")
        if self.nri and self.registry:
            raise SettingsError("--nri needs --driver or --command: the NRI plugin must connect to the kit's runtime")
        launcher, name = self._launcher()
        template = read_claim_template(self.claim) if self.claim else ClaimTemplate()
        with self._environment() as opened:
            environment = opened if opened.node_name else replace(opened, node_name=self._published_node(opened))
            with ExitStack() as stack:
                driver = stack.enter_context(closing(DriverUnderTest(environment, launcher, name, self.timeouts)))
                nri = stack.enter_context(runtime_for(driver)) if self.nri else None
                yield Run(
                    driver,
                    template,
                    shared_node=launcher is None,
                    disruptive=self.disruptive,
                    max_claims=self.max_claims,
                    nri=nri,
                )

    def _launcher(self) -> tuple[Launcher | None, str]:
        """Return the launcher, None for a running driver, and the driver's name as far as it is known."""
        if self.driver:
            return sdk_launcher(self.driver), load_driver(self.driver).info.name
        if self.command:
            return CommandLauncher.parse(self.command), self.driver_name
        assert self.registry
        return None, self.driver_name or _registered_driver(self.registry, self.timeouts.kubelet)

    def _environment(self) -> AbstractContextManager[NodeEnvironment]:
        root = self.host_root
        if self.registry:
            cdi_dirs = (CDI_DIRS[0], self.cdi_dir) if self.cdi_dir else CDI_DIRS
            return node_environment(self.registry, self.kubeconfig, self.node_name, cdi_dirs, host_root=root)
        if self.kubeconfig:
            return cluster_environment(self.kubeconfig, node_name=self.node_name, host_root=root)
        return embedded_environment(self.node_name or "node-1", host_root=root)

    def _published_node(self, environment: NodeEnvironment) -> str:
        """Return the node that a running driver publishes for; this host if there are several."""
        name = self.driver_name or _registered_driver(environment.registry_dir, self.timeouts.kubelet)

        def published() -> set[str]:
            return {raw_slice["spec"].get("nodeName", "") for raw_slice in environment.api.slices(name)} - {""}

        nodes = wait_until(published, self.timeouts.slices)
        host = socket.gethostname().lower()
        if host in nodes:
            return host
        if len(nodes) == 1:
            return nodes.pop()
        raise SettingsError(f"driver {name} publishes for {len(nodes)} nodes, none of them is {host}; use --node-name")


def _registered_driver(registry: Path, timing: KubeletTiming) -> str:
    """Return the name of the only registered driver; SettingsError if there is none or several."""
    names = set()
    for path in sockets_in(registry):
        with closing(KubeletCalls(path, timing)) as calls:
            info = calls.get_info().message
        if info and info.type == PLUGIN_TYPE:
            names.add(info.name)
    if len(names) == 1:
        return str(names.pop())
    answering = f"drivers {', '.join(sorted(names))} answer" if names else "no driver answers"
    raise SettingsError(f"{answering} in {registry}; give the driver's name with --driver-name")
