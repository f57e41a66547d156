"""A device plugin for the cluster tests, as a process or as the only container of a pod.

python -m tests.cluster.thing_plugin DIRECTORY [HEALTH]

Its devices are `thing0` and `thing1`. A container gets `/dev/thing0`, which is /dev/null of the host, and the variable
THINGS. DIRECTORY has `kubelet.sock`; HEALTH is a JSON file with the health of devices that are not healthy.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.testing import FakePlugin

from tests.cluster.manifests import JSON, container

IDS = ("thing0", "thing1")
LABEL = "thing.vendor.com/bridge"
_STEP = 0.1
_AT = "/var/lib/kubelet/device-plugins"


def daemonset(name: str, directory: Path, affinity: JSON, command: Sequence[str], mounts: Sequence[Path]) -> JSON:
    """Returns the plugin's DaemonSet: `directory` of the host is where the plugin looks for the kubelet.

    `affinity` is one requirement on labels of the node, `mounts` the directories of the host that `command` needs.
    """
    paths = {f"host-{place}": (str(path), str(path)) for place, path in enumerate(mounts)}
    paths["device-plugins"] = (str(directory), _AT)
    main = container("main")
    main |= {
        "command": [*command, _AT],
        "env": [{"name": "PYTHONPATH", "value": str(Path(__file__).parents[2])}],
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, (_, path) in paths.items()],
        "resources": {},
    }
    term = {"matchExpressions": [affinity]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {
        "affinity": {"nodeAffinity": node},
        "containers": [main],
        "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": volume, "hostPath": {"path": path}} for volume, (path, _) in paths.items()],
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    head = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}}
    return {**head, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _allocate(ids: Sequence[str]) -> wire.AllocateResponse:
    nodes = [wire.DeviceSpec(container_path=f"/dev/{id_}", host_path="/dev/null", permissions="rw") for id_ in ids]
    answer = wire.ContainerAllocateResponse(envs={"THINGS": ",".join(ids)}, devices=nodes)
    return wire.AllocateResponse(container_responses=[answer])


def _health(file: Path | None) -> dict[str, str]:
    told = json.loads(file.read_text()) if file is not None and file.exists() else {}
    return {id_: told.get(id_, "Healthy") for id_ in IDS}


def main(directory: str, health: str = "") -> None:
    """Serves until SIGTERM."""
    stop, file = Event(), Path(health) if health else None
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    said = _health(file)
    plugin = FakePlugin(Path(directory), said, options=wire.DevicePluginOptions(), allocate=_allocate)
    with plugin:
        plugin.follow_kubelet()
        while not stop.wait(_STEP):
            if (now := _health(file)) != said:
                said = now
                plugin.publish(said)


if __name__ == "__main__":
    main(*sys.argv[1:])
