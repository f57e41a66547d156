"""Plugins of CNI after an interface: what they are asked and answer, what is undone, and plugins that others wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import CniConfig, InterfaceConfig, RouteConfig
from dra_driver_nic.prepare.attachment import Attachment, HostState, PodState
from dra_driver_nic.prepare.cni import Chain, CniCall
from dra_driver_nic.testing import PrivateNetworks, run_sandbox, sandbox, stop_sandbox, wait_for_state

from dra_sdk import DeviceStatus, PermanentError, RetriableError
from dra_sdk.hardware.node_access import NodeAccess, SystemEffects
from dra_sdk.testing import DriverHarness, FakeNode, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BOTH = request("nics", count=2)
CHAINED = NicConfig(
    interface=InterfaceConfig(name="net1", addresses=("10.1.1.5/24", "fd07::5/64")),
    routes=(RouteConfig(destination="10.2.0.0/16", gateway="10.1.1.1"),),
    cni=CniConfig(conflist="chained"),
)
PLUGIN = f"""#!{sys.executable} -IS
import json, os, signal, sys
config = json.load(sys.stdin)
command = os.environ["CNI_COMMAND"]
with open(config["log"], "a") as log:
    variables = {{key: value for key, value in os.environ.items() if key.startswith("CNI_")}}
    has_namespace = bool(variables["CNI_NETNS"]) and os.path.exists(variables["CNI_NETNS"])
    print(json.dumps({{**variables, "config": config, "hasNamespace": has_namespace}}), file=log)
if config.get("kill") == command:
    os.kill(os.getppid(), signal.SIGKILL)
if config.get("hang") == command:
    signal.pause()
if config.get("fail") == command:
    print(json.dumps({{"code": 11, "msg": "no more tags", "details": "of 7"}}))
    sys.exit(1)
if command == "ADD":
    print(json.dumps({{**config["prevResult"], "dns": {{"domain": config["mark"]}}}}))
"""


class Cni:
    """The CNI files of a node: a plugin `noting`, and the network `chained` that calls it twice."""

    def __init__(self, node: FakeNode, directory: Path) -> None:
        self._node, self._log = node, directory / "log"
        self.path = "/etc/cni/net.d/50-chained.conflist"
        node.file("/opt/cni/bin/noting", PLUGIN)
        node.path("/opt/cni/bin/noting").chmod(0o755)
        node.file("/etc/cni/net.d/10-broken.conflist", "{")
        self.write()

    def write(self, *, version: str = "1.0.0", **second: Any) -> None:
        """Write the network; fields of its second plugin."""
        plugins = [{"type": "noting", "mark": mark, "log": str(self._log)} for mark in ("a", "b")]
        plugins[1] |= second
        self._node.file(self.path, json.dumps({"name": "chained", "cniVersion": version, "plugins": plugins}))

    def calls(self) -> list[dict[str, Any]]:
        """Return what the plugins were asked, in order."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    def commands(self) -> list[str]:
        """Return command and mark of each call."""
        return [f"{call['CNI_COMMAND']} {call['config']['mark']}" for call in self.calls()]


@pytest.fixture
def cni(dra_node: FakeNode, tmp_path: Path) -> Cni:
    return Cni(dra_node, tmp_path)


@pytest.fixture
def nic_driver(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks) -> DriverHarness:
    """With time for plugins that start slowly on a machine that is busy."""
    return make_driver(dra_node, dra_driver, networks, sandbox_seconds=60.0)


def make_driver(node: FakeNode, dra_driver: Any, networks: PrivateNetworks, **named: Any) -> DriverHarness:
    settings = NicSettings(software=("veth",), protect=("wire*",), claim_fields=("cni",))
    made = partial(NicDriver, effects=node.effects, open_namespace=networks.open, **named)
    harness: DriverHarness = dra_driver(made, settings=settings)
    return harness


EVERYTHING = ["ADD a", "ADD b", "CHECK a", "CHECK b", "DEL b", "DEL a"]


def test_plugins_follow_the_interface_and_are_undone_before_it_returns(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni
) -> None:
    before = networks.node.state()
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CHAINED))
    assert cni.commands() == []
    made = run_sandbox(nic_driver, "pod1")
    assert cni.commands() == EVERYTHING[:4]
    first, second = cni.calls()[:2]
    assert first["hasNamespace"]
    assert (first["CNI_CONTAINERID"], first["CNI_IFNAME"]) == ("sandbox-pod1", "net1")
    assert "K8S_POD_NAMESPACE=default;K8S_POD_NAME=name-uid-1;" in first["CNI_ARGS"]
    previous = first["config"]["prevResult"]
    assert [ip["address"] for ip in previous["ips"]] == ["10.1.1.5/24", "fd07::5/64"]
    assert previous["routes"] == [{"dst": "10.2.0.0/16", "gw": "10.1.1.1"}]
    assert previous["interfaces"][0]["sandbox"] == first["CNI_NETNS"]
    assert second["config"]["prevResult"]["dns"] == {"domain": "a"}
    assert (first["config"]["name"], first["config"]["cniVersion"]) == ("chained", "1.0.0")
    cni.write(mark="changed since")
    stop_sandbox(nic_driver, made)
    assert cni.commands() == EVERYTHING, "the network of the claim is that of before"
    last = cni.calls()[-1]
    assert last["config"]["prevResult"]["dns"] == {"domain": "b"}
    assert last["config"]["prevResult"]["interfaces"][0]["sandbox"] == last["CNI_NETNS"]
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    assert cni.commands() == EVERYTHING
    wait_for_state(networks.node, before)
    nic_driver.assert_clean()


