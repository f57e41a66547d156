"""A plugin of the SDK is connected to the node's containerd, and pins a container in the kernel."""

from __future__ import annotations

from typing import Any

from dra_sdk.node.nri.events import Event
from dra_sdk.node.nri.plugin import NriPlugin
from dra_sdk.node.nri.session import SessionLimits, Subscription
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.lab import node_pods
from tests.lab.harness.node import LIMIT, Node


def test_a_container_runs_on_the_cpus_and_the_memory_that_a_plugin_chooses(node: Node) -> None:
    def pin(request: Any) -> pb.CreateContainerResponse:
        answer = pb.CreateContainerResponse()
        if request.pod.name == "pinned":
            answer.adjust.linux.resources.cpu.cpus = "3"
            answer.adjust.linux.resources.cpu.mems = "1"
        return answer

    subscriptions = {Event.CREATE_CONTAINER: Subscription(pin)}
    limits = SessionLimits(LIMIT, LIMIT)
    plugin = NriPlugin("lab", 10, lambda _pods, _containers: [], subscriptions, path=node.nri_socket, limits=limits)
    plugin.start()
    try:
        assert plugin.wait_synchronized(LIMIT)
        node_pods.run(node, "pinned")
        cgroup = node_pods.cgroup(node, "pinned")
        assert (cgroup / "cpuset.cpus.effective").read_text().strip() == "3"
        assert (cgroup / "cpuset.mems.effective").read_text().strip() == "1"
        node_pods.delete(node, "pinned")
    finally:
        assert plugin.stop(LIMIT)
