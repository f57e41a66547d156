"""What a container gets: of whole GPUs and MIG devices, with and without the toolkit, from any driver root."""

from __future__ import annotations

import pytest

from dra_sdk import RetriableError
from dra_sdk.testing import claim, request

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"


def test_a_whole_gpu(make_gpus):
    container = make_gpus("L4", "L4").driver.prepare(claim("gpu")).container()
    assert set(container.devices) == {
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
        "/dev/dri/card1",
        "/dev/dri/renderD128",
    }
    assert container.env == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_CTK_LIBCUDA_DIR": "/usr/lib/x86_64-linux-gnu",
    }
    assert container.cdi_ids[0].startswith("k8s.gpu.nvidia.com/claim=")
    assert {LIBRARY, "/usr/bin/nvidia-smi", "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin"} <= set(container.mounts)
    assert container.mounts[LIBRARY]["options"][0] == "ro"


def test_each_request_has_its_own_gpus_and_a_complete_driver(make_gpus):
    harness = make_gpus("L4", "L4", "L4")
    prepared = harness.driver.prepare(
        claim("a", request("b", count=2)), containers={"a": ["a"], "b": ["b"], "all": ["a", "b"]}
    )
    gpus = {
        name: sorted(path for path in prepared.container(name).devices if path[-1].isdecimal() and "dri" not in path)
        for name in prepared.containers
    }
    assert gpus == {
        "a": ["/dev/nvidia0"],
        "b": ["/dev/nvidia1", "/dev/nvidia2"],
        "all": ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"],
    }
    assert all(LIBRARY in prepared.container(name).mounts for name in prepared.containers)


def test_the_toolkit_renews_the_loaders_cache(make_gpus):
    container = make_gpus("L4").driver.prepare(claim("gpu")).container()
    calls = [hook["args"][1:] for hook in container.hooks["createContainer"]]
    assert calls == [
        ["create-symlinks", "--link", "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so"],
        ["enable-cuda-compat", "--host-driver-version=580.95.05"],
        ["update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"],
        ["disable-device-node-modification"],
    ]
    assert {hook["path"] for hook in container.hooks["createContainer"]} == {"/usr/bin/nvidia-cdi-hook"}