def run_and_report(driver: DriverHarness) -> dict[str, Any]:
    """Start the sandbox `pod1`; what the claim's status gets of the driver's own data."""
    reported: list[DeviceStatus] = []
    made = replace(sandbox(driver, "pod1"), report=lambda _claim, _device, status: reported.append(status))
    driver.plugin.dra_run_pod_sandbox(made, driver.node.node)
    (status,) = reported
    return dict(status.data)


def test_the_result_of_the_plugins_is_in_the_status_of_the_claim(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni
) -> None:
    networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE, config=CHAINED))
    data = run_and_report(nic_driver)
    assert data["cni"]["dns"] == {"domain": "b"}
    assert data["cni"]["interfaces"] == [{**data["cni"]["interfaces"][0], "name": "net1", "sandbox": "/run/netns/pod1"}]
    assert "cniCheck" not in data


def test_a_check_that_fails_is_in_the_status(nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni) -> None:
    cni.write(fail="CHECK")
    pod = networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE, config=CHAINED))
    assert "CHECK of CNI plugin noting" in run_and_report(nic_driver)["cniCheck"]
    assert "net1" in pod.names()


def test_a_plugin_that_fails_returns_all_interfaces_of_the_pod(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni
) -> None:
    cni.write(fail="ADD")
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(BOTH, config=NicConfig(cni=CniConfig(conflist="chained"))))
    message = r"ADD of CNI plugin noting of network chained for device nic0 .*failed: no more tags of 7"
    with pytest.raises(RetriableError, match=message):
        run_sandbox(nic_driver, "pod1")
    assert cni.commands()[-2:] == ["DEL b", "DEL a"]
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}
    nic_driver.unprepare(prepared)
    nic_driver.assert_clean()


def test_a_plugin_that_does_not_end_is_stopped_within_the_time_of_a_sandbox(
    dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks, cni: Cni
) -> None:
    nic_driver = make_driver(dra_node, dra_driver, networks, sandbox_seconds=0.5)
    cni.write(hang="ADD")
    before = networks.node.state()
    networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE, config=CHAINED))
    with pytest.raises(RetriableError, match=r"ADD of CNI plugin noting .* did not end within 0\.\d s"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)


def test_a_plugin_that_fails_to_undo_is_called_again_and_keeps_neither_interface_nor_claim(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni, caplog: pytest.LogCaptureFixture
) -> None:
    cni.write(fail="DEL")
    before = networks.node.state()
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CHAINED))
    made = run_sandbox(nic_driver, "pod1")
    stop_sandbox(nic_driver, made)
    wait_for_state(networks.node, before)
    failures = "no harm to the next claim: CNI network of device nic0 (interface nic0): DEL of CNI plugin noting"
    assert caplog.text.count(failures) == 1
    nic_driver.unprepare(prepared)
    assert caplog.text.count(failures) == 2
    assert {call["CNI_NETNS"] != "" for call in cni.calls() if call["CNI_COMMAND"] == "DEL"} == {True}
    nic_driver.assert_clean()


def test_plugins_are_undone_without_a_namespace_when_the_pods_has_ended(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni
) -> None:
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CHAINED))
    run_sandbox(nic_driver, "pod1")
    networks.end_pod("pod1")
    nic_driver.unprepare(prepared)
    assert cni.commands() == EVERYTHING
    assert cni.calls()[-1]["CNI_NETNS"] == ""


@pytest.mark.parametrize("command", ["ADD", "CHECK"])
def test_a_kill_while_a_plugin_works_is_repaired(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni, command: str
) -> None:
    cni.write(kill=command)
    before = networks.node.state()
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=CHAINED))
    child = os.fork()
    if not child:
        try:
            run_sandbox(nic_driver, "pod1")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) < 0
    nic_driver.restart()
    nic_driver.unprepare(prepared)
    assert cni.commands()[-2:] == ["DEL b", "DEL a"]
    wait_for_state(networks.node, before)
    nic_driver.assert_clean()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "other"}, r"chained: no \*\.conflist in /etc/cni/net\.d of the node has this name; there is other"),
        ({"cniVersion": "0.2.0"}, r"cniVersion must be one of 0\.4\.0, 1\.0\.0, 1\.1\.0, is '0\.2\.0'"),
        ({"plugins": []}, "plugins must be a list of at least one plugin"),
        ({"plugins": [{"type": "../sh"}]}, r"plugins\[0\]\.type must be the name of a program"),
        ({"plugins": [{"type": "absent"}]}, r"plugins\[0\]\.type: there is no program absent in /opt/cni/bin of"),
    ],
)
def test_a_network_that_cannot_be_used_is_refused_when_the_claim_is_prepared(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni, change: dict[str, Any], message: str
) -> None:
    before = networks.node.state()
    content = json.loads(nic_driver.node.path(cni.path).read_text())
    nic_driver.node.file(cni.path, json.dumps({**content, **change}))
    asked = claim(ONE, config=CHAINED)
    with pytest.raises(
        PermanentError, match=rf"device nic0 \(interface nic0\): cni\.conflist chained: {message}|{message}"
    ):
        nic_driver.prepare(asked)
    assert networks.node.state() == before


