"""What a cluster leaves on the machine is removed, and what belongs to others stays."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.harness import leftovers

ID = "a1" * 32
OTHER_ID = "b2" * 32
MOUNTINFO = r"""
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda rw
30 20 0:5 / /run/c rw - tmpfs tmpfs rw,size=1k
31 30 0:6 / /run/c/with\040blank rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:7 / /run/c/a rw shared:2 master:1 - overlay overlay rw
33 32 0:8 / /run/c/a/b rw - cgroup2 cgroup2 rw
34 20 0:9 / /run/cc rw - tmpfs tmpfs rw
""".strip()


def test_cgroups_of_the_containers_are_removed_and_others_stay(tmp_path):
    for hierarchy in ("cpu", "memory"):
        (tmp_path / hierarchy / "k8s.io" / ID / "inner" / "most").mkdir(parents=True)
    (tmp_path / "cpu" / "k8s.io" / OTHER_ID).mkdir()
    roots = [tmp_path / "cpu", tmp_path / "memory"]
    leftovers.remove_cgroups(leftovers.cgroups_of([ID], roots), roots)
    assert [path.name for path in (tmp_path / "cpu" / "k8s.io").iterdir()] == [OTHER_ID]
    assert list((tmp_path / "memory").iterdir()) == []


def test_shim_sockets_are_those_that_containerd_recorded(tmp_path):
    tasks, sockets = tmp_path / "tasks", tmp_path / "containerd" / "s"
    sockets.mkdir(parents=True)
    recorded = {"bootstrap.json": '{"version":3,"address":"unix://%s"}', "address": "unix://%s\n"}
    for number, (name, text) in enumerate(recorded.items()):
        (sockets / str(number)).touch()
        (tasks / str(number)).mkdir(parents=True)
        (tasks / str(number) / name).write_text(text % (sockets / str(number)))
    (tasks / "no-record").mkdir()
    (sockets / "of-another").touch()
    assert sorted(leftovers.container_ids(tasks)) == ["0", "1", "no-record"]
    leftovers.remove_shim_sockets(leftovers.shim_sockets(tasks), sockets)
    assert [path.name for path in sockets.iterdir()] == ["of-another"]
    (sockets / "of-another").unlink()
    leftovers.remove_shim_sockets([], sockets)
    assert not sockets.parent.exists()


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


def test_the_device_plugin_folder_is_removed_unless_a_plugin_is_in_it(tmp_path):
    folder = tmp_path / "kubelet" / "device-plugins"
    folder.mkdir(parents=True)
    for name in ("kubelet.sock", "kubelet_internal_checkpoint", "gpu.sock"):
        (folder / name).touch()
    leftovers.remove_device_plugins(folder)
    assert [path.name for path in folder.iterdir()] == ["gpu.sock"]
    (folder / "gpu.sock").unlink()
    leftovers.remove_device_plugins(folder)
    assert list(tmp_path.iterdir()) == []


def test_sysctls_are_restored(tmp_path):
    for name in leftovers.SYSCTLS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    before = leftovers.read_sysctls(tmp_path)
    (tmp_path / "kernel/panic").write_text("10\n")
    leftovers.restore_sysctls(before, tmp_path)
    assert leftovers.read_sysctls(tmp_path) == before
    assert set(before) == set(leftovers.SYSCTLS)


def test_mounts_below_a_folder_come_innermost_first_without_neighbours():
    mounts = leftovers.mounts_below(Path("/run/c"), leftovers.parse_mounts(MOUNTINFO))
    assert [str(path) for path in mounts] == ["/run/c/a/b", "/run/c/a", "/run/c/with blank", "/run/c"]
