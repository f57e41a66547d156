"""The configuration of containerd, kubelet and pod network."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml

from tests.cluster.harness import configuration, image
from tests.cluster.harness.runtime import Runtime
from tests.cluster.test_harness.states import make_state


def strings(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_containerd_keeps_its_files_in_the_cluster_folder(layout):
    config = tomllib.loads(
        configuration.containerd_config(layout, Runtime.under(Path("/cache")), Path("/usr/sbin/runc"))
    )
    plugins = config["plugins"]
    cri = plugins["io.containerd.cri.v1.runtime"]
    assert cri["cdi_spec_dirs"] == [str(each) for each in layout.cdi_spec_dirs]
    assert cri["enable_cdi"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/usr/sbin/runc"
    assert plugins["io.containerd.nri.v1.nri"]["socket_path"] == str(layout.nri_socket)
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == image.PAUSE
    outside = [text for text in strings(config) if text.startswith("/") and not text.startswith(str(layout.root))]
    assert outside == ["/cache/usr/lib/cni", "/usr/sbin/runc"]


def test_kubelet_gets_gates_ports_and_nothing_outside_the_cluster_folder(layout):
    config = yaml.safe_load(configuration.kubelet_config(layout, make_state(gates={"AllBeta": True, "X": False})))
    assert config["featureGates"] == {"AllBeta": True, "X": False}
    assert config["port"] == make_state().ports["kubelet"]
    assert config["address"] == layout.node_address
    assert (config["failCgroupV1"], config["cgroupsPerQOS"], config["enforceNodeAllocatable"]) == (False, False, [])
    assert [text for text in strings(config) if text.startswith("/") and not text.startswith(str(layout.root))] == []


def test_a_node_may_change_the_configuration_of_the_kubelet(layout):
    config = json.loads(configuration.kubelet_config(layout, make_state(), cgroupsPerQOS=True))
    assert config["cgroupsPerQOS"] is True
    assert config["enforceNodeAllocatable"] == []


def test_containerd_on_a_slow_node_waits_longer(layout):
    for slower, wanted in {1: ("5s", "2s", "2s"), 30: ("150s", "60s", "60s")}.items():
        text = configuration.containerd_config(layout, Runtime.under(Path("/c")), Path("/runc"), slower=slower)
        config = tomllib.loads(text)
        nri, task = (
            config["plugins"]["io.containerd.nri.v1.nri"],
            config["timeouts"]["io.containerd.timeout.task.state"],
        )
        assert (nri["plugin_registration_timeout"], nri["plugin_request_timeout"], task) == wanted


def test_pod_network_leases_its_subnet_in_the_cluster_folder(layout):
    config = json.loads(configuration.network_config(layout))
    ipam = config["plugins"][0]["ipam"]
    assert config["name"] == "dra-sdk-unit"
    assert ipam["ranges"] == [[{"subnet": layout.pod_subnet}]]
    assert ipam["dataDir"] == str(layout.cni_data)
