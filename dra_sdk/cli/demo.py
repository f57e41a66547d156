"""`dra-sdk demo [NAME]`: a claim's whole life on this machine, against an embedded API server, scheduler and kubelet.

The driver is the real one and runs as it would on a node: it publishes over HTTP, is registered, prepares and
unprepares over unix sockets, and writes CDI specs to files. The match is kube-scheduler's; nothing is told in advance.
Exit status: 0 if the story came to its end, 1 if the driver fails or finds no device, 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dra_sdk.cli.files import check_host_root
from dra_sdk.cli.sentences import lines, yaml_text
from dra_sdk.cli.table import print_table
from dra_sdk.errors import DraError, DriverLoadError, SettingsError
from dra_sdk.loader import Driver, load_driver
from dra_sdk.model import JSON
from dra_sdk.model.driver import Node
from dra_sdk.node.logs import set_up_logging
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.runtime.settings import path as path_type
from dra_sdk.node.slices.plan import resource_slices

if TYPE_CHECKING:
    from dra_sdk.tools.simulator import EmbeddedCluster, RunningPod
    from dra_sdk.tools.simulator.oci import HostDevice

CLASS, CLAIM, IMPOSSIBLE, POD = "demo", "demo-claim", "demo-too-much", "demo-pod"
_API = "resource.k8s.io/v1"
_SHOWN_DEVICES = 8
_MOST_DEVICES = 32
_ANY = "true"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("demo", help="show a claim's whole life on this machine", description=__doc__)
    parser.add_argument("driver", nargs="?", default="cpu", help="a name that `dra-sdk drivers` lists, or module:Class")
    parser.add_argument(
        "--host-root",
        type=path_type,
        default=Path("/"),
        metavar="DIR",
        help="where it looks for /sys, /proc and /dev: a tree of files, or this machine (default /)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the story and print it; status 1 where the driver fails or finds no device, which is where it ends then."""
    set_up_logging("warning", "text")
    check_host_root(arguments.host_root)
    driver = load_driver(arguments.driver)
    try:
        return _story(driver, arguments.host_root)
    except (SettingsError, DriverLoadError):
        raise
    except DraError as error:
        for line in lines(error):
            print(line, file=sys.stderr)
        return 1


def _story(driver: Driver, root: Path) -> int:
    from dra_sdk.node.runtime.process import DriverProcess  # noqa: PLC0415 (gRPC: not for the other commands)
    from dra_sdk.tools.simulator import EmbeddedCluster  # noqa: PLC0415

    name = driver.info.name
    with EmbeddedCluster(host=partial(_host_device, root)) as cluster:
        settings = Settings(
            node_name=cluster.node_name,
            kubeconfig=cluster.kubeconfig,
            kubelet_dir=cluster.registry_dir.parent,
            cdi_dir=cluster.cdi_dir,
            host_root=root,
        )
        slices = _expected(driver, settings, cluster.profile.minor)
        with DriverProcess(driver, settings):
            cluster.kubelet.wait_for_driver(name)
            devices = _describe(cluster, name, slices)
            if not devices:
                return 1
            _request(cluster, name, devices[0])
            _match(cluster)
            _explain(cluster, name, devices)
            pod = _prepare(cluster, name)
            _look_inside(cluster, pod)
            _end(cluster)
    return 0


def _host_device(root: Path, host_path: str) -> HostDevice:
    from dra_sdk.tools.simulator.oci import host_device  # noqa: PLC0415

    return host_device(str(root / host_path.lstrip("/")))


def _expected(driver: Driver, settings: Settings, minor: int) -> int:
    """How many slices the driver will publish; HookError or InvalidObjectError at once where it cannot."""
    pools = driver.discover(Node(settings.node_name, settings.host_root))
    return len(list(resource_slices(pools, driver=driver.info.name, node_name=settings.node_name, minor=minor)))


def _describe(cluster: EmbeddedCluster, driver: str, slices: int) -> list[JSON]:
    """What the driver found and published; the story is about the first device."""
    _tell(f"1. Describe: {driver} runs, the kubelet has registered it, and it publishes what this machine has.")
    published = cluster.wait_slices(driver, slices)
    devices: list[JSON] = [device for each in published for device in each["spec"].get("devices", [])]
    if not devices:
        print("   It found no device, so there is nothing to ask for.")
        return []
    print_table(("DEVICE", "ATTRIBUTES", "CAPACITY"), [_row(device) for device in devices[:_SHOWN_DEVICES]])
    if len(devices) > _SHOWN_DEVICES:
        print(f"… and {len(devices) - _SHOWN_DEVICES} more")
    return devices


def _request(cluster: EmbeddedCluster, driver: str, device: JSON) -> None:
    expression = _expression(driver, device)
    device_class = {
        "apiVersion": _API,
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }
    claim = _claim(CLAIM, expression)
    _tell("2. Request: an administrator made a class, and a user claims one of its devices by a CEL expression.")
    print(yaml_text([device_class, claim]), end="")
    cluster.api.create("deviceclasses", device_class)
    cluster.api.create("resourceclaims", claim)


