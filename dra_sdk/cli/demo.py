"""`dra-sdk demo [NAME]`: a claim's whole life on this machine, against an embedded API server and kubelet.

The driver is the real one and runs as it would on a node: it publishes over HTTP, is registered, prepares and
unprepares over unix sockets, and writes CDI specs to files. Only which device the claim gets is decided here, because
that is the scheduler's part.
"""

from __future__ import annotations

import argparse
import json
import uuid
from typing import Any

import yaml

from dra_sdk.cli.logs import set_up_logging
from dra_sdk.loader import load_driver
from dra_sdk.runtime.settings import Settings

CLAIM = "demo-claim"
POD = "demo-pod"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("demo", help="show a claim's whole life on this machine", description=__doc__)
    parser.add_argument("driver", nargs="?", default="cpu", help="a name that `dra-sdk drivers` lists, or module:Class")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the story and print it."""
    from dra_sdk.runtime.process import DriverProcess  # noqa: PLC0415 (gRPC: not for the other commands)
    from dra_sdk.simulator import EmbeddedCluster  # noqa: PLC0415

    set_up_logging("warning", "text")
    driver = load_driver(arguments.driver)
    name = driver.info.name
    with EmbeddedCluster() as cluster:
        settings = Settings(
            node_name=cluster.node_name,
            kubeconfig=cluster.kubeconfig,
            kubelet_dir=cluster.registry_dir.parent,
            cdi_dir=cluster.cdi_dir,
        )
        with DriverProcess(driver, settings):
            cluster.kubelet.wait_for_driver(name)
            _tell(f"1. {name} runs, and the kubelet has registered it. It publishes this machine:")
            (first, *_) = cluster.wait_slices(name)
            _show(first["spec"])
            _request(cluster, name, first)
            _tell("3. A pod that uses the claim starts: the kubelet asks the driver to prepare, and is answered:")
            pod = cluster.run_pod(POD, [CLAIM])
            call = cluster.kubelet.calls("prepare", name)[-1]
            _show([_answer(device) for devices in call.devices.values() for device in devices])
            print(f"   ({1000 * call.seconds:.1f} ms)")
            _tell("4. The driver wrote this CDI spec, which the container runtime applies:")
            for path in sorted(cluster.cdi_dir.glob("*.json")):
                print(f"--- {path.name}\n{json.dumps(json.loads(path.read_text()), indent=2)}")
            _tell("   so that the pod's container gets:")
            _show({key: value for key, value in cluster.container_spec(pod).items() if key != "ociVersion"})
            cluster.stop_pod(POD)
            left = [path.name for path in cluster.cdi_dir.iterdir()]
            _tell(f"5. The pod ends, the claim is unprepared. CDI specs left: {left or 'none'}.")
    return 0


def _request(cluster: Any, driver: str, published: dict[str, Any]) -> None:
    from dra_sdk.simulator import AllocatedDevice  # noqa: PLC0415

    device = published["spec"]["devices"][0]
    cluster.create_class("demo", [f'device.driver == "{driver}"'])
    cluster.create_claim(CLAIM, {"first": "demo"})
    _tell(f"2. A claim asks for one device of class demo, and is given {device['name']}:")
    more = {"consumedCapacity": _consumed(device)} if device.get("allowMultipleAllocations") else {}
    share = str(uuid.uuid4()) if more else None
    pool = published["spec"]["pool"]["name"]
    claim = cluster.allocate(CLAIM, [AllocatedDevice("first", driver, pool, device["name"], share, more=more)])
    _show(claim["status"]["allocation"]["devices"])


def _answer(device: Any) -> dict[str, Any]:
    """A device of the prepare answer by the names on the wire."""
    answer = {
        "request_names": list(device.requests),
        "pool_name": device.pool,
        "device_name": device.device,
        "cdi_device_ids": list(device.cdi_ids),
        "share_id": device.share_id,
    }
    return {key: value for key, value in answer.items() if value}


def _consumed(device: dict[str, Any]) -> dict[str, str]:
    """What a request that names no amount takes of each capacity."""
    capacity = device.get("capacity", {}).items()
    return {name: value.get("requestPolicy", {}).get("default", value["value"]) for name, value in capacity}


def _tell(text: str) -> None:
    print(f"\n{text}")


def _show(value: object) -> None:
    print(yaml.safe_dump(value, sort_keys=False, default_flow_style=False), end="")
