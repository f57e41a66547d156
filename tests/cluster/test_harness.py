"""The parts of the cluster harness that need no cluster, no root and no network."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import tarfile
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.cluster.harness import HarnessError, cleanup, image, leftovers, mounts, network, pki, settings
from tests.cluster.harness.__main__ import flag, gates, main
from tests.cluster.harness.api import Api, answers
from tests.cluster.harness.build import BINARIES, go_mod, link_flags, missing
from tests.cluster.harness.cache import Cache, Version, _try_lock
from tests.cluster.harness.components import Component, Components
from tests.cluster.harness.daemons import Daemons
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.processes import (
    MARK,
    Process,
    kill,
    marked,
    parse_stat,
    spawn,
    strangers,
    terminate,
    wait_gone,
)
from tests.cluster.harness.progress import Progress, duration
from tests.cluster.harness.runtime import CNI_PLUGINS, PROGRAMS, Runtime, choose_mirror, is_static
from tests.cluster.harness.state import PORTS, State, boot_id, choose_ports

ID = "a1" * 32
OTHER_ID = "b2" * 32
SLEEP = ["/bin/sh", "-c", "exec sleep 600"]


def make_state(**changes) -> State:
    ports = dict(zip(PORTS, range(20001, 20001 + len(PORTS)), strict=True))
    fields = {"gates": {"AllAlpha": False, "AllBeta": True}, "ports": ports, "cache": "/c", "sysctls": {}}
    return State(**{"name": "unit", "version": "1.36.3", **fields, **changes})


@pytest.fixture
def layout(tmp_path) -> Layout:
    made = Layout.of("unit", tmp_path)
    made.logs.mkdir(parents=True)
    return made


@pytest.fixture
def started():
    processes: list[Process] = []
    yield processes
    kill(processes)


# -- versions and cache --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version", "staging"),
    [
        ("1.36.3", "1.36.3", "v0.36.3"),
        ("v1.37.1", "1.37.1", "v0.37.1"),
        (" 1.38.0-rc.1\n", "1.38.0-rc.1", "v0.38.0-rc.1"),
    ],
)
def test_version_is_read_with_or_without_v(text, version, staging):
    parsed = Version.parse(text)
    assert (str(parsed), parsed.staging) == (version, staging)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("1.36", "expected 1"), ("latest", "expected 1"), ("1.33.9", "since 1.34"), ("2.0.0", "expected 1")],
)
def test_version_that_cannot_be_is_refused(text, reason):
    with pytest.raises(HarnessError, match=reason):
        Version.parse(text)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("DRA_SDK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.from_env().root == tmp_path / "dra-sdk"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache.from_env().root == tmp_path / ".cache" / "dra-sdk"
    monkeypatch.setenv("DRA_SDK_CACHE", str(tmp_path / "own"))
    assert Cache.from_env().kube(Version.parse("1.36.3")) == tmp_path / "own" / "kube" / "1.36.3"


def test_cache_lock_keeps_a_second_builder_out_until_released(tmp_path):
    cache = Cache(tmp_path / "cache")
    with cache.lock(Progress(io.StringIO())), (cache.root / "lock").open("a+") as second:
        assert not _try_lock(second)
    with (cache.root / "lock").open("a+") as second:
        assert _try_lock(second)


def test_a_binary_counts_only_when_it_can_be_executed(tmp_path):
    for name in BINARIES:
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "kubelet").chmod(0o644)
    (tmp_path / ".kubectl.partial").touch(mode=0o755)
    (tmp_path / "kubectl").unlink()
    assert missing(tmp_path) == ["kubelet", "kubectl"]


# -- building ------------------------------------------------------------------------------------------------------

UPSTREAM = """\
// comment
module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

godebug (
\tx=1
)

require golang.org/x/net v0.1.0

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


def test_go_mod_replaces_each_sibling_by_its_release():
    lines = go_mod(Version.parse("1.37.1"), UPSTREAM).splitlines()
    assert lines[:4] == [
        "module kubebinaries",
        "go 1.26.0",
        "godebug default=go1.26",
        "require k8s.io/kubernetes v1.37.1",
    ]
    assert [line for line in lines if line.startswith("replace")] == [
        "replace k8s.io/api => k8s.io/api v0.37.1",
        "replace k8s.io/kubelet => k8s.io/kubelet v0.37.1",
    ]
    assert [line.rsplit("/", 1)[1] for line in lines if line.startswith("tool")] == list(BINARIES)


