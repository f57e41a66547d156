"""Cgroups of daemons: trees of files for both versions, and the real ones of this machine."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.hardware.cgroups import Cgroup
from dra_sdk.hardware.node_access import Command, NodeAccess, SystemEffects
from dra_sdk.hardware.polling import Clock
from dra_sdk.testing.cgroups import real_cgroups
from dra_sdk.testing.waiting import wait

VERSION_2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n"
VERSION_1 = """tmpfs /sys/fs/cgroup tmpfs ro 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
"""


@pytest.fixture
def make_cgroup():
    with real_cgroups() as make:
        yield make


@pytest.fixture
def host(tmp_path):
    """A host as a tree of files, with this list of mounts."""

    def make(mounts):
        (tmp_path / "proc/1").mkdir(parents=True)
        (tmp_path / "proc/1/mounts").write_text(f"proc /proc proc rw 0 0\n{mounts}")
        for line in mounts.splitlines():
            (tmp_path / line.split()[1].lstrip("/")).mkdir(parents=True, exist_ok=True)
        return NodeAccess(tmp_path, SystemEffects(), Clock(interval=0.01))

    return make


@pytest.mark.parametrize(
    ("mounts", "hierarchies"), [(VERSION_2, [""]), (VERSION_1, ["unified", "systemd", "cpuset", "cpu,cpuacct"])]
)
def test_a_daemon_enters_its_cgroup_in_every_hierarchy_before_it_starts(host, tmp_path, mounts, hierarchies):
    command = Cgroup(host(mounts), "mps-7").enclose(Command(["sh", "-c", "cat $FILES > $OUT"]))
    assert command.cgroups == [tmp_path / "sys/fs/cgroup" / hierarchy / "dra/mps-7" for hierarchy in hierarchies]
    files, out = [cgroup / "cgroup.procs" for cgroup in command.cgroups], tmp_path / "out"
    log = tmp_path / "log"
    SystemEffects().start(replace(command, env={"FILES": " ".join(map(str, files)), "OUT": str(out)}), log)
    wait(lambda: out.exists() and out.read_text() == "0" * len(files))
    assert log.read_text() == ""


def test_a_cpuset_of_version_1_gets_the_cpus_of_its_parent(host, tmp_path):
    node, top = host(VERSION_1), tmp_path / "sys/fs/cgroup/cpuset"
    for directory, content in ((top, {"cpus": "0-7\n", "mems": "0\n"}), (top / "dra/x", {"cpus": "\n", "mems": "\n"})):
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in content.items():
            (directory / f"cpuset.{name}").write_text(text)
            (top / f"dra/cpuset.{name}").write_text("\n") if directory != top else None
    Cgroup(node, "x").enclose(Command(["true"]))
    for directory in (top / "dra", top / "dra/x"):
        assert [(directory / f"cpuset.{name}").read_text() for name in ("cpus", "mems")] == ["0-7", "0"]


@pytest.mark.parametrize("mounts", ["", None])
def test_without_cgroups_a_daemon_starts_as_it_is_and_the_log_says_so(host, tmp_path, mounts, caplog):
    node = host(mounts or "")
    if mounts is None:
        (tmp_path / "proc/1/mounts").unlink()
    assert Cgroup(node, "mps-7").enclose(Command(["true"])).cgroups == []
    why = f"{tmp_path}/proc/1/mounts shows no cgroups"
    assert caplog.messages == [f"mps-7 has no cgroup of its own and ends with the driver's container: {why}"]


def test_a_hierarchy_that_cannot_be_changed_is_left_out(host, tmp_path, caplog):
    node = host(VERSION_1)
    (tmp_path / "sys/fs/cgroup/cpuset/dra").touch()
    made = Cgroup(node, "mps-7").enclose(Command(["true"])).cgroups
    assert [directory.parent.parent.name for directory in made] == ["unified", "systemd", "cpu,cpuacct"]
    assert f"{tmp_path}/sys/fs/cgroup/cpuset/dra/mps-7: " in caplog.text


def test_a_process_that_the_kernel_refused_is_in_the_log(host, tmp_path, caplog):
    cgroup = Cgroup(host(VERSION_2), "mps-7")
    (directory,) = cgroup.enclose(Command(["true"])).cgroups
    (directory / "cgroup.procs").write_text("12\n4711\n")
    cgroup.check(4711)
    assert caplog.messages == []
    cgroup.check(471)
    assert caplog.messages == [f"process 471 is not in {directory}, and ends with the driver's container"]


def test_a_cgroup_that_refuses_a_process_does_not_stop_the_daemon(host, tmp_path):
    (directory,) = Cgroup(host(VERSION_2), "mps-7").enclose(Command(["true"])).cgroups
    (directory / "cgroup.procs").mkdir()
    log = tmp_path / "log"
    SystemEffects().start(Command(["echo", "started"], cgroups=[directory]), log)
    wait(lambda: log.exists() and "started" in log.read_text())
    assert log.read_text() == f"cannot enter cgroup {directory}: Is a directory\nstarted\n"


def test_a_program_that_is_missing_is_in_the_log(tmp_path):
    log = tmp_path / "log"
    SystemEffects().start(Command(["/no/such"], cgroups=[tmp_path]), log)
    wait(lambda: log.exists() and log.read_text() == "/no/such: cannot be started: No such file or directory\n")


def test_removing_a_cgroup_that_is_gone_is_no_error(host, tmp_path, caplog):
    cgroup = Cgroup(host(VERSION_2), "mps-7")
    cgroup.remove()
    (directory,) = cgroup.enclose(Command(["true"])).cgroups
    cgroup.remove()
    assert not directory.exists()
    assert caplog.messages == []


def test_a_cgroup_with_processes_stays_with_a_warning(host, caplog):
    node = host(VERSION_2)
    cgroup = Cgroup(node.within(0.1), "mps-7")
    (directory,) = cgroup.enclose(Command(["true"])).cgroups
    (directory / "cgroup.procs").write_text("4711\n")
    cgroup.remove()
    assert caplog.messages == [f"cgroup {directory} still has processes, so it is not removed"]


# -- the cgroups of this machine


def test_a_process_and_its_children_are_in_their_own_cgroup(make_cgroup, tmp_path):
    cgroup, effects = make_cgroup("own"), SystemEffects()
    pid = effects.start(cgroup.enclose(Command(["sh", "-c", "sleep 60 & sleep 60; true"])), tmp_path / "log")
    wait(lambda: len(cgroup.processes()) == 3)
    assert pid in cgroup.processes()
    cgroup.check(pid)
    assert (tmp_path / "log").read_text() == ""
    effects.kill(cgroup.processes(), force=True)
    cgroup.remove()
    assert not any(Path("/sys/fs/cgroup").glob(f"**/{cgroup.name}"))


STARTER = """
import signal, sys
from pathlib import Path
from dra_sdk.hardware.cgroups import Cgroup
from dra_sdk.hardware.node_access import Command, NodeAccess, SystemEffects
node = NodeAccess(Path("/"), SystemEffects())
for command in (Command(["sleep", "61"]), Cgroup(node, sys.argv[1]).enclose(Command(["sleep", "62"]))):
    print(node.effects.start(command, Path(sys.argv[2])), flush=True)
signal.pause()
"""


def test_only_a_process_in_its_own_cgroup_outlives_its_container(make_cgroup, tmp_path):
    """A container runtime kills every process in the container's cgroup."""
    container, own = make_cgroup("container"), make_cgroup("daemon")
    command = container.enclose(Command([sys.executable, "-c", STARTER, own.name, str(tmp_path / "log")]))
    output = tmp_path / "output"
    SystemEffects().start(command, output)
    wait(lambda: output.exists() and len(output.read_text().split()) == 2)
    inside, outside = map(int, output.read_text().split())
    # With cgroup v1 a process leaves the hierarchies one after the other.
    wait(lambda: own.processes() == [outside] and outside not in container.processes())
    assert inside in container.processes()
    for pid in container.processes():
        os.kill(pid, signal.SIGKILL)
    wait(lambda: SystemEffects().started(inside) is None)
    assert SystemEffects().started(outside) is not None
    SystemEffects().kill([outside], force=True)
