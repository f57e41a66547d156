"""The kit's container runtime for the plugin under test."""

from __future__ import annotations

import dataclasses

import pytest

from dra_sdk.tools.conformance.check import Status, run_check
from dra_sdk.tools.conformance.checks import BY_ID
from dra_sdk.tools.conformance.nri_node import NriNode
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.tools.conformance.conftest import TIMEOUTS, OpenRun
from tests.tools.conformance.mutants import faults

NRI = faults("nri")


def test_a_driver_that_is_not_said_to_be_a_plugin_is_not_checked(open_run: OpenRun) -> None:
    with open_run() as run:
        result = run_check(run, BY_ID["NRI-001"])
        assert (result.status, result.reason) == (
            Status.NOT_APPLICABLE,
            "the driver counts as an NRI plugin only with --nri",
        )
        with pytest.raises(NotApplicableError):
            run.nri_node()


def test_containers_have_what_cdi_adds_and_what_the_plugin_adjusts(open_run: OpenRun) -> None:
    with open_run(NRI) as run:
        node = run.connected_node()
        shared = node.run()
        claim, edits = run.prepared_edits()
        pinned = node.run(edits)
        assert list(pinned.env) == [
            "PATH=/bin",
            "HOME=/root",
            "DEVICE_request-0=dev-0",
            f"DRA_CPUSET_{claim.ref.uid}=0-1",
        ]
        assert (node.cpus(pinned), node.cpus(shared)) == ("0-1", "2-7")
        assert node.adjustment(pinned).linux.resources.cpu.cpus == "0-1"
        assert node.adjustment(pb.Container(id="none")) == pb.ContainerAdjustment()
        (update,) = node.updates()
        assert (update.container, update.method, update.ignores_failure) == (shared.id, "CreateContainer", True)
        assert node.cpu_set(pinned) == {0, 1}
        assert node.runtime.pods[pinned.pod_sandbox_id].namespace == claim.ref.namespace


def test_a_container_that_starts_again_has_a_new_id_and_no_adjustment(open_run: OpenRun) -> None:
    with open_run(NRI) as run:
        node = run.connected_node()
        first = node.run()
        again = node.again(first)
        node.end(first)
        assert again.id != first.id
        assert (again.name, again.pod_sandbox_id) == (first.name, first.pod_sandbox_id)
        assert again.linux.resources.cpu.cpus == ""
        assert node.cpus(node.create(again)) == "0-7"
        node.end(again)
        node.end_pod(again.pod_sandbox_id)
        assert node.runtime.containers == {}
        assert node.runtime.pods == {}


def test_a_driver_without_a_plugin_does_not_connect(open_run: OpenRun) -> None:
    with open_run() as run:
        run.driver.timeouts = dataclasses.replace(TIMEOUTS, nri_connect=0.1)
        node = NriNode(run.driver)
        try:
            node.start()
            with pytest.raises(CheckFailedError, match=r"no NRI plugin has connected and synchronized within 0\.1 s"):
                node.connect()
        finally:
            node.stop()


def test_an_event_that_the_plugin_refuses_fails_the_check(open_run: OpenRun) -> None:
    with open_run(NRI) as run:
        node = run.connected_node()
        edits = {"process": {"env": ["DRA_CPUSET_unknown=0"]}}
        with pytest.raises(CheckFailedError, match=r"the plugin makes an event fail: .*claim unknown is not prepared"):
            node.run(edits)


def test_a_runtime_that_restarts_has_the_same_containers(open_run: OpenRun) -> None:
    with open_run(NRI) as run:
        node = run.connected_node()
        container = node.run()
        node.restart(0)
        node.reconnect()
        assert list(node.runtime.containers) == [container.id]
        assert [call.method for call in node.wire.calls].count("Synchronize") == 2
