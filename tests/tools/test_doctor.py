"""What `dra-sdk doctor` says of nodes made of files, and of an API server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import ApiError, NotFoundError, UnreachableError
from dra_sdk.tools.doctor import Diagnosis, NodePaths, examine
from dra_sdk.tools.doctor.cluster import PERMISSIONS, permissions
from dra_sdk.tools.doctor.directories import directories, shared_root
from dra_sdk.tools.doctor.kubelet import kubelet_configuration
from dra_sdk.tools.doctor.runtime import container_runtime

JSON = dict[str, Any]
CDI_ON = "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = true\n"
CDI_OFF = CDI_ON.replace("true", "false")
VERSION_3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"


@pytest.fixture
def paths(tmp_path: Path) -> NodePaths:
    """A node that lacks nothing but a container runtime's configuration."""
    for path in ("kubelet/plugins_registry", "kubelet/plugins", "var/run/cdi", "etc/containerd"):
        (tmp_path / path).mkdir(parents=True)
    return node_paths(tmp_path / "kubelet", Path("/var/run/cdi"), tmp_path)


def node_paths(kubelet: Path, cdi: Path, root: Path = Path("/")) -> NodePaths:
    return NodePaths(kubelet, kubelet / "plugins_registry", kubelet / "plugins", cdi, root)


def by_subject(findings: Iterator[Diagnosis]) -> dict[str, Diagnosis]:
    return {finding.subject: finding for finding in findings}


def runtime(paths: NodePaths, config: str | None, version: str = "", *, nri: bool = False) -> dict[str, Diagnosis]:
    if config is not None:
        (paths.root / "etc/containerd/config.toml").write_text(config)
    return by_subject(container_runtime(paths, version, nri=nri))


# -- directories


def test_directories_that_are_there_are_fine(tmp_path: Path) -> None:
    for name in ("plugins_registry", "plugins", "cdi"):
        (tmp_path / name).mkdir()
    findings = list(directories(node_paths(tmp_path, tmp_path / "cdi")))
    assert [finding.status for finding in findings] == ["ok", "ok", "ok"]


def test_before_the_installation_a_drivers_own_directories_may_be_absent(tmp_path: Path) -> None:
    for name in ("plugins_registry", "plugins"):
        (tmp_path / name).mkdir()
    own = NodePaths(tmp_path, tmp_path / "plugins_registry/a", tmp_path / "plugins/a", tmp_path / "cdi")
    assert [finding.status for finding in directories(own)] == ["ok", "ok", "ok"]
    assert [finding.status for finding in directories(replace(own, in_pod=True))] == ["missing", "missing", "missing"]
    elsewhere = replace(own, registry=tmp_path / "none/plugins_registry", plugins=tmp_path / "none/plugins/a")
    assert [finding.status for finding in directories(elsewhere)] == ["missing", "missing", "ok"]


def test_a_missing_directory_and_a_file_in_its_place_are_named(tmp_path: Path) -> None:
    (tmp_path / "plugins").touch()
    findings = by_subject(directories(node_paths(tmp_path, tmp_path / "cdi")))
    registry = findings[f"directory {tmp_path / 'plugins_registry'}"]
    assert (registry.status, registry.found) == ("missing", "does not exist")
    assert "--kubelet-dir" in registry.remedy
    assert findings[f"directory {tmp_path / 'plugins'}"].found == "is no directory"


# -- the container runtime


@pytest.mark.parametrize(
    ("config", "version", "status"),
    [
        (CDI_ON, "", "ok"),
        (CDI_OFF, "containerd://2.1.4", "missing"),
        ("version = 2\n", "containerd://1.7.27", "missing"),
        ("version = 2\n", "containerd://2.0.1", "ok"),
        ("version = 2\n", "", "unknown"),
        (VERSION_3, "", "ok"),
        (VERSION_3 + "enable_cdi = false\n", "", "missing"),
        (None, "containerd://2.1.4", "ok"),
        (None, "containerd://1.7.27", "unknown"),
        (None, "", "unknown"),
        (None, "cri-o://1.34.1", "ok"),
        (None, "docker://28.0", "unknown"),
        ("version = [", "", "unknown"),
    ],
)
def test_cdi_of_the_runtime(paths: NodePaths, config: str | None, version: str, status: str) -> None:
    cdi = runtime(paths, config, version)["CDI"]
    assert cdi.status == status
    assert bool(cdi.remedy) == (status != "ok")


def test_a_setting_of_an_imported_file_counts(paths: NodePaths) -> None:
    (paths.root / "etc/containerd/conf.d").mkdir()
    (paths.root / "etc/containerd/conf.d/cdi.toml").write_text(CDI_OFF)
    findings = runtime(paths, "imports = ['/etc/containerd/conf.d/*.toml']\n" + CDI_ON)
    assert findings["CDI"].status == "missing"


