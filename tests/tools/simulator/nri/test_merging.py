"""Answers of several plugins to one event: what is merged, and what conflicts."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.simulator.nri import PluginConflictError
from dra_sdk.tools.simulator.nri.merging import MergedAnswers
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb


def merged() -> MergedAnswers:
    container = pb.Container(
        id="c0",
        env=["PATH=/bin", "A=1"],
        annotations={"old": "1"},
        mounts=[pb.Mount(destination="/data", source="/a")],
    )
    return MergedAnswers(container)


def cpu(**fields: Any) -> pb.ContainerAdjustment:
    adjust = pb.ContainerAdjustment()
    adjust.linux.resources.cpu.MergeFrom(pb.LinuxCPU(**fields))
    return adjust


def update(name: str, *, ignore_failure: bool = False, **fields: Any) -> pb.ContainerUpdate:
    result = pb.ContainerUpdate(container_id=name, ignore_failure=ignore_failure)
    result.linux.resources.cpu.MergeFrom(pb.LinuxCPU(**fields))
    return result


def test_plugins_may_set_different_things() -> None:
    answers = merged()
    answers.adjust("10-a", cpu(cpus="0-1", shares=pb.OptionalUInt64(value=2)))
    answers.adjust("20-b", cpu(mems="0", quota=pb.OptionalInt64(value=-1)))
    assert answers.container
    merged_cpu = answers.container.linux.resources.cpu
    assert (merged_cpu.cpus, merged_cpu.mems, merged_cpu.shares.value, merged_cpu.quota.value) == ("0-1", "0", 2, -1)
    assert answers.adjustment.linux.resources.cpu == merged_cpu


def test_an_empty_list_of_cpus_means_unchanged() -> None:
    answers = merged()
    answers.adjust("10-a", cpu(cpus="0-1"))
    answers.adjust("20-b", cpu(cpus="", mems=""))
    assert answers.container
    assert answers.container.linux.resources.cpu.cpus == "0-1"


def resources(**fields: Any) -> pb.ContainerAdjustment:
    adjust = pb.ContainerAdjustment()
    adjust.linux.resources.MergeFrom(pb.LinuxResources(**fields))
    return adjust


CONFLICTS: dict[str, pb.ContainerAdjustment] = {
    "cpu cpus": cpu(cpus="1"),
    "cpu mems": cpu(mems="0"),
    "cpu shares": cpu(shares=pb.OptionalUInt64(value=2)),
    "memory limit": resources(memory=pb.LinuxMemory(limit=pb.OptionalInt64(value=1))),
    "hugepage limit 2MB": resources(hugepage_limits=[pb.HugepageLimit(page_size="2MB", limit=1)]),
    "cgroup v2 file memory.high": resources(unified={"memory.high": "1"}),
    "environment variable X": pb.ContainerAdjustment(env=[pb.KeyValue(key="X", value="1")]),
    "mount /data": pb.ContainerAdjustment(mounts=[pb.Mount(destination="/data")]),
    "annotation x": pb.ContainerAdjustment(annotations={"x": "1"}),
    "CDI device a/b=c": pb.ContainerAdjustment(CDI_devices=[pb.CDIDevice(name="a/b=c")]),
}


@pytest.mark.parametrize("what", CONFLICTS)
def test_two_plugins_may_not_set_the_same(what: str) -> None:
    answers = merged()
    answers.adjust("10-a", CONFLICTS[what])
    with pytest.raises(PluginConflictError, match=f"^plugins 10-a and 20-b both set {what} of container c0$"):
        answers.adjust("20-b", CONFLICTS[what])


@pytest.mark.parametrize("what", [conflict for conflict in CONFLICTS if not conflict.startswith("CDI")])
def test_one_plugin_may_set_it_twice(what: str) -> None:
    answers = merged()
    answers.adjust("10-a", CONFLICTS[what])
    once = str(answers.container)
    answers.adjust("10-a", CONFLICTS[what])
    assert str(answers.container) == once


def test_values_of_the_container_are_replaced() -> None:
    answers = merged()
    answers.adjust(
        "10-a",
        pb.ContainerAdjustment(
            env=[pb.KeyValue(key="A", value="2"), pb.KeyValue(key="B", value="x=y")],
            mounts=[pb.Mount(destination="/data", source="/b")],
            annotations={"old": "2"},
        ),
    )
    assert answers.container
    assert list(answers.container.env) == ["PATH=/bin", "A=2", "B=x=y"]
    assert [mount.source for mount in answers.container.mounts] == ["/b"]
    assert dict(answers.container.annotations) == {"old": "2"}


def test_a_minus_removes_what_the_container_or_an_earlier_plugin_has() -> None:
    answers = merged()
    answers.adjust("10-a", pb.ContainerAdjustment(env=[pb.KeyValue(key="X", value="1")], annotations={"x": "1"}))
    answers.adjust(
        "20-b",
        pb.ContainerAdjustment(
            env=[pb.KeyValue(key="-X"), pb.KeyValue(key="X", value="2"), pb.KeyValue(key="-A")],
            annotations={"-x": "", "x": "2", "-old": ""},
            mounts=[pb.Mount(destination="-/data")],
        ),
    )
    assert answers.container
    assert list(answers.container.env) == ["PATH=/bin", "X=2"]
    assert dict(answers.container.annotations) == {"x": "2"}
    assert list(answers.container.mounts) == []


def test_updates_of_other_containers_are_merged() -> None:
    answers = merged()
    answers.update("10-a", [update("c1", cpus="1", ignore_failure=True), update("c2", cpus="2")])
    answers.update("20-b", [update("c1", mems="0")])
    assert answers.updates == {"c1": update("c1", cpus="1", mems="0"), "c2": update("c2", cpus="2")}


def test_updates_conflict_unless_they_ignore_failures() -> None:
    answers = merged()
    answers.update("10-a", [update("c1", cpus="1")])
    answers.update("20-b", [update("c1", cpus="2", mems="0", ignore_failure=True)])
    assert answers.updates == {"c1": update("c1", cpus="1")}
    with pytest.raises(PluginConflictError, match="plugins 10-a and 20-b both set cpu cpus of container c1"):
        answers.update("20-b", [update("c1", cpus="2")])
    answers.update("30-c", [update("c1", mems="0")])  # what was ignored owns nothing
    assert answers.updates["c1"].linux.resources.cpu.mems == "0"


def test_the_container_that_is_created_cannot_be_updated() -> None:
    with pytest.raises(PluginConflictError, match="plugin 10-a asked for an update of c0 during its creation"):
        merged().update("10-a", [update("c0", cpus="1")])