def test_link_flags_stamp_the_version_in_both_packages():
    flags = link_flags(Version.parse("1.37.1"))
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion=v1.37.1" in flags
        assert f"-X {package}.gitMinor=37" in flags


def test_mirror_is_the_archive_and_not_its_security_updates():
    known = ("mirror.example/debian-security/ Debian", "other.example/apt/ Other", "mirror.example/debian/ Debian")
    assert choose_mirror("".join(f"http://{line}\n" for line in known)) == "http://mirror.example/debian"
    assert choose_mirror("http://mirror.example/ubuntu/ Ubuntu\n") is None


def elf(*segment_kinds: int) -> bytes:
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    header[32:40] = (64).to_bytes(8, "little")
    header[54:56] = (56).to_bytes(2, "little")
    header[56:58] = len(segment_kinds).to_bytes(2, "little")
    return bytes(header) + b"".join(kind.to_bytes(4, "little") + bytes(52) for kind in segment_kinds)


def test_static_means_no_interpreter_segment():
    assert is_static(elf(1, 1, 7))
    assert not is_static(elf(6, 3, 1))
    assert not is_static(b"#!/bin/sh\n")


def test_runtime_names_what_is_missing(tmp_path):
    runtime = Runtime.under(tmp_path)
    for folder, names in ((runtime.bin, PROGRAMS), (runtime.cni, CNI_PLUGINS)):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch(mode=0o755)
    assert runtime.missing() == []
    (runtime.bin / "ctr").unlink()
    assert runtime.missing() == [runtime.bin / "ctr"]


# -- certificates --------------------------------------------------------------------------------------------------


def openssl(*args) -> str:
    return subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, text=True).stdout


def test_authority_issues_what_kubernetes_reads(tmp_path):
    authority = pki.Authority(tmp_path / "pki")
    authority.create()
    authority.issue("kubelet", "system:node:n", groups=["system:nodes"], hosts=["IP:127.0.0.1", "DNS:localhost"])
    certificate = authority.certificate("kubelet")
    for purpose in ("sslclient", "sslserver"):
        openssl("verify", "-CAfile", authority.certificate("ca"), "-purpose", purpose, certificate)
    assert openssl("x509", "-in", certificate, "-noout", "-subject") == "subject=O = system:nodes, CN = system:node:n\n"
    details = openssl("x509", "-in", certificate, "-noout", "-text")
    assert "CA:FALSE" in details
    assert "DNS:localhost" in details
    assert "IP Address:127.0.0.1" in details


def test_signing_key_comes_with_its_public_half(tmp_path):
    authority = pki.Authority(tmp_path)
    authority.signing_key("sa")
    assert openssl("pkey", "-in", authority.key("sa"), "-pubout") == (tmp_path / "sa.pub").read_text()


def test_openssl_failure_says_what_openssl_said(tmp_path):
    authority = pki.Authority(tmp_path / "nowhere")
    with pytest.raises(HarnessError, match=r"openssl req .* failed:\n.+"):
        authority.issue("x", "x")


def test_kubeconfig_is_yaml_with_one_context():
    text = pki.kubeconfig("https://198.19.0.1:443", Path("/p/ca.crt"), {"token": "t"})
    config = yaml.safe_load(text)
    assert config["clusters"][0]["cluster"] == {
        "server": "https://198.19.0.1:443",
        "certificate-authority": "/p/ca.crt",
    }
    assert config["users"][0]["user"] == {"token": "t"}
    assert config["contexts"][0]["name"] == config["current-context"]


# -- image ---------------------------------------------------------------------------------------------------------


def unpack(archive: bytes) -> dict[str, tarfile.TarInfo | bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() if entry.isfile() else entry for entry in tar.getmembers()}


def blob(files, descriptor) -> bytes:
    content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
    assert len(content) == descriptor["size"]
    assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"]
    return content


