"""The driver's files in a container: links, layouts of distributions, and hooks of any version of the toolkit."""

from __future__ import annotations

import pytest

from dra_sdk.testing import claim

VERSION = "580.95.05"
LIB = "/usr/lib/x86_64-linux-gnu"


def mounts(harness):
    return {path: mount["source"] for path, mount in harness.driver.prepare(claim("gpu")).container().mounts.items()}


@pytest.fixture
def outside(tmp_path_factory):
    """A directory outside the node, like our own files if the node is mounted here."""
    place = tmp_path_factory.mktemp("ours")
    (place / f"libours.so.{VERSION}").touch()
    (place / "gsp_ours.bin").touch()
    return place


def test_links_do_not_lead_out_of_the_driver_root(make_gpus, outside):
    harness = make_gpus("L4", driver_root="/run/nvidia/driver")
    for path in ("usr/lib64", "usr/lib/aarch64-linux-gnu", f"{LIB[1:]}/vdpau"):
        harness.node.link(f"/run/nvidia/driver/{path}", str(outside))
    firmware = harness.gpus.driver_root / "lib/firmware/nvidia" / VERSION
    firmware.rename(firmware.parent / "moved")
    harness.node.link(f"/run/nvidia/driver/lib/firmware/nvidia/{VERSION}", str(outside))
    assert not [path for path, source in mounts(harness).items() if "ours" in path + source]


def test_absolute_links_are_followed_in_the_driver_root(make_gpus):
    harness = make_gpus("L4", driver_root="/run/nvidia/driver")
    harness.node.link("/run/nvidia/driver/lib64", "/opt/lib")
    harness.node.file(f"/run/nvidia/driver/opt/lib/libextra.so.{VERSION}")
    mounted = mounts(harness)
    assert mounted[f"/opt/lib/libextra.so.{VERSION}"] == f"/run/nvidia/driver/opt/lib/libextra.so.{VERSION}"


def test_a_program_is_mounted_under_its_name_if_that_is_a_link(make_gpus):
    """Debian's alternatives."""
    harness = make_gpus("L4")
    harness.node.path("/usr/bin/nvidia-smi").rename(harness.node.path("/usr/bin/real-smi"))
    harness.node.link("/usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi")
    harness.node.link("/etc/alternatives/nvidia-smi", "/usr/bin/real-smi")
    mounted = mounts(harness)
    assert mounted["/usr/bin/nvidia-smi"] == "/usr/bin/real-smi"
    assert "/usr/bin/real-smi" not in mounted


def test_a_program_has_precedence_over_a_script_that_starts_it(make_gpus):
    """The script names a path of the host, which a container does not have."""
    harness = make_gpus("L4")
    for name in ("nvidia-smi", "nvidia-debugdump"):
        harness.node.file(f"/usr/bin/{name}", f"#!/bin/sh\nexec /usr/local/nvidia/bin/{name}\n")
    harness.node.file("/usr/local/nvidia/bin/nvidia-smi", "\x7fELF")
    mounted = mounts(harness)
    assert mounted["/usr/bin/nvidia-smi"] == "/usr/local/nvidia/bin/nvidia-smi"
    assert mounted["/usr/bin/nvidia-debugdump"] == "/usr/bin/nvidia-debugdump"


def test_debians_libraries_have_the_names_that_programs_link_to(make_gpus):
    harness = make_gpus("L4")
    harness.node.remove("/usr/bin/nvidia-cdi-hook")
    real = f"{LIB}/nvidia/current/libnvidia-opticalflow.so.{VERSION}"
    harness.node.file(real)
    harness.node.link(f"{LIB}/libnvidia-opticalflow.so.1", "/etc/alternatives/opticalflow")
    harness.node.link("/etc/alternatives/opticalflow", real)
    mounted = mounts(harness)
    for name in ("libnvidia-opticalflow.so.1", f"libnvidia-opticalflow.so.{VERSION}"):
        assert mounted[f"{LIB}/{name}"] == mounted[f"/usr/lib64/{name}"] == real


