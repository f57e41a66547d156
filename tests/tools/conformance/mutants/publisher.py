"""Publishes the driver's devices, restores deleted slices, and writes nothing otherwise."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dra_sdk.errors import ApiError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from tests.tools.conformance.mutants import Faults

JSON = dict[str, Any]
POLL = 0.05
SHARES = 4


def devices(driver: str, faults: Faults) -> list[JSON]:
    """Four devices, one that four claims can share, and one that consumes a counter."""
    model = f"{driver}/model" if "own-domain" in faults else "model"
    attributes = {model: {"string": "one"}, "resource.kubernetes.io/numaNode": {"int": 0}}
    if "made-up-attribute" in faults:
        attributes["resource.kubernetes.io/colour"] = {"string": "red"}
    names = ["Dev_0" if "invalid-slice" in faults else "dev-0", "dev-1", "dev-2", "dev-3"]
    published: list[JSON] = [{"name": name, "attributes": attributes} for name in names]
    if "no-sharing" in faults:
        return published
    seats = {"value": str(SHARES), "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
    published.append({"name": "shared-0", "allowMultipleAllocations": True, "capacity": {"seats": seats}})
    wires = "wires-gone" if "lost-counters" in faults else "wires"
    published.append(
        {"name": "part-0", "consumesCounters": [{"counterSet": wires, "counters": {"wires": {"value": "1"}}}]}
    )
    return published


def slices(driver: str, node: str, owner: str, faults: Faults) -> Iterator[JSON]:
    """The slices to publish: devices in one, counters in another."""
    if "no-slices" in faults:
        return
    counters = [{"name": "wires", "counters": {"wires": {"value": "2"}}}]
    published = devices(driver, faults)
    contents: list[JSON] = [{"devices": published}]
    contents += [] if "no-sharing" in faults else [{"sharedCounters": counters}]
    contents += [{"devices": [{"name": "dev-0"}]}] if "duplicate-device" in faults else []
    count = len(contents) + ("missing-slice" in faults)
    place = "elsewhere" if "other-node" in faults else node
    reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": True}
    for index, content in enumerate(contents):
        pool = {"name": node, "generation": 1, "resourceSliceCount": count}
        metadata: JSON = {"name": f"{index}-{node}-{driver}"}
        metadata |= {} if "no-owner" in faults else {"ownerReferences": [reference]}
        spec = {"driver": driver, "nodeName": place, "pool": pool, **content}
        yield {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


class Publisher:
    """A thread that compares the slices with the desired ones every POLL seconds."""

    def __init__(self, driver: str, node: str, kubeconfig: Path, faults: Faults) -> None:
        self._driver, self._node, self._faults = driver, node, faults
        self.client = KubeClient.connect(kubeconfig, agent="mutant")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mutant-publisher")

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, delete: bool = False) -> None:
        """Stop; the slices stay unless `delete` is set."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if delete:
            for raw_slice in self._own():
                self.client.delete(paths.resource_slice(raw_slice["metadata"]["name"]))
        self.client.close()

    def _run(self) -> None:
        owner = self.client.get(paths.node(self._node))["metadata"]["uid"]
        desired = {
            raw_slice["metadata"]["name"]: raw_slice
            for raw_slice in slices(self._driver, self._node, owner, self._faults)
        }
        if "lists-claims" in self._faults:
            self.client.list(paths.resource_claims())
        if "rewrites-on-start" in self._faults:
            self._rewrite()
        published = False
        while not self._stop.wait(POLL):
            with suppress(ApiError):  # another instance was first, or the server refuses; the next turn tries again
                self._turn({} if "never-back" in self._faults and published else desired)
            published = True

    def _turn(self, desired: dict[str, JSON]) -> None:
        self._create(desired)
        if "restless" in self._faults:
            self._rewrite()
        if "greedy" in self._faults:
            self._delete_others()

    def _create(self, desired: dict[str, JSON]) -> None:
        there = {raw_slice["metadata"]["name"] for raw_slice in self._own()}
        for name, raw_slice in desired.items():
            if name not in there:
                self.client.create(paths.resource_slices(), raw_slice)

    def _rewrite(self) -> None:
        for raw_slice in self._own():
            raw_slice["metadata"].setdefault("labels", {})["turn"] = str(int(raw_slice["metadata"]["resourceVersion"]))
            self.client.update(paths.resource_slice(raw_slice["metadata"]["name"]), raw_slice)

    def _delete_others(self) -> None:
        for raw_slice in self.client.list(paths.resource_slices())["items"]:
            if raw_slice["spec"]["driver"] != self._driver:
                self.client.delete(paths.resource_slice(raw_slice["metadata"]["name"]))

    def _own(self) -> list[JSON]:
        selected = self.client.list(paths.resource_slices(), {"fieldSelector": f"spec.driver={self._driver}"})
        slices: list[JSON] = selected["items"]
        return slices