def test_image_has_two_names_for_one_busybox():
    files = unpack(image.image_tar(b"the busybox", "arm64"))
    descriptors = json.loads(files["index.json"])["manifests"]
    names = [entry["annotations"]["io.containerd.image.name"] for entry in descriptors]
    assert names == ["localhost/pause:1", "localhost/busybox:1"]
    assert len({entry["digest"] for entry in descriptors}) == 1
    manifest = json.loads(blob(files, descriptors[0]))
    config = json.loads(blob(files, manifest["config"]))
    assert config["architecture"] == "arm64"
    layer = blob(files, manifest["layers"][0])
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    inside = unpack(layer)
    assert inside["bin/busybox"] == b"the busybox"
    for applet in ("sh", "env", "cat", "sleep", "ls", "awk", "head", "wget", "nc"):
        assert inside[f"bin/{applet}"].linkname == "busybox"


def test_equal_busybox_gives_equal_image():
    assert image.image_tar(b"x", "amd64") == image.image_tar(b"x", "amd64")


# -- processes -----------------------------------------------------------------------------------------------------


def test_stat_of_a_program_with_brackets_in_its_name():
    assert parse_stat("42 (a) S (b) R 1 42") == ["R", "1", "42"]


def test_spawned_process_is_found_by_its_mark_and_logged(tmp_path, started):
    log = tmp_path / "log"
    process = spawn(
        ["/bin/sh", "-c", "echo out; echo err >&2; sleep 600"], log, {MARK: "unit-spawn", "PATH": "/bin:/usr/bin"}
    )
    started.append(process)
    deadline = time.monotonic() + 10
    while log.exists() and log.read_text().count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert log.read_text() == "out\nerr\n"
    found = marked("unit-spawn")
    assert process in found
    started.extend(found)
    assert os.getsid(process.pid) == process.pid
    assert marked("unit-spaw") == []


def test_stranger_with_a_reused_id_is_neither_alive_nor_killed(tmp_path, started):
    process = spawn(SLEEP, tmp_path / "log", {"PATH": "/bin:/usr/bin"})
    started.append(process)
    earlier = Process(process.pid, process.start - 1)
    assert not earlier.alive()
    earlier.send(signal.SIGKILL)
    assert wait_gone([process], 0.2) == [process]


def test_terminate_kills_what_ignores_it(tmp_path, started):
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    process = spawn(["/bin/sh", "-c", script], tmp_path / "log", {"PATH": "/bin:/usr/bin"})
    started.append(process)
    while "ready" not in (tmp_path / "log").read_text():
        time.sleep(0.02)
    terminate(process, 0.1)
    assert not process.alive()


def test_ended_child_is_not_alive_and_leaves_no_zombie(tmp_path):
    process = spawn(["/bin/true"], tmp_path / "log", {})
    assert wait_gone([process], 10) == []
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)


def test_stranger_is_a_process_without_mark(tmp_path, started):
    name = f"st{os.getpid()}"
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    ours = spawn([str(program), "600"], tmp_path / "log", {MARK: "unit"})
    theirs = spawn([str(program), "600"], tmp_path / "log", {})
    started += [ours, theirs]
    assert strangers(name) == [theirs.pid]


# -- layout and state ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "-a", "a-", "Upper", "a/b", "..", "x" * 17])
def test_cluster_name_that_is_no_short_label_is_refused(name):
    with pytest.raises(HarnessError, match="at most 16"):
        Layout.of(name)


def test_sockets_of_drivers_with_common_names_fit_into_107_bytes():
    longest = Layout.of("x" * 16).kubelet_dir / "plugins_registry" / f"{'driver' * 7}-reg.sock"
    assert len(str(longest)) <= 107


def test_clusters_have_addresses_of_their_own():
    layouts = [Layout.of(name) for name in ("default", "test", "second")]
    for attribute in (
        "pod_subnet",
        "pod_gateway",
        "service_subnet",
        "service_address",
        "node_address",
        "node_name",
        "root",
    ):
        assert len({getattr(layout, attribute) for layout in layouts}) == len(layouts)
    assert layouts[0].service_address == "198.19.0.1"


