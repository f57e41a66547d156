"""Answers to Allocate that are wrong or hostile: each is refused in a sentence with plugin, field and value."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin import limits
from dra_driver_plugin.edits import container_edits
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk import ContainerEdits, PermanentError
from dra_sdk.testing import FakeNode

pytest_plugins = ["dra_sdk.testing.plugin"]
PLUGIN = "device plugin thing.sock of vendor.com/thing"
LONG_PATH = "/dev/" + "x/" * 2100
LONGEST = "/dev/" + "/".join(["x" * 204] * 20)[:4090]


def edits(root: Path, **fields: Any) -> ContainerEdits:
    return container_edits(wire.ContainerAllocateResponse(**fields), root, ["/dev"], PLUGIN)


def device(host: str, container: str) -> wire.DeviceSpec:
    return wire.DeviceSpec(host_path=host, container_path=container, permissions="rw")


@pytest.fixture
def root(dra_node: FakeNode) -> Path:
    for number in range(2):
        dra_node.device_node(f"/dev/null{number}", minor=number)
    return dra_node.root


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../../etc", "must be absolute"),
        ("etc", "must be absolute"),
        ("", "must be absolute"),
        ("/dev/../etc", "without '..'"),
        ("/dev/a\0b", "NUL"),
        ("/", "in place of a directory"),
        ("//", "in place of a directory"),
        ("/etc/.", "in place of a directory"),
        ("/usr/", "in place of a directory"),
        ("/proc", "is of the kernel or the kubelet"),
        ("//proc//sys", "is of the kernel or the kubelet"),
        ("/sys/fs/cgroup", "is of the kernel or the kubelet"),
        ("/run/secrets/token", "is of the kernel or the kubelet"),
        ("/var/run/secrets/kubernetes.io/serviceaccount", "is of the kernel or the kubelet"),
        (LONG_PATH, "has 4205 bytes, more than 4095"),
        (f"/dev/{'x' * 256}", "has a name of 256 bytes, more than 255"),
    ],
)
@pytest.mark.parametrize("kind", ["devices", "mounts"])
def test_a_path_that_no_container_should_get_is_refused(root: Path, kind: str, path: str, problem: str) -> None:
    if kind == "devices":
        given_first: Any = {"devices": [device("/dev/null0", "/dev/x"), device("/dev/null1", path or "etc")]}
    else:
        mounts = [wire.Mount(host_path="/dev", container_path=inside) for inside in ("/x", path)]
        given_first = {"mounts": mounts}
    with pytest.raises(PermanentError) as refused:
        edits(root, **given_first)
    text = str(refused.value)
    assert text.startswith(f"{PLUGIN} asks for what it may not give: {kind}[1].container_path ")
    assert problem in text
    assert len(text) < 500
    assert text.isprintable()


@pytest.mark.parametrize("path", ["/dev/x", "/opt/thing", "/etc/thing.conf", "/devices", "/sysroot", LONGEST])
def test_other_paths_of_a_container_are_taken(root: Path, path: str) -> None:
    assert [node.path for node in edits(root, devices=[device("/dev/null0", path)]).device_nodes] == [path]


@pytest.mark.parametrize("host", ["//dev/null0", "/dev//null0", "///dev/./null0"])
def test_repeated_slashes_mean_what_they_mean_to_the_kernel(root: Path, host: str) -> None:
    (node,) = edits(root, devices=[device(host, "")]).device_nodes
    assert (node.path, node.host_path) == ("/dev/null0", "/dev/null0")


@pytest.mark.parametrize("host", [LONG_PATH, f"/dev/{'x' * 256}", "dev/null0", "/dev/a\0b", "/dev/../etc/shadow"])
def test_a_path_of_the_host_that_the_kernel_does_not_take_is_refused(root: Path, host: str) -> None:
    with pytest.raises(PermanentError, match=r"devices\[0\]\.host_path '"):
        edits(root, devices=[device(host, "/dev/x")])
    with pytest.raises(PermanentError, match=r"mounts\[0\]\.host_path '"):
        edits(root, mounts=[wire.Mount(host_path=host, container_path="/x")])


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("DRA_CLAIM_dra.cpu_5134cc50-0000-4000-8000-000000000001_cpus", "1", "belongs to a DRA driver"),
        ("", "1", "must have a name without '='"),
        ("A=B", "1", "must have a name without '='"),
        ("A", "1\0", "no NUL character"),
        ("A", "x" * (limits.VARIABLE - 1), "has 131072 bytes with its name, more than 131071"),
    ],
)
def test_a_variable_that_no_container_should_get_is_refused(root: Path, name: str, text: str, problem: str) -> None:
    with pytest.raises(PermanentError) as refused:
        edits(root, envs={name: text})
    assert f"asks for what it may not give: envs[{name!r}]" in str(refused.value)
    assert problem in str(refused.value)
    assert len(str(refused.value)) < 600


def test_other_variables_are_taken(root: Path) -> None:
    variables = {"LD_LIBRARY_PATH": "/opt/thing", "A": "x" * (limits.VARIABLE - 2), "DRA_CLAIMS": "1"}
    assert edits(root, envs=variables).env == variables


def test_device_nodes_and_mounts_have_a_limit_together(root: Path) -> None:
    nodes = [device("/dev/null0", "/dev/x")]
    mounts = [wire.Mount(host_path="/dev", container_path=f"/{number}") for number in range(limits.EDITS)]
    assert len(edits(root, devices=nodes, mounts=mounts[1:]).mounts) == limits.EDITS - 1
    with pytest.raises(PermanentError, match="1 device nodes and 1000 mounts are more than 1000 together"):
        edits(root, devices=nodes, mounts=mounts)


@given(st.text(st.sampled_from("/.dev0x\0é"), max_size=12), st.text(max_size=300))
def test_any_path_is_taken_or_refused_in_a_sentence(host: str, container: str) -> None:
    with suppress(PermanentError):
        edits(Path("/nonexistent"), devices=[device(host, container)], envs={host: container})
