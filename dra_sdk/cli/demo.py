"""`dra-sdk demo [NAME]`: the whole life of a claim on this machine, with an embedded API server, scheduler and kubelet.

The driver runs as on a node: it publishes over HTTP, registers with the kubelet, prepares and unprepares over unix
sockets, and writes CDI specs to files. The scheduler follows the rules of kube-scheduler. Exit status: 0 if the demo
ran to its end, 1 if the driver fails or finds no device, 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.cli.arguments import Commands, add_host_root, opened_host_root
from dra_sdk.cli.hook_calls import discover, load_driver, reported_if_slow, threads_print_to_stderr
from dra_sdk.cli.output import (
    Octal,
    print_error,
    print_json,
    print_lines,
    print_notes,
    print_objects,
    print_table,
    print_value,
)
from dra_sdk.cli.streams import OutputError
from dra_sdk.errors import DraError, DriverLoadError, SettingsError
from dra_sdk.loader import Driver
from dra_sdk.model import JSON
from dra_sdk.model.driver import Node
from dra_sdk.node.logs import set_up_logging
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.texts import counted
from dra_sdk.wire.profile import ServerProfile

if TYPE_CHECKING:
    from dra_sdk.tools.simulator import EmbeddedCluster, RunningPod

CLASS, CLAIM, IMPOSSIBLE_CLAIM, POD = "demo", "demo-claim", "demo-too-much", "demo-pod"
MAX_SHOWN_DEVICES: Final = 8
MAX_DEVICES_OF_A_CLAIM: Final = 32
_API: Final = "resource.k8s.io/v1"
_ANY_DEVICE: Final = "true"


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("demo", help="show the whole life of a claim on this machine", description=__doc__)
    parser.add_argument("driver", nargs="?", default="cpu", help="a name that `dra-sdk drivers` lists, or module:Class")
    add_host_root(parser)
    parser.add_argument(
        "--claim",
        type=Path,
        metavar="FILE",
        help="what the pod claims: the first ResourceClaim, with its DeviceClasses",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run and print each step; status 1 if the driver fails or finds no device, which ends the demo."""
    set_up_logging("warning", "text", traces=False)  # the sentence has the author's file and line
    with opened_host_root(arguments.host_root) as root:
        driver = load_driver(arguments.driver)
        try:
            with threads_print_to_stderr():
                return _run_steps(driver, root, arguments.claim)
        except (SettingsError, DriverLoadError, OutputError):
            raise
        except DraError as error:
            print_error(error)
            if getattr(error, "code", "") == "DEADLINE_EXCEEDED":
                print_notes(["a hook must end before that: claim.deadline.remaining() says how long is left"])
            return 1


def _run_steps(driver: Driver, root: Path, claim_file: Path | None) -> int:
    from dra_sdk.node.runtime.process import DriverProcess  # noqa: PLC0415 (imports gRPC)
    from dra_sdk.tools.simulator import EmbeddedCluster  # noqa: PLC0415 (imports gRPC)
    from dra_sdk.tools.simulator.nri import NriRuntime  # noqa: PLC0415 (with the simulator)
    from dra_sdk.tools.simulator.oci import NodeDeviceFiles  # noqa: PLC0415 (with the simulator)

    name = driver.info.name
    with EmbeddedCluster(host=NodeDeviceFiles(root)) as cluster:
        nri_socket = cluster.registry_dir.parent / "nri.sock"  # of a runtime without containers, not this machine's
        settings = Settings(
            node_name=cluster.node_name,
            kubeconfig=cluster.kubeconfig,
            kubelet_dir=cluster.registry_dir.parent,
            cdi_dir=cluster.cdi_dir,
            host_root=root,
            nri_socket=nri_socket,
        )
        slices = _slice_count(driver, settings, cluster.profile)
        runtime = NriRuntime(nri_socket) if driver.is_nri_plugin else nullcontext()
        with runtime, DriverProcess(driver, settings):
            cluster.kubelet.wait_for_driver(name)
            devices = _describe(cluster, name, slices)
            if not devices:
                return 1
            _request(cluster, name, devices[0], claim_file)
            _allocate(cluster)
            _explain(cluster, name, devices)
            pod = _prepare(cluster, name)
            _show_container(cluster, pod)
            _unprepare(cluster)
    return 0