def test_tail_leaves_out_flags_and_tells_of_an_absent_log(layout):
    assert layout.tail("etcd") == "(no log)"
    layout.log("etcd").write_text('I1 flags.go:64] FLAG: --a="b"\none\ntwo\nthree\n')
    assert layout.tail("etcd", 2) == "two\nthree"
    assert layout.tail("etcd") == "one\ntwo\nthree"


def test_state_comes_back_as_it_was_saved(layout):
    state = make_state(sysctls={"vm/x": "1"}, ready=True, processes={"etcd": Process(7, 8)})
    state.save(layout.state_file)
    loaded = State.load(layout.state_file)
    assert loaded is not None
    assert loaded.boot == boot_id()
    loaded.boot = ""
    assert loaded == state


def test_state_of_an_earlier_boot_or_none_is_none(layout):
    assert State.load(layout.state_file) is None
    make_state().save(layout.state_file)
    layout.state_file.write_text(layout.state_file.read_text().replace(boot_id(), "another-boot"))
    assert State.load(layout.state_file) is None


def test_broken_state_is_an_error_that_names_the_file(layout):
    layout.state_file.write_text("{")
    with pytest.raises(HarnessError, match=r"state\.json is not JSON"):
        State.load(layout.state_file)


def test_ports_are_free_and_differ():
    ports = choose_ports("127.0.0.1")
    assert sorted(ports) == sorted(PORTS)
    assert len(set(ports.values())) == len(PORTS)


def test_port_somebody_listens_on_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not network.is_free("127.0.0.1", server.getsockname()[1])


# -- configuration -------------------------------------------------------------------------------------------------


