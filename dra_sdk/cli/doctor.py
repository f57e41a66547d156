"""`dra-sdk doctor`: what this node lacks for DRA drivers, with a remedy for each.

It looks at the directories of the kubelet and of CDI, the mount of /, the configuration of containerd, the socket of
NRI, the kubelet's configuration, and, with credentials, at the API server, the Node and the permissions of the account.
It names the damaged state files of drivers, and the claims that a refused step of their undo holds. With a driver that
is installed, it reads the hardware once as the driver does, and names what cannot be read. Run it as root on the node
or in a driver's pod. It changes nothing, and says what it cannot see. A driver that runs is checked by `dra-sdk
conformance`. Exit status: 0 if nothing is missing, 1 if something is, 2 for bad input.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import Any

from dra_sdk.cli.arguments import Commands, add_output, check_host_root
from dra_sdk.cli.hook_calls import discover, load_driver
from dra_sdk.cli.output import print_json, print_lines
from dra_sdk.cli.state_view import DriverState, given_flags
from dra_sdk.errors import DraError, SettingsError
from dra_sdk.kube.client import KubeClient
from dra_sdk.loader import Driver
from dra_sdk.loader.finding import iter_drivers
from dra_sdk.model.driver import Node
from dra_sdk.model.omissions import collecting_omissions
from dra_sdk.node.prepare.state_files import DURABLE, skips
from dra_sdk.node.runtime.settings import Settings, add_flags, read_settings
from dra_sdk.texts import counted
from dra_sdk.tools.doctor import Diagnosis, NodePaths, examine
from dra_sdk.tools.doctor.hardware import hardware
from dra_sdk.tools.manifests import Chart

_NEEDED = frozenset(
    {"node_name", "kubeconfig", "kubelet_dir", "registry_dir", "cdi_dir", "host_root", "nri_socket", "pod_uid"}
)


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("doctor", help="show what this node lacks for DRA drivers", description=__doc__)
    parser.add_argument(
        "driver",
        nargs="?",
        default="",
        metavar="DRIVER",
        help="the name of a driver in slices (dra.cpu), or one that `dra-sdk drivers` lists: look at its own "
        "directories (its pod has no others) and, if it is installed, read its hardware",
    )
    parser.add_argument("--nri", action="store_true", help="a driver of this node needs NRI")
    add_output(parser, ("text", "json"), "how the findings are shown (default text)")
    add_flags(parser, _NEEDED)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine the node; status 1 if something is missing."""
    settings = read_settings(arguments)
    check_host_root(settings.host_root)
    driver = _driver(arguments.driver, settings)
    name = arguments.driver if driver is None else driver.info.name
    pod = _pod_of(name)
    paths = NodePaths(
        kubelet=settings.kubelet_dir,
        registry=settings.registry,
        plugins=settings.plugin_data(name),
        cdi=settings.cdi_dir,
        root=settings.host_root,
        nri=settings.nri_socket,
        in_pod=bool(settings.pod_uid),
    )
    api = _client(settings)
    with nullcontext() if api is None else closing(api):
        findings = examine(
            paths,
            api,
            settings.node_name,
            driver=name,
            nri=arguments.nri or any(volume["name"] == "nri" for volume in pod.get("volumes", ())),
            mounts_for_host=any(
                mount.get("mountPropagation") == "Bidirectional"
                for container in pod.get("containers", ())
                for mount in container["volumeMounts"]
            ),
        )
    flags = given_flags(arguments)
    for data in [settings.plugin_data(name)] if name else sorted(settings.plugin_data("").glob("*")):
        findings += _claims(DriverState(data.name, data, settings.cdi_dir, "", flags))
    if driver is not None:
        findings += _hardware(driver, settings)
    if arguments.output == "json":
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    return 1 if any(finding.status == "missing" for finding in findings) else 0


def _driver(word: str, settings: Settings) -> Driver | None:
    """Return the installed driver with a name, as `dra-sdk run` takes it; None for a name in slices. SettingsError."""
    installed = {driver.name for driver in iter_drivers()}
    if word in installed:
        return load_driver(word, settings.driver, settings.kubelet_dir)
    if word and "." not in word and not settings.plugin_data(word).is_dir():  # names in slices nearly always have a dot
        listed = ", ".join(sorted(installed)) or "none"
        raise SettingsError(
            f"there is no driver {word!r}; installed are {listed}; the name in slices, such as dra.cpu, will do as well"
        )
    return None


def _pod_of(driver: str) -> dict[str, Any]:
    """Return the pod that the chart makes for a driver; empty for one that the chart does not know."""
    chart = Chart()
    for key, entry in chart.defaults["drivers"].items():
        if entry["driverName"] == driver:
            made = (manifest.object for manifest in chart.render({"drivers": {key: {"enabled": True}}}))
            return next(dict(obj["spec"]["template"]["spec"]) for obj in made if obj["kind"] == "DaemonSet")
    return {}


def _claims(node: DriverState) -> Iterator[Diagnosis]:
    """Yield the state files of a driver that are damaged, and the claims that their undo holds."""
    subject = f"claims of {node.driver}"
    if node.data.is_dir() and not os.access(node.data, os.R_OK | os.X_OK):
        yield Diagnosis("unknown", subject, f"user {os.geteuid()} may not read {node.data}", "run it as root")
        return
    if not any(node.data.glob(f"{DURABLE}*")):
        return
    try:
        entries = list(node.entries())
    except (SettingsError, OSError) as error:
        yield Diagnosis("unknown", subject, str(error), "run it as root")
        return
    for entry in entries:
        title = f"{entry.title} of {node.driver}"
        if entry.damage:
            yield Diagnosis("missing", title, entry.damage.reason, f"{node.show} shows, repairs or forgets it")
        skipped = skips(entry.path) if entry.refused else ()
        for step, reason in entry.refused:
            found = f"its undo is refused, so it holds {entry.devices}: {step}: {reason}"
            if step in skipped:
                yield Diagnosis("ok", title, f"{found}; the step is skipped when the kubelet calls next")
            else:
                remedy = f"remove the reason, or end the claim without this step: {node.command('skip', entry, step)}"
                yield Diagnosis("missing", title, found, f"{remedy}; {node.show} shows all")
    if not any(entry.damage or entry.refused for entry in entries):
        yield Diagnosis("ok", subject, f"{counted(len(entries), 'claim')}, no file is damaged and no undo refused")


def _hardware(driver: Driver, settings: Settings) -> list[Diagnosis]:
    """Discover once, and say what is left out because it cannot be read."""
    try:
        with collecting_omissions() as omissions:
            discover(driver, Node(settings.node_name, settings.host_root))
    except DraError as error:
        return [
            Diagnosis("missing", f"hardware of {driver.info.name}", str(error), "nothing is published until it works")
        ]
    return list(hardware(driver.info.name, omissions))


def _client(settings: Settings) -> KubeClient | None:
    """Return a client, None if no credentials exist; SettingsError if those that were named are unusable."""
    try:
        return KubeClient.connect(settings.kubeconfig, agent="dra-sdk-doctor")
    except SettingsError:
        if settings.kubeconfig is not None:
            raise
        return None


def _print(findings: list[Diagnosis]) -> None:
    for finding in findings:
        remedy = [f"{'':8}→ {finding.remedy}"] if finding.remedy else []
        print_lines([f"{finding.status:8}{finding.subject}: {finding.found}", *remedy])
    missing, unknown = (sum(finding.status == status for finding in findings) for status in ("missing", "unknown"))
    print_lines([f"{counted(len(findings), 'check')}: {missing} missing, {unknown} not visible from here"])