def test_a_directory_that_the_runtime_does_not_read_is_missing(paths: NodePaths) -> None:
    directory = runtime(paths, VERSION_3 + "cdi_spec_dirs = ['/etc/cdi']\n")["cdi_spec_dirs"]
    assert (directory.status, directory.found) == ("missing", "containerd reads /etc/cdi, not /var/run/cdi")
    assert runtime(paths, VERSION_3 + "cdi_spec_dirs = ['/run/cdi/']\n")["cdi_spec_dirs"].status == "ok"


def test_nri_is_missing_only_if_a_driver_needs_it(paths: NodePaths) -> None:
    assert runtime(paths, None)["NRI"].status == "unknown"
    assert runtime(paths, None, nri=True)["NRI"].status == "missing"


def test_nri_is_there_if_somebody_listens(paths: NodePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(paths.root)  # a path of a socket has at most 107 bytes
    (paths.root / "var/run/nri").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("var/run/nri/nri.sock")
        server.listen()
        near = node_paths(paths.kubelet, paths.cdi, Path())
        assert runtime(near, None, nri=True)["NRI"].status == "ok"


# -- the kubelet


def kubelet(paths: NodePaths, server: Any = None, driver: str = "") -> tuple[Diagnosis, Diagnosis]:
    """What is found about the gates of the kubelet, and about its CPU manager."""
    gates, manager = kubelet_configuration(paths, server, "here", driver)
    return gates, manager


@pytest.mark.parametrize(
    ("text", "gates", "manager"),
    [
        ("kind: KubeletConfiguration\n", "ok", "unknown"),
        ("featureGates: {DRAConsumableCapacity: true}\ncpuManagerPolicy: none\n", "ok", "ok"),
        ("featureGates: {DynamicResourceAllocation: false}\ncpuManagerPolicy: static", "missing", "missing"),
        ("[", "unknown", "unknown"),
        ("just words", "unknown", "unknown"),
        (None, "unknown", "unknown"),
    ],
)
def test_the_kubelets_configuration_file(paths: NodePaths, text: str | None, gates: str, manager: str) -> None:
    if text is not None:
        (paths.kubelet / "config.yaml").write_text(text)
    findings = kubelet(paths, driver="dra.cpu")
    assert [finding.status for finding in findings] == [gates, manager]
    for finding in findings:
        assert finding.status != "unknown" or "kubectl get --raw /api/v1/nodes/here/proxy/configz" in finding.remedy


def test_what_the_kubelet_says_counts_more_than_its_file(paths: NodePaths) -> None:
    (paths.kubelet / "config.yaml").write_text("featureGates: {DRADeviceTaints: false}\ncpuManagerPolicy: none\n")
    said = {"featureGates": {"DynamicResourceAllocation": False}, "cpuManagerPolicy": "static"}
    server = Server({"/api/v1/nodes/here/proxy/configz": {"kubeletconfig": said}}, set())
    gates, manager = kubelet(paths, server, "dra.cpu")
    assert gates.found == "the kubelet has DynamicResourceAllocation off"
    assert manager.status == "missing"
    assert "policy static (the kubelet)" in manager.found


def test_the_state_of_the_cpu_manager_has_what_a_flag_said(paths: NodePaths) -> None:
    (paths.kubelet / "config.yaml").write_text("cpuManagerPolicy: none\n")
    (paths.kubelet / "cpu_manager_state").write_text('{"policyName":"static"}')
    assert kubelet(paths, driver="dra.cpu")[1].status == "missing"
    assert kubelet(paths, driver="dra.net")[1].status == "ok"
    (paths.kubelet / "cpu_manager_state").write_text("damaged")
    assert kubelet(paths, driver="dra.cpu")[1].status == "ok"


# -- the mount of /


@pytest.mark.parametrize(
    ("mounts", "needed", "status"),
    [
        ("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n", True, "ok"),
        (
            "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n24 22 0:5 / /dev rw shared:2 - devtmpfs dev rw\n",
            True,
            "missing",
        ),
        ("22 1 8:1 / / rw,relatime master:1 - ext4 /dev/sda1 rw\n", True, "missing"),
        ("22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n", False, "ok"),
        (None, True, "unknown"),
    ],
)
def test_a_pod_that_mounts_for_the_host_needs_a_shared_root(
    paths: NodePaths, mounts: str | None, needed: bool, status: str
) -> None:
    if mounts is not None:
        (paths.root / "proc/1").mkdir(parents=True)
        (paths.root / "proc/1/mountinfo").write_text(mounts)
    (root,) = shared_root(paths, needed=needed)
    assert root.status == status
    assert bool(root.remedy) == (status != "ok")


def test_a_pod_without_the_hosts_root_cannot_see_its_mounts_nor_a_socket_that_it_does_not_need(
    paths: NodePaths,
) -> None:
    pod = NodePaths(paths.kubelet, paths.registry, paths.plugins, paths.cdi, in_pod=True)
    assert list(shared_root(pod, needed=True)) == []
    assert "NRI" not in by_subject(container_runtime(pod, "containerd://2.1.4", nri=False))


def test_in_a_stock_pod_nothing_is_unknown_but_what_a_person_finds_out_by_kubectl(tmp_path: Path) -> None:
    own = tmp_path / "plugins/dra.cpu"
    registry = tmp_path / "plugins_registry/dra.cpu"
    for directory in (own, registry, tmp_path / "cdi"):
        directory.mkdir(parents=True)
    (tmp_path / "cpu_manager_state").write_text('{"policyName":"none"}')
    pod = NodePaths(tmp_path, registry, own, tmp_path / "cdi", nri=tmp_path / "nri.sock", in_pod=True)
    findings = examine(pod, Server(objects("v1.37.1"), set(PERMISSIONS)), "here", driver="dra.cpu")
    unknown = [finding for finding in findings if finding.status == "unknown"]
    assert [finding.subject for finding in unknown] == [
        "CDI",
        "feature gates of the kubelet",
        "feature gates of the API server",
    ]
    assert unknown[0].remedy.startswith("`crictl info` on the node")
    assert all(finding.remedy.startswith("kubectl get --raw") for finding in unknown[1:])


# -- the API server


class Server:
    """An API server with these objects, where everything in `allowed` is allowed."""

    def __init__(self, objects: JSON, allowed: set[tuple[str, str, str]] | ApiError) -> None:
        self._objects, self._allowed = objects, allowed

    def get(self, path: str, params: object = None) -> JSON:
        if path not in self._objects:
            raise NotFoundError(f"{path} not found", status=404)
        answer = self._objects[path]
        if isinstance(answer, ApiError):
            raise answer
        return dict(answer)

    def create(self, path: str, body: JSON) -> JSON:
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        if isinstance(self._allowed, ApiError):
            raise self._allowed
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": (asked["group"], asked["resource"], asked["verb"]) in self._allowed}}


def objects(version: str = "v1.36.3", kubelet: str = "v1.36.3") -> JSON:
    info = {"kubeletVersion": kubelet, "containerRuntimeVersion": "containerd://2.1.4"}
    return {
        "/version": {"gitVersion": version},
        "/apis/resource.k8s.io/v1": {"kind": "APIResourceList"},
        "/api/v1/nodes/here": {"status": {"nodeInfo": info}},
    }


def examined(paths: NodePaths, server: Any) -> dict[str, Diagnosis]:
    return by_subject(iter(examine(paths, server, "here")))


def test_a_node_that_has_everything_lacks_nothing(paths: NodePaths) -> None:
    (paths.kubelet / "config.yaml").write_text("featureGates: {}\n")
    near = node_paths(paths.kubelet, paths.root / "var/run/cdi", paths.root)
    findings = examined(near, Server(objects("v1.37.1"), set(PERMISSIONS)))
    assert {finding.subject for finding in findings.values() if finding.status == "missing"} == set()
    assert findings["CDI"].found.startswith("by default on in containerd 2.1.4")
    assert findings["kubelet of here"].status == "ok"
    assert findings["permissions"].status == "ok"


def test_gates_that_a_release_has_off_are_named_as_not_visible(paths: NodePaths) -> None:
    gates = examined(paths, Server(objects("v1.35.4"), set(PERMISSIONS)))["feature gates of the API server"]
    assert gates.status == "unknown"
    assert "DRAConsumableCapacity" in gates.found
    assert "DRAPrioritizedList" not in gates.found


def test_an_old_server_and_an_old_kubelet_are_missing_what_dra_needs(paths: NodePaths) -> None:
    old = objects("v1.33.2", "v1.32.0")
    del old["/apis/resource.k8s.io/v1"]
    findings = examined(paths, Server(old, set(PERMISSIONS)))
    assert findings["API server"].status == "missing"
    assert "1.34" in findings["API server"].remedy
    assert findings["kubelet of here"].status == "missing"


def test_a_node_of_another_name_is_named(paths: NodePaths) -> None:
    there = {path: obj for path, obj in objects().items() if "nodes" not in path}
    node = examined(paths, Server(there, set(PERMISSIONS)))["Node here"]
    assert node.status == "missing"
    assert "NODE_NAME" in node.remedy


def test_a_server_out_of_reach_is_missing(paths: NodePaths) -> None:
    findings = examined(paths, Server({"/version": UnreachableError("no route")}, UnreachableError("no route")))
    assert findings["API server"].status == "missing"
    assert findings["permissions"].status == "unknown"


def test_without_credentials_the_api_server_is_unknown(paths: NodePaths) -> None:
    findings = examined(paths, None)
    assert findings["API server"].status == "unknown"
    assert "permissions" not in findings


def test_permissions_that_are_refused_are_all_named() -> None:
    allowed = {permission for permission in PERMISSIONS if permission[2] != "watch" and permission[1] != "nodes"}
    (finding,) = permissions(Server({}, allowed))
    assert finding.status == "missing"
    assert "get nodes, watch resourceslices" in finding.found