def _slice_count(driver: Driver, settings: Settings, server: ServerProfile) -> int:
    """Return how many slices the driver will publish; HookError or InvalidObjectError if it cannot publish."""
    pools = discover(driver, Node(settings.node_name, settings.host_root))
    return len(list(resource_slices(pools, driver=driver.info.name, node_name=settings.node_name, server=server)))


# -- the steps


def _describe(cluster: EmbeddedCluster, driver: str, slices: int) -> list[JSON]:
    """Show the published devices; the following steps use the first one."""
    _print_step(f"1. Describe: {driver} runs, is registered with the kubelet, and publishes the devices it found.")
    published = cluster.wait_slices(driver, slices)
    devices: list[JSON] = [device for raw_slice in published for device in raw_slice["spec"].get("devices", [])]
    if not devices:
        print("   It found no device, so there is nothing to request.")
        return []
    print_table(("DEVICE", "ATTRIBUTES", "CAPACITY"), [_row(device) for device in devices[:MAX_SHOWN_DEVICES]])
    if len(devices) > MAX_SHOWN_DEVICES:
        print_lines([f"and {counted(len(devices) - MAX_SHOWN_DEVICES, 'more device')}"])
    return devices


def _request(cluster: EmbeddedCluster, driver: str, device: JSON, claim_file: Path | None) -> None:
    device_class = {
        "apiVersion": _API,
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }
    claim, classes = _claim(CLAIM, _expression(driver, device)), list[JSON]()
    if claim_file is not None:
        from dra_sdk.tools.conformance.claim_template import read_claim  # noqa: PLC0415 (imports CEL)

        claim["spec"], classes = read_claim(claim_file)
    _print_step("2. Request: an administrator creates a class, and a user claims one of its devices by CEL.")
    print_objects([*(classes or [device_class]), claim], "yaml")
    for created in (device_class, *classes):
        cluster.api.create("deviceclasses", created)
    cluster.api.create("resourceclaims", claim)


def _allocate(cluster: EmbeddedCluster) -> None:
    cluster.create_pod(POD, [CLAIM])
    placement = cluster.schedule().pods_by_key["default", POD]
    _print_step(f"3. Allocate: a pod uses the claim. The scheduler places it on {placement.node} and allocates:")
    print_value(cluster.api.get("resourceclaims", CLAIM, "default")["status"]["allocation"]["devices"], "yaml")


def _explain(cluster: EmbeddedCluster, driver: str, devices: list[JSON]) -> None:
    claim = _claim(IMPOSSIBLE_CLAIM, _expression(driver, devices[0], exceed=True), count=len(devices) + 1)
    _print_step("4. Another claim requests what this machine does not have:")
    print_value(claim["spec"]["devices"]["requests"][0]["exactly"], "yaml")
    cluster.api.create("resourceclaims", claim)
    print("\n   Why it is not allocated, and what would help:\n")
    print_lines(_explanation(cluster))


def _explanation(cluster: EmbeddedCluster) -> list[str]:
    from dra_sdk.tools.scheduling.explain import explain, format_explanation  # noqa: PLC0415 (imports CEL)

    lines = format_explanation(explain(cluster.snapshot(), f"default/{IMPOSSIBLE_CLAIM}")).rstrip().split("\n")
    return [f"   {line}".rstrip() for line in lines]


def _prepare(cluster: EmbeddedCluster, driver: str) -> RunningPod:
    with reported_if_slow(f"dra_prepare of driver {driver}"):
        pod = cluster.run_pod(POD)
    call = cluster.kubelet.records.calls("prepare", driver)[-1]
    _print_step(f"5. Prepare: the pod starts, and the kubelet calls the driver ({1000 * call.seconds:.1f} ms). Answer:")
    print_value([_prepared_device(device) for devices in call.devices.values() for device in devices], "yaml")
    return pod