def test_links_to_links_are_mounted_and_links_to_other_libraries_are_not(make_gpus):
    harness = make_gpus("L4")
    harness.node.remove("/usr/bin/nvidia-cdi-hook")
    harness.node.link(f"{LIB}/libcuda.so", "libcuda.so.1")
    harness.node.link(f"{LIB}/libGLX_indirect.so.0", f"libcuda.so.{VERSION}")
    harness.node.file(f"{LIB}/libz.so.1.3")
    harness.node.link(f"{LIB}/libz.so.1", "libz.so.1.3")
    mounted = mounts(harness)
    assert {mounted[f"{LIB}/{name}"] for name in ("libcuda.so", "libGLX_indirect.so.0")} == {
        f"{LIB}/libcuda.so.{VERSION}"
    }
    assert f"{LIB}/libz.so.1" not in mounted


def test_links_that_lead_nowhere_are_left_out(make_gpus):
    harness = make_gpus("L4")
    harness.node.remove("/usr/bin/nvidia-cdi-hook")
    harness.node.link(f"{LIB}/libfirst.so", "libsecond.so")
    harness.node.link(f"{LIB}/libsecond.so", "libfirst.so")
    harness.node.link(f"{LIB}/libgone.so", "libgone.so.1")
    harness.node.link(f"{LIB}/libgone.so.1", f"/opt/libgone.so.{VERSION}")
    harness.node.link(f"{LIB}/libcuda.so", f"../x86_64-linux-gnu/libcuda.so.{VERSION}")
    mounted = mounts(harness)
    assert mounted[f"{LIB}/libcuda.so"] == f"{LIB}/libcuda.so.{VERSION}"
    assert not [path for path in mounted if "first" in path or "second" in path or "gone" in path]


def test_libraries_for_32_bits_are_left_out(make_gpus):
    """In other distributions /usr/lib has 64-bit libraries."""
    harness = make_gpus("L4")
    harness.node.path("/usr/lib").mkdir(exist_ok=True)
    harness.node.path(f"/usr/lib/libcuda.so.{VERSION}").write_bytes(b"\x7fELF\x01\x01\x01")
    harness.node.path(f"/usr/lib/libother.so.{VERSION}").write_bytes(b"\x7fELF\x02\x01\x01")
    mounted = mounts(harness)
    assert f"/usr/lib/libcuda.so.{VERSION}" not in mounted
    assert f"/usr/lib/libother.so.{VERSION}" in mounted


def test_links_that_programs_expect_are_created(make_gpus):
    harness = make_gpus("L4")
    for name in ("libnvidia-allocator", "libGLX_nvidia", "libnvidia-opticalflow"):
        harness.node.file(f"{LIB}/{name}.so.{VERSION}")
    harness.node.file(f"/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so.{VERSION}")
    harness.node.link(f"{LIB}/libnvcuvid.so", "libnvcuvid.so.1")
    harness.node.link(f"{LIB}/libcuda.so", f"libcuda.so.{VERSION}")
    harness.node.file(f"{LIB}/nvidia/current/libnvidia-fbc.so.{VERSION}")
    harness.node.link(f"{LIB}/libnvidia-fbc.so", "/etc/alternatives/fbc")
    harness.node.link("/etc/alternatives/fbc", f"{LIB}/nvidia/current/libnvidia-fbc.so.{VERSION}")
    container = harness.driver.prepare(claim("gpu")).container()
    (words,) = [hook["args"] for hook in container.hooks["createContainer"] if hook["args"][1] == "create-symlinks"]
    assert set(words[3::2]) == {
        f"libcuda.so.1::{LIB}/libcuda.so",
        f"libnvcuvid.so.{VERSION}::{LIB}/libnvcuvid.so",
        f"{LIB}/nvidia/current/libnvidia-fbc.so.{VERSION}::{LIB}/libnvidia-fbc.so",
        f"libnvidia-opticalflow.so.1::{LIB}/libnvidia-opticalflow.so",
        f"libGLX_nvidia.so.{VERSION}::{LIB}/libGLX_indirect.so.0",
        f"../libnvidia-allocator.so.1::{LIB}/gbm/nvidia-drm_gbm.so",
        f"libglxserver_nvidia.so.{VERSION}::/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so",
    }