def _match(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(POD, [CLAIM])
    placement = cluster.schedule().pods_by_key["default", POD]
    _tell(f"3. Match: a pod uses the claim. The scheduler puts it on {placement.node} and allocates:")
    _show(cluster.api.get("resourceclaims", CLAIM, "default")["status"]["allocation"]["devices"])


def _explain(cluster: EmbeddedCluster, driver: str, devices: list[JSON]) -> None:
    claim = _claim(IMPOSSIBLE, _expression(driver, devices[0], exceed=True), count=len(devices) + 1)
    _tell("4. Another claim asks for what this machine does not have:")
    _show(claim["spec"]["devices"]["requests"][0]["exactly"])
    cluster.api.create("resourceclaims", claim)
    print(f"\n   Why it waits, and what would help:\n\n{_explanation(cluster)}")


def _explanation(cluster: EmbeddedCluster) -> str:
    # CEL: not for the other commands
    from dra_sdk.tools.scheduling.explain import explain, format_explanation  # noqa: PLC0415

    told = format_explanation(explain(cluster.snapshot(), f"default/{IMPOSSIBLE}")).rstrip()
    return "\n".join(f"   {line}".rstrip() for line in told.splitlines())


def _prepare(cluster: EmbeddedCluster, driver: str) -> RunningPod:
    pod = cluster.run_pod(POD)
    call = cluster.kubelet.calls("prepare", driver)[-1]
    _tell(f"5. Actuate: the pod starts, and the kubelet has the driver prepare ({1000 * call.seconds:.1f} ms). Answer:")
    _show([_answer(device) for devices in call.devices.values() for device in devices])
    return pod


def _look_inside(cluster: EmbeddedCluster, pod: RunningPod) -> None:
    _tell("6. The driver wrote this CDI spec, which the container runtime applies:")
    for path in sorted(cluster.cdi_dir.glob("*.json")):
        print(f"--- {path.name}\n{json.dumps(json.loads(path.read_text()), indent=2)}")
    print("\n   so that the pod's container gets:")
    _show(_view(cluster.container_spec(pod)))


def _end(cluster: EmbeddedCluster) -> None:
    cluster.stop_pod(POD)
    left = ", ".join(path.name for path in cluster.cdi_dir.iterdir()) or "none"
    status = cluster.api.get("resourceclaims", CLAIM, "default").get("status") or {}
    freed = "are still allocated" if status.get("allocation") else "are free again"
    _tell(f"7. The pod ends, the claim is unprepared. CDI specs left: {left}; its devices {freed}.")


def _claim(name: str, expression: str, count: int = 1) -> JSON:
    exactly: JSON = {"deviceClassName": CLASS, "selectors": [{"cel": {"expression": expression}}]}
    if expression == _ANY and count <= _MOST_DEVICES:
        exactly |= {"count": count}
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}},
    }


def _expression(driver: str, device: JSON, *, exceed: bool = False) -> str:
    """A selector by the attribute that says most about a device: its largest number, else a text, else any device.

    With `exceed` it is one that no device meets, if there is an attribute.
    """
    attributes = device.get("attributes", {})
    numbers = {name: value["int"] for name, value in attributes.items() if "int" in value}
    texts = {name: value["string"] for name, value in attributes.items() if "string" in value}
    if numbers:
        name = max(numbers, key=lambda each: numbers[each])
        return f"{_attribute(driver, name)} >= {numbers[name] * 1000 + 1000 if exceed else numbers[name]}"
    for name, value in texts.items():
        return f"{_attribute(driver, name)} == {json.dumps('something else' if exceed else value)}"
    return _ANY


def _attribute(driver: str, name: str) -> str:
    domain, _, own = name.rpartition("/")
    return f'device.attributes["{domain or driver}"].{own}'


def _row(device: JSON) -> tuple[str, str, str]:
    attributes = {name: next(iter(value.values())) for name, value in device.get("attributes", {}).items()}
    capacity = {name: value["value"] for name, value in device.get("capacity", {}).items()}
    return device["name"], _pairs(attributes), _pairs(capacity)


def _pairs(values: JSON) -> str:
    return " ".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in values.items()) or "-"


def _view(spec: JSON) -> JSON:
    """Of an OCI spec what differs from that of a container without devices."""
    linux, process = spec.get("linux", {}), spec.get("process", {})
    found = {
        "env": process.get("env"),
        "additionalGids": process.get("user", {}).get("additionalGids"),
        "devices": linux.get("devices"),
        "netDevices": linux.get("netDevices"),
        "mounts": spec.get("mounts"),
        "hooks": spec.get("hooks"),
    }
    return {key: value for key, value in found.items() if value}


def _answer(device: Any) -> JSON:
    """A device of the prepare answer by the names on the wire."""
    answer = {
        "request_names": list(device.requests),
        "pool_name": device.pool,
        "device_name": device.device,
        "cdi_device_ids": list(device.cdi_ids),
        "share_id": device.share_id,
    }
    return {key: value for key, value in answer.items() if value}


def _tell(text: str) -> None:
    print(f"\n{text}\n")


def _show(value: object) -> None:
    print(yaml_text([value]), end="")