def strings(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_containerd_keeps_its_files_in_the_cluster_folder(layout):
    config = tomllib.loads(settings.containerd_config(layout, Runtime.under(Path("/cache")), Path("/usr/sbin/runc")))
    plugins = config["plugins"]
    cri = plugins["io.containerd.cri.v1.runtime"]
    assert cri["cdi_spec_dirs"] == [str(layout.cdi_dir)]
    assert cri["enable_cdi"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/usr/sbin/runc"
    assert plugins["io.containerd.nri.v1.nri"]["socket_path"] == str(layout.nri_socket)
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == image.PAUSE
    outside = [text for text in strings(config) if text.startswith("/") and not text.startswith(str(layout.root))]
    assert outside == ["/cache/usr/lib/cni", "/usr/sbin/runc"]


def test_kubelet_gets_gates_ports_and_nothing_outside_the_cluster_folder(layout):
    config = yaml.safe_load(settings.kubelet_config(layout, make_state(gates={"AllBeta": True, "X": False})))
    assert config["featureGates"] == {"AllBeta": True, "X": False}
    assert config["port"] == make_state().ports["kubelet"]
    assert config["address"] == layout.node_address
    assert (config["failCgroupV1"], config["cgroupsPerQOS"], config["enforceNodeAllocatable"]) == (False, False, [])
    assert [text for text in strings(config) if text.startswith("/") and not text.startswith(str(layout.root))] == []


def test_pod_network_leases_its_subnet_in_the_cluster_folder(layout):
    config = json.loads(settings.network_config(layout))
    ipam = config["plugins"][0]["ipam"]
    assert config["name"] == "dra-sdk-unit"
    assert ipam["ranges"] == [[{"subnet": layout.pod_subnet}]]
    assert ipam["dataDir"] == str(layout.cni_data)


def components(layout: Layout, **changes) -> Components:
    api = Api(pki.Authority(layout.pki), "https://127.0.0.1:1")
    return Components(layout, make_state(**changes), Path("/kube"), Runtime.under(Path("/cache")), api)


def test_each_kubernetes_component_gets_the_gates(layout):
    parts = components(layout, gates={"AllBeta": True, "AllAlpha": False, "X": True}).all()
    assert list(parts) == ["etcd", "containerd", "apiserver", "controller-manager", "scheduler", "kubelet"]
    for name in ("apiserver", "controller-manager", "scheduler"):
        assert "--feature-gates=AllAlpha=false,AllBeta=true,X=true" in parts[name].command


@pytest.mark.parametrize(("alpha", "served"), [(True, "api/all=true"), (False, "api/ga=true,api/beta=true")])
def test_alpha_apis_are_served_with_alpha_gates_only(layout, alpha, served):
    parts = components(layout, gates={"AllAlpha": alpha, "AllBeta": True}).all()
    assert f"--runtime-config={served}" in parts["apiserver"].command


def test_components_see_no_proxy_and_the_runtime_first(layout, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    environment = components(layout).environment()
    assert sorted(environment) == ["HOME", "PATH", "TMPDIR"]
    assert environment["PATH"].startswith("/cache/usr/bin:")


def test_probe_of_a_closed_port_is_a_no():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not answers(f"http://127.0.0.1:{port}/healthz")


# -- daemons -------------------------------------------------------------------------------------------------------


@pytest.fixture
def daemons(layout):
    parts = {name: Component(name, SLEEP, lambda: True) for name in ("etcd", "apiserver", "scheduler", "kubelet")}
    parts["broken"] = Component("broken", ["/bin/sh", "-c", "echo no such flag; exit 2"], lambda: False)
    parts["slow"] = Component("slow", SLEEP, lambda: False)
    state = make_state()
    made = Daemons(layout, state, parts, {"PATH": "/bin:/usr/bin", MARK: "unit-daemons"}, Progress(io.StringIO()))
    yield made
    kill(state.processes.values())


def recorded(layout: Layout) -> set[str]:
    state = State.load(layout.state_file)
    assert state is not None
    return set(state.processes)


def test_daemon_is_recorded_while_it_should_run(layout, daemons):
    daemons.start("etcd")
    first = daemons.pid("etcd")
    daemons.start("etcd")
    assert daemons.pid("etcd") == first
    assert recorded(layout) == {"etcd"}
    daemons.stop("etcd")
    assert recorded(layout) == set()
    assert not daemons.states()["etcd"]
    with pytest.raises(HarnessError, match="etcd does not run"):
        daemons.pid("etcd")


def test_component_that_dies_is_told_with_its_log(daemons):
    with pytest.raises(HarnessError, match=r"(?s)broken \(process \d+\) died; its log ends:\nno such flag"):
        daemons.start("broken")


def test_component_that_does_not_serve_in_time_is_told(daemons):
    with pytest.raises(HarnessError, match=r"(?s)slow serves: not within 0 s.*\(empty log\)"):
        daemons.start("slow", timeout=0.1)


def test_unknown_component_is_told_with_those_there_are(daemons):
    with pytest.raises(HarnessError, match=r"'etdc': expected one of etcd, apiserver"):
        daemons.start("etdc")


def test_waiting_ends_when_a_component_dies_that_should_run(daemons):
    daemons.start("kubelet")
    Process.of(daemons.pid("kubelet")).send(signal.SIGKILL)
    with pytest.raises(HarnessError, match=r"kubelet .* died"):
        daemons.wait_until(lambda: False, "the moon", 30)


def test_scheduler_may_die_while_the_api_server_is_away_and_returns_with_it(daemons):
    for name in ("etcd", "apiserver", "scheduler"):
        daemons.start(name)
    scheduler = Process.of(daemons.pid("scheduler"))
    daemons.kill("apiserver")
    kill([scheduler])
    with pytest.raises(HarnessError, match="the moon: not within"):
        daemons.wait_until(lambda: False, "the moon", 0.2)
    daemons.start("apiserver")
    assert daemons.states()["scheduler"]
    assert daemons.pid("scheduler") != scheduler.pid


def test_waiting_returns_what_the_check_found(daemons):
    answers_in_turn = iter([None, [], "found"])
    assert daemons.wait_until(lambda: next(answers_in_turn), "it", 30) == "found"


# -- taking away ---------------------------------------------------------------------------------------------------

MOUNTINFO = r"""
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw
30 20 0:5 / /run/c rw - tmpfs tmpfs rw,size=1k
31 30 0:6 / /run/c/with\040blank rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:7 / /run/c/a rw shared:2 master:1 - overlay overlay rw
33 32 0:8 / /run/c/a/b rw - cgroup2 cgroup2 rw
34 20 0:9 / /run/cc rw - tmpfs tmpfs rw
""".strip()


def test_mountinfo_is_read_with_escapes_and_optional_fields():
    parsed = mounts.parse(MOUNTINFO)
    assert parsed[2] == mounts.Mount(Path("/run/c/with blank"), "cgroup", ("rw", "cpu", "cpuacct"))
    assert [mount.kind for mount in parsed] == ["ext4", "tmpfs", "cgroup", "overlay", "cgroup2", "tmpfs"]


def test_mounts_below_a_folder_come_innermost_first_and_without_its_neighbours():
    found = mounts.below(Path("/run/c"), mounts.parse(MOUNTINFO))
    assert [str(path) for path in found] == ["/run/c/a/b", "/run/c/a", "/run/c/with blank", "/run/c"]


def test_cgroups_of_our_containers_go_and_others_stay(tmp_path):
    for hierarchy in ("cpu", "memory"):
        (tmp_path / hierarchy / "k8s.io" / ID / "inner" / "most").mkdir(parents=True)
    (tmp_path / "cpu" / "k8s.io" / OTHER_ID).mkdir()
    roots = [tmp_path / "cpu", tmp_path / "memory"]
    leftovers.remove_cgroups(leftovers.cgroups_of([ID], roots), roots)
    assert [path.name for path in (tmp_path / "cpu" / "k8s.io").iterdir()] == [OTHER_ID]
    assert list((tmp_path / "memory").iterdir()) == []


def test_processes_of_a_cgroup_are_those_that_still_exist(tmp_path):
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n{2**22 + 1}\n")
    found = leftovers.processes_in([tmp_path, tmp_path / "gone"])
    assert [process.pid for process in found] == [os.getpid()]


def test_shim_sockets_are_those_containerd_noted(tmp_path):
    tasks, sockets = tmp_path / "tasks", tmp_path / "containerd" / "s"
    sockets.mkdir(parents=True)
    noted = {"bootstrap.json": '{"version":3,"address":"unix://%s"}', "address": "unix://%s\n"}
    for number, (name, text) in enumerate(noted.items()):
        (sockets / str(number)).touch()
        (tasks / str(number)).mkdir(parents=True)
        (tasks / str(number) / name).write_text(text % (sockets / str(number)))
    (tasks / "no-notes").mkdir()
    (sockets / "of-another").touch()
    assert sorted(leftovers.container_ids(tasks)) == ["0", "1", "no-notes"]
    leftovers.remove_shim_sockets(leftovers.shim_sockets(tasks), sockets)
    assert [path.name for path in sockets.iterdir()] == ["of-another"]
    (sockets / "of-another").unlink()
    leftovers.remove_shim_sockets([], sockets)
    assert not sockets.parent.exists()


@pytest.mark.parametrize("text", ["", "vsock://1", "{broken", "{}"])
def test_shim_address_of_another_kind_is_none(text):
    assert leftovers.shim_address(text) is None


def test_network_results_of_other_networks_stay(tmp_path):
    results = tmp_path / "cni" / "results"
    results.mkdir(parents=True)
    ours = [f"dra-sdk-a-{ID}-eth0", f"cni-loopback-{ID}-lo", f"cni-loopback-{'c3' * 32}-lo"]
    theirs = [f"dra-sdk-a-b-{OTHER_ID}-eth0", f"cni-loopback-{OTHER_ID}-lo", "podman-x-eth0"]
    for name in ours + theirs:
        (results / name).touch()
    leftovers.remove_network_results("dra-sdk-a", ["c3" * 32], results)
    assert sorted(path.name for path in results.iterdir()) == sorted(theirs)
    for name in theirs:
        (results / name).unlink()
    leftovers.remove_network_results("dra-sdk-a", [], results)
    assert not results.parent.exists()


def test_log_links_of_other_clusters_stay(tmp_path):
    links = tmp_path / "containers"
    links.mkdir()
    (links / "ours.log").symlink_to(tmp_path / "a" / "pods" / "p" / "0.log")
    (links / "theirs.log").symlink_to(tmp_path / "a-b" / "pods" / "p" / "0.log")
    leftovers.remove_log_links(tmp_path / "a" / "pods", links)
    assert [path.name for path in links.iterdir()] == ["theirs.log"]


def test_device_plugin_folder_goes_unless_a_plugin_is_in_it(tmp_path):
    folder = tmp_path / "kubelet" / "device-plugins"
    folder.mkdir(parents=True)
    for name in ("kubelet.sock", "kubelet_internal_checkpoint", "gpu.sock"):
        (folder / name).touch()
    leftovers.remove_device_plugins(folder)
    assert [path.name for path in folder.iterdir()] == ["gpu.sock"]
    (folder / "gpu.sock").unlink()
    leftovers.remove_device_plugins(folder)
    assert list(tmp_path.iterdir()) == []


def test_sysctls_are_put_back(tmp_path):
    for name in leftovers.SYSCTLS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    before = leftovers.read_sysctls(tmp_path)
    (tmp_path / "kernel/panic").write_text("10\n")
    leftovers.restore_sysctls(before, tmp_path)
    assert leftovers.read_sysctls(tmp_path) == before
    assert set(before) == set(leftovers.SYSCTLS)


def test_interfaces_are_found_by_their_address():
    listing = [
        {"ifname": "lo", "addr_info": [{"local": "127.0.0.1"}]},
        {"ifname": "veth1", "addr_info": [{"local": "10.0.0.1"}]},
    ]
    assert network.interfaces_with("10.0.0.1", listing) == ["veth1"]
    assert network.interfaces_with("10.0.0.2", listing) == []


def test_second_command_on_a_cluster_is_refused_and_the_lock_goes_with_the_cluster(tmp_path):
    layout = Layout.of("unit", tmp_path / "run")
    with cleanup.lock(layout), pytest.raises(HarnessError, match="another command"), cleanup.lock(layout):
        pass
    assert list(tmp_path.iterdir()) == []
    with cleanup.lock(layout):
        layout.root.mkdir()
    assert (tmp_path / "run" / ".unit.lock").exists()
    assert cleanup.others(layout) == []


def test_original_sysctls_are_those_the_first_cluster_saw(tmp_path):
    first, second = Layout.of("first", tmp_path), Layout.of("second", tmp_path)
    first.root.mkdir()
    make_state(sysctls={"kernel/panic": "77"}).save(first.state_file)
    assert cleanup.original_sysctls(second) == {"kernel/panic": "77"}
    assert cleanup.others(second) == [first.root]


# -- what people see -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (42.4, "42 s"), (60, "1 min 00 s"), (185, "3 min 05 s"), (3725, "1 h 02 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_progress_into_a_file_is_a_line_now_and_then():
    stream = io.StringIO()
    with Progress(stream, interval=0.01).step("building") as step:
        step.detail = "7 packages"
        while stream.getvalue().count("\n") < 2:
            time.sleep(0.01)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("...... building: ")
    assert lines[0].endswith("7 packages")
    assert lines[-1].startswith("done   building: ")
    assert "\r" not in stream.getvalue()


def test_progress_on_a_terminal_rewrites_one_line():
    stream = io.StringIO()
    stream.isatty = lambda: True
    with contextlib.suppress(ValueError), Progress(stream, interval=0.01).step("building"):
        while "......" not in stream.getvalue():
            time.sleep(0.01)
        raise ValueError
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().rsplit("\r\x1b[K", 1)[1].startswith("failed building: ")


def test_flags_of_the_environment(monkeypatch):
    monkeypatch.delenv("ALPHA", raising=False)
    assert flag("ALPHA") is False
    for value, expected in (("1", True), ("True", True), ("0", False), ("", False)):
        monkeypatch.setenv("ALPHA", value)
        assert flag("ALPHA") is expected
    monkeypatch.setenv("ALPHA", "perhaps")
    with pytest.raises(HarnessError, match="ALPHA=perhaps"):
        flag("ALPHA")


def test_gates_of_the_environment():
    assert gates("") == {}
    assert gates("A=true, B=false") == {"A": True, "B": False}
    with pytest.raises(HarnessError, match="'A=maybe'"):
        gates("A=maybe")


def test_status_of_a_cluster_that_is_not_there(capsys):
    assert main(["status", "--name", "never-made"]) == 1
    assert capsys.readouterr().out == "cluster 'never-made' is down\n"


def test_error_is_one_message_and_a_failure(capsys):
    assert main(["status", "--name", "Not A Name"]) == 1
    assert capsys.readouterr().err.startswith("error: cluster name 'Not A Name'")