def test_without_the_toolkit_libraries_have_the_names_that_programs_link_to(make_gpus):
    harness = make_gpus("L4")
    harness.node.remove("/usr/bin/nvidia-cdi-hook")
    container = harness.driver.prepare(claim("gpu")).container()
    assert container.hooks == {}
    assert container.mounts["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]["source"] == LIBRARY


def test_a_hook_that_an_operator_names(make_gpus):
    container = make_gpus("L4", cdi_hook="/opt/hook").driver.prepare(claim("gpu")).container()
    assert {hook["path"] for hook in container.hooks["createContainer"]} == {"/opt/hook"}


def test_a_driver_container(make_gpus):
    harness = make_gpus("L4", driver_root="/run/nvidia/driver")
    container = harness.driver.prepare(claim("gpu")).container()
    assert container.mounts[LIBRARY]["source"] == f"/run/nvidia/driver{LIBRARY}"
    assert container.hooks["createContainer"][0]["path"] == "/run/nvidia/driver/usr/bin/nvidia-cdi-hook"
    assert "/dev/nvidia0" in container.devices


def test_a_driver_container_with_its_own_device_nodes(make_gpus):
    harness = make_gpus("L4", driver_root="/run/nvidia/driver")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        harness.node.device_node(f"/run/nvidia/driver/dev/{name}", major=195, minor=250)
    assert harness.driver.prepare(claim("gpu")).container().devices["/dev/nvidia0"]["minor"] == 250


def test_links_and_directories_are_no_libraries(make_gpus):
    harness = make_gpus("L4")
    harness.node.path("/usr/lib/x86_64-linux-gnu/libdir.so.580.95.05").mkdir()
    harness.node.link("/usr/lib/x86_64-linux-gnu/liblink.so.580.95.05", "libcuda.so.580.95.05")
    harness.node.file("/usr/lib/x86_64-linux-gnu/libcuda.so.570.1")
    harness.node.file("/usr/lib/x86_64-linux-gnu/vdpau/libvdpau_nvidia.so.580.95.05")
    mounts = harness.driver.prepare(claim("gpu")).container().mounts
    libraries = {path for path in mounts if "/lib/" in path and "firmware" not in path}
    assert {path.rpartition("/")[2] for path in libraries} == {
        "libcuda.so.580.95.05",
        "libnvidia-ml.so.580.95.05",
        "libnvidia-ptxjitcompiler.so.580.95.05",
        "libnvidia-nvvm.so.580.95.05",
        "libnvcuvid.so.580.95.05",
        "libvdpau_nvidia.so.580.95.05",
    }


def test_sockets_of_daemons(make_gpus):
    harness = make_gpus("L4")
    harness.node.file("/run/nvidia-persistenced/socket")
    mount = harness.driver.prepare(claim("gpu")).container().mounts["/run/nvidia-persistenced/socket"]
    assert "noexec" in mount["options"]


@pytest.mark.parametrize(("profile", "drawing"), [("1g.24gb", False), ("1g.24gb+gfx", True)])
def test_mig_devices_for_graphics_have_nodes_for_it(make_gpus, profile, drawing):
    harness = make_gpus("RTX-PRO-6000", dynamic_mig=True)
    where = f'device.attributes["gpu.nvidia.com"].profile == "{profile}"'
    container = harness.driver.prepare(claim(request("mig", device_class="mig.nvidia.com", where=where))).container()
    assert {path for path in container.devices if "dri" in path} == (
        {"/dev/dri/card1", "/dev/dri/renderD128"} if drawing else set()
    )


def test_nodes_for_graphics_have_their_names_by_address(make_gpus):
    harness = make_gpus("L4")
    for name, target in {
        "pci-0000:10:00.0-card": "../card1",
        "pci-0000:10:00.0-render": "../renderD999",
        "pci-0000:11:00.0-card": "../card1",
    }.items():
        harness.node.link(f"/dev/dri/by-path/{name}", target)
    calls = [hook["args"][1:] for hook in harness.driver.prepare(claim("gpu")).container().hooks["createContainer"]]
    assert ["create-symlinks", "--link", "../card1::/dev/dri/by-path/pci-0000:10:00.0-card"] in calls
    assert "renderD999" not in str(calls)
    assert "pci-0000:11" not in str(calls)


@pytest.mark.parametrize("status", [0, 1])
def test_nodes_that_the_first_user_would_create_are_created(make_gpus, status, caplog):
    harness = make_gpus("L4")
    asked = harness.driver.allocate(claim("gpu"))
    harness.node.remove("/dev/nvidia-uvm")
    script = f"#!/bin/sh\n[ {status} = 0 ] && echo > {harness.node.root}/dev/nvidia-uvm\nexit {status}\n"
    harness.node.file("/usr/bin/nvidia-modprobe", script).chmod(0o755)
    if status:
        with pytest.raises(RetriableError, match="device node /dev/nvidia-uvm is missing on the node"):
            harness.driver.prepare(asked)
        assert "cannot be created: " in caplog.text
    else:
        prepared = harness.driver.prepare(asked)
        harness.register_nodes()
        assert "/dev/nvidia-uvm" in prepared.container().devices
    assert harness.effects.calls == ["run nvidia-modprobe -c0 -u"]


@pytest.mark.parametrize("node", ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"])
def test_a_device_node_that_is_missing(make_gpus, node):
    harness = make_gpus("L4")
    asked = harness.driver.allocate(claim("gpu"))
    harness.node.remove(node)
    with pytest.raises(RetriableError, match=f"device node {node} is missing on the node"):
        harness.driver.prepare(asked)
    harness.driver.assert_clean()
    harness.node.device_node(node)
    harness.driver.prepare(asked)