def test_a_network_of_an_older_version_is_called_with_its_results(
    nic_driver: DriverHarness, networks: PrivateNetworks, cni: Cni
) -> None:
    cni.write(version="0.4.0")
    networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE, config=CHAINED))
    run_sandbox(nic_driver, "pod1")
    ips = cni.calls()[0]["config"]["prevResult"]["ips"]
    assert [ip["version"] for ip in ips] == ["4", "6"]


def plugins_of_others() -> Path | None:
    """Find a directory with the plugins of the CNI project: installed, or in the cache of the tests' clusters."""
    cache = Path(os.environ.get("DRA_SDK_CACHE", Path.home() / ".cache/dra-sdk"))
    program = shutil.which("tuning", path=f"/opt/cni/bin:/usr/lib/cni:{cache / 'runtime/usr/lib/cni'}")
    return Path(program).parent if program else None


def test_plugins_of_the_cni_project_configure_the_interface(
    dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks
) -> None:
    directory = plugins_of_others()
    if directory is None:
        pytest.skip("the plugins of the CNI project are neither installed nor in the cache of `make cluster-build`")
    for name in ("tuning", "sbr"):
        dra_node.path("/opt/cni/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(directory / name, dra_node.path("/opt/cni/bin") / name)
    plugins: list[dict[str, Any]] = [
        {"type": "tuning", "sysctl": {"net.ipv4.conf.net1.arp_filter": "1"}, "dataDir": str(dra_node.root)},
        {"type": "sbr"},
    ]
    content = {"name": "chained", "cniVersion": "1.0.0", "plugins": plugins}
    dra_node.file("/etc/cni/net.d/chained.conflist", json.dumps(content))
    driver = make_driver(dra_node, dra_driver, networks, sandbox_seconds=60.0)
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = driver.prepare(claim(ONE, config=CHAINED))
    made = run_sandbox(driver, "pod1")
    assert pod.state()["sysctls"]["/proc/sys/net/ipv4/conf/net1/arp_filter"] == "1\n"
    assert "from 10.1.1.5 lookup 100" in pod.ip("rule")
    stop_sandbox(driver, made)
    driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    driver.assert_clean()


@pytest.fixture
def host_root(tmp_path: Path) -> Iterator[Path]:
    """Make the root of another host: it has its own procfs, a plugin, and the libraries of that plugin."""
    directory = plugins_of_others()
    if os.geteuid() or directory is None or shutil.which("ldd") is None:
        pytest.skip("this needs root, ldd and the plugins of the CNI project")
    root = tmp_path / "host"
    plugin = directory / "tuning"
    listed = subprocess.run(["ldd", str(plugin)], capture_output=True, text=True, check=False).stdout
    for source, place in [(library, library) for library in re.findall(r"/\S+", listed)] + [
        (str(plugin), "/opt/cni/bin/tuning")
    ]:
        copy = root / place.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    (root / "proc").mkdir()
    (root / "tmp").mkdir()
    subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
    yield root
    subprocess.run(["umount", str(root / "proc")], check=True)


def test_plugins_run_in_the_root_of_the_host(networks: PrivateNetworks, host_root: Path) -> None:
    pod = networks.add_pod("pod1")
    pod.ip("link add net1 type veth peer name other")
    plugin = {"type": "tuning", "sysctl": {"net.ipv4.conf.net1.arp_filter": "1"}, "dataDir": "/tmp"}
    attachment = Attachment(
        device="nic0",
        tag="tag",
        host=HostState(index=2, name="nic0", mac="02:00:00:00:00:01", mtu=1500, up=True),
        pod=PodState(name="net1"),
        cni={"name": "chained", "cniVersion": "1.0.0", "plugins": [plugin]},
    )
    access = NodeAccess(host_root, SystemEffects())
    call = CniCall(container="sandbox-1", pod_namespace="default", pod_name="pod", pod_uid="uid")
    with closing(networks.open(None)) as node, closing(pod.open()) as namespace:
        chain = Chain(access, ("/opt/cni/bin",), node, attachment, call, "/run/netns/pod1")
        result = chain.add(namespace)
        assert result["interfaces"][0]["sandbox"] == "/run/netns/pod1"
        assert chain.check(namespace, result) == ""
        assert pod.state()["sysctls"]["/proc/sys/net/ipv4/conf/net1/arp_filter"] == "1\n"
        chain.delete(namespace, result)