def test_modules_of_the_x_server_are_not_in_the_loaders_cache(make_gpus):
    harness = make_gpus("L4")
    harness.node.file("/usr/lib64/xorg/modules/drivers/nvidia_drv.so")
    container = harness.driver.prepare(claim("gpu")).container()
    assert "/usr/lib64/xorg/modules/drivers/nvidia_drv.so" in container.mounts
    (folders,) = [hook["args"] for hook in container.hooks["createContainer"] if hook["args"][1] == "update-ldcache"]
    assert folders[2:] == ["--folder", LIB]


def test_files_for_graphics(make_gpus):
    harness = make_gpus("L4", driver_root="/run/nvidia/driver")
    wanted = (
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/etc/OpenCL/vendors/nvidia.icd",
        f"{LIB}/libnvidia-egl-gbm.so.1.1.2",
        f"{LIB}/libnvidia-egl-xcb.so.1.0.1",
        f"{LIB}/libnvidia-nvvm70.so.4",
    )
    for path in wanted:
        harness.node.file(f"/run/nvidia/driver{path}")
    mounted = mounts(harness)
    assert {path: mounted[path] for path in wanted} == {path: f"/run/nvidia/driver{path}" for path in wanted}


def test_sockets_of_daemons_in_the_drivers_container_or_else_on_the_host(make_gpus):
    harness = make_gpus("L4", driver_root="/run/nvidia/driver")
    inner, outer = "/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"
    for path in (f"/run/nvidia/driver{inner}", inner, outer):
        harness.node.file(path)
    mounted = mounts(harness)
    assert (mounted[inner], mounted[outer]) == (f"/run/nvidia/driver{inner}", outer)


# -- hooks

HOOK = "/usr/bin/nvidia-cdi-hook"
OLD = ["create-symlinks", "update-ldcache"]
NEW = ["create-symlinks", "enable-cuda-compat", "update-ldcache", "disable-device-node-modification"]
NEWEST = [*NEW, "update-application-profile"]


def calls(harness):
    return [hook["args"][1] for hook in harness.driver.prepare(claim("gpu")).container().hooks["createContainer"]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x7fELF chmod create-symlinks update-ldcache", OLD),
        (b"\x7fELF chmod create-symlinks\0enable-cuda-compatupdate-ldcache", NEW[:3]),
        (b"enable-cuda-compat disable-device-node-modification", NEW),
        (b"enable-cuda-compat disable-device-node-modification update-application-profile", NEWEST),
    ],
)
def test_only_subcommands_that_the_program_has_are_used(make_gpus, content, expected):
    """A hook that answers `No help topic` keeps the container from starting."""
    harness = make_gpus("L4")
    harness.node.path(HOOK).write_bytes(content)
    assert calls(harness) == expected


def test_a_program_that_is_replaced_is_read_again(make_gpus):
    harness = make_gpus("L4", "L4")
    harness.node.path(HOOK).write_bytes(b"old")
    assert calls(harness) == OLD
    harness.node.path(HOOK).write_bytes(" ".join(NEW).encode())
    assert calls(harness) == NEW


def test_the_program_may_be_behind_a_script_of_the_toolkits_container(make_gpus):
    harness = make_gpus("L4")
    harness.node.remove(HOOK)
    place = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    harness.node.file(place, f"#!/bin/sh\nexec {place}.real\n")
    harness.node.file(f"{place}.real", " ".join(NEW))
    assert calls(harness) == NEW


def test_a_program_that_cannot_be_read_gets_subcommands_of_every_version(make_gpus):
    assert calls(make_gpus("L4", cdi_hook="/opt/hook")) == OLD


def test_a_link_to_the_program_on_a_mounted_host_is_followed_there(make_gpus):
    harness = make_gpus("L4")
    harness.node.path(HOOK).rename(harness.node.path("/opt-hook"))
    harness.node.link(HOOK, "/opt-hook")
    container = harness.driver.prepare(claim("gpu")).container()
    assert container.hooks["createContainer"][0]["path"] == "/opt-hook"