def _show_container(cluster: EmbeddedCluster, pod: RunningPod) -> None:
    _print_step("6. Run: the driver wrote this CDI spec, which the container runtime applies:")
    for path in sorted(cluster.cdi_dir.glob("*.json")):
        print_lines([f"--- {path.name}"])
        print_json(json.loads(path.read_text()))
    print("\n   The pod's container gets:")
    print_value(_container_edits(cluster.container_spec(pod)), "yaml")


def _unprepare(cluster: EmbeddedCluster) -> None:
    with reported_if_slow("dra_unprepare of the driver"):
        cluster.stop_pod(POD)
    left = ", ".join(path.name for path in cluster.cdi_dir.iterdir()) or "none"
    status = cluster.api.get("resourceclaims", CLAIM, "default").get("status") or {}
    devices = "are still allocated" if status.get("allocation") else "are free again"
    _print_step(f"7. Unprepare: the pod ends. Remaining CDI specs: {left}; the devices of the claim {devices}.")


# -- what the steps show


def _claim(name: str, expression: str, count: int = 1) -> JSON:
    exactly: JSON = {"deviceClassName": CLASS, "selectors": [{"cel": {"expression": expression}}]}
    if expression == _ANY_DEVICE and count <= MAX_DEVICES_OF_A_CLAIM:
        exactly |= {"count": count}
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}},
    }


def _expression(driver: str, device: JSON, *, exceed: bool = False) -> str:
    """Return a selector by the device's largest number, or else by a text attribute, or else for any device.

    With `exceed` it selects no device, if the device has an attribute.
    """
    attributes = device.get("attributes", {})
    numbers = {name: value["int"] for name, value in attributes.items() if "int" in value}
    texts = {name: value["string"] for name, value in attributes.items() if "string" in value}
    if numbers:
        name = max(numbers, key=lambda number: numbers[number])
        return f"{_attribute(driver, name)} >= {numbers[name] * 1000 + 1000 if exceed else numbers[name]}"
    for name, value in texts.items():
        return f"{_attribute(driver, name)} == {json.dumps('something else' if exceed else value)}"
    return _ANY_DEVICE


def _attribute(driver: str, name: str) -> str:
    domain, _, own = name.rpartition("/")
    return f'device.attributes["{domain or driver}"].{own}'


def _row(device: JSON) -> tuple[str, str, str]:
    attributes = {name: next(iter(value.values())) for name, value in device.get("attributes", {}).items()}
    capacity = {name: value["value"] for name, value in device.get("capacity", {}).items()}
    return device["name"], _pairs(attributes), _pairs(capacity)


def _pairs(values: JSON) -> str:
    return " ".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in values.items()) or "-"


def _container_edits(spec: JSON) -> JSON:
    """Return the parts of an OCI spec that devices add."""
    linux, process = spec.get("linux", {}), spec.get("process", {})
    edits = {
        "env": process.get("env"),
        "additionalGids": process.get("user", {}).get("additionalGids"),
        "devices": [_with_octal_mode(device) for device in linux.get("devices") or ()],
        "netDevices": linux.get("netDevices"),
        "mounts": spec.get("mounts"),
        "hooks": spec.get("hooks"),
    }
    return {key: value for key, value in edits.items() if value}


def _with_octal_mode(device: JSON) -> JSON:
    return device | {"fileMode": Octal(device["fileMode"])} if "fileMode" in device else device


def _prepared_device(device: Any) -> JSON:
    """Return a device of the prepare answer, with the field names of the .proto file."""
    answer = {
        "request_names": list(device.requests),
        "pool_name": device.pool,
        "device_name": device.device,
        "cdi_device_ids": list(device.cdi_ids),
        "share_id": device.share_id,
    }
    return {key: value for key, value in answer.items() if value}


def _print_step(text: str) -> None:
    print_lines(["", text, ""])
