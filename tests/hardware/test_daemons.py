"""Daemons that end, hang, or come back: real processes of a script."""

from __future__ import annotations

import json
import os
import secrets
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_sdk import RetriableError
from dra_sdk.hardware.daemons import PROBE_SECONDS, DaemonKind, Daemons, DaemonSpec, DaemonWatch
from dra_sdk.hardware.node_access import Command, SystemEffects, children
from dra_sdk.testing.waiting import LONG, wait

MARKER = "DRA_SDK_TEST_BEACON"
BASE = "/var/lib/beacons"
TOOL = """#!/bin/sh
control="$2/control"
if [ "$1" = run ]; then
    trap 'rm -f "$control"; exit 0' TERM
    echo "started with $3"
    echo $$ > "$control"
    while [ -e "$control" ]; do sleep 0.02; done
    exit 0
fi
[ -e "$control" ] && read -r pid < "$control" && kill -0 "$pid" || { echo "there is no beacon" >&2; exit 1; }
while { read -r _ _ state _ < "/proc/$pid/stat"; } 2> /dev/null && [ "$state" = T ]; do sleep 0.02; done
[ "$1" = quit ] && rm -f "$control"
echo "$*" >> "$2/log/commands"
"""
NEVER_READY = '#!/bin/sh\n[ "$1" = run ] || exit 1\nexec sleep 60\n'


@dataclass(frozen=True, slots=True)
class Beacon(DaemonSpec):
    """A daemon of the tests; `color` is its configuration."""

    color: str = "red"

    @property
    def id(self):
        return self.claim


class Beacons:
    """The beacons of a node. `answer_seconds` and `start_seconds` are those of the kind."""

    def __init__(self, node):
        self.node, self.answer_seconds, self.start_seconds = node, LONG, LONG
        self.tool = node.file("/usr/bin/beacon", TOOL)
        self.tool.chmod(0o755)
        self.before, self.after = [], []
        self.claim = f"claim-{secrets.token_hex(4)}"  # other tests have daemons on this machine too

    def ask(self, what, daemon_id, *more):
        command = Command([str(self.tool), what, self.place(daemon_id), *more], timeout=self.answer_seconds)
        self.node.access.run(command)

    def quit(self, daemon_id):
        try:
            self.ask("quit", daemon_id)
        except RetriableError:
            return

    def place(self, daemon_id):
        return str(self.node.path(f"{BASE}/{daemon_id}"))

    @property
    def daemons(self):
        """As a new process of the driver has them."""
        kind = DaemonKind(
            name="beacon",
            spec=Beacon,
            marker=MARKER,
            directories=("log",),
            logs=("beacon.log",),
            start_seconds=self.start_seconds,
            command=lambda spec: Command(
                [str(self.tool), "run", self.place(spec.id), spec.color], env={MARKER: spec.id}
            ),
            before_start=self.before.append,
            probe=lambda daemon_id: self.ask("ping", daemon_id),
            configure=lambda spec: self.ask("color", spec.id, spec.color),
            quit=self.quit,
            after_end=self.after.append,
        )
        return Daemons(self.node.access, BASE, kind)

    def spec(self, **more):
        return Beacon(self.claim, ["device-1"], **more)

    def started(self, **more):
        """A beacon that was started."""
        self.daemons.start(self.spec(**more))
        return self.spec(**more)

    @property
    def file(self):
        (path,) = self.node.path(BASE).glob("*/daemon.json")
        return path

    @property
    def pid(self):
        return json.loads(self.file.read_text())["process"][0]

    def colors(self):
        lines = (Path(self.place(self.claim)) / "log/commands").read_text().splitlines()
        return [line.split()[-1] for line in lines if line.startswith("color ")]

    def kill(self):
        pid = self.pid
        self.node.effects.kill([pid], force=True)
        wait(lambda: self.node.effects.started(pid) is None)
        return pid

    def hang(self):
        """Stops the beacon, which takes a moment; from now on no answer is waited for long."""
        pid, stat = self.pid, Path(f"/proc/{self.pid}/stat")
        os.kill(pid, signal.SIGSTOP)
        wait(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))
        self.answer_seconds = 0.3

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)
        self.answer_seconds = LONG


@pytest.fixture
def beacons(make_node):
    made = Beacons(make_node())
    yield made
    made.node.effects.kill(made.node.effects.running_daemons(), force=True)
    wait(lambda: not set(made.node.effects.running_daemons()) & set(children()))


class FakeTime:
    """A watch whose time a test sets."""

    def __init__(self, beacons):
        self.beacons, self.watch, self.now = beacons, DaemonWatch(), 0.0

    def check(self, after=0.0):
        """All troubles that are seen so many seconds after the last check."""
        self.now += after
        self.watch.check(self.beacons.daemons, self.now)
        return self.watch.troubles


# -- start and end


def test_a_daemon_is_started_configured_and_ended(beacons):
    spec = beacons.started(color="blue")
    assert beacons.pid in beacons.node.effects.running_daemons()
    assert beacons.colors() == ["blue"]
    assert beacons.before == [spec.id]
    assert [daemon.id for daemon in beacons.daemons.wanted()] == [spec.id]
    beacons.daemons.stop(spec.id)
    assert beacons.node.effects.running_daemons() == []
    assert list(beacons.daemons.ids()) == []
    assert beacons.after == [spec.id]
    beacons.daemons.stop(spec.id)  # nothing is left to do


def test_a_daemon_that_runs_is_not_started_again(beacons):
    beacons.started()
    pid = beacons.pid
    beacons.started(color="green")
    assert beacons.pid == pid
    assert beacons.colors() == ["red", "green"]
    assert [call for call in beacons.node.effects.calls if call.startswith("start")] == [
        f"start beacon run {beacons.place(beacons.claim)} red"
    ]


def test_a_daemon_that_ends_at_once_is_an_error_with_its_log(beacons):
    beacons.tool.write_text("#!/bin/sh\necho no such lamp >&2\nexit 3\n")
    with pytest.raises(RetriableError, match="the beacon ended at once: no such lamp"):
        beacons.started()
    beacons.daemons.stop(beacons.claim)
    assert list(beacons.daemons.ids()) == []


def test_a_daemon_that_does_not_answer_is_ended(beacons):
    beacons.tool.write_text(NEVER_READY)
    beacons.start_seconds = 0.2
    with pytest.raises(RetriableError, match="the beacon does not answer: its log is empty"):
        beacons.started()
    wait(lambda: not beacons.node.effects.running_daemons())
    beacons.daemons.stop(beacons.claim)


def test_a_daemon_that_does_not_end_when_it_is_asked_to_is_killed(beacons):
    spec = beacons.started()
    beacons.hang()
    beacons.daemons.stop(spec.id)
    assert beacons.node.effects.running_daemons() == []


@pytest.mark.parametrize("after", [False, True], ids=["refused", "done"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_after_a_failed_start_nothing_is_left(beacons, nth, after):
    beacons.node.effects.fail_call(nth, after=after)
    with suppress(RetriableError):  # not if a probe failed: the next one succeeds
        beacons.started()
    beacons.node.effects.clear()
    beacons.daemons.stop(beacons.claim)
    assert beacons.node.effects.running_daemons() == []
    assert list(beacons.daemons.ids()) == []


def test_a_daemon_gets_a_cgroup_of_its_own_which_ends_with_it(beacons):
    beacons.node.file("/proc/1/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    spec = beacons.started()
    (command,) = [command for command in beacons.node.effects.commands if "run" in command.argv]
    cgroup = beacons.node.path(f"/sys/fs/cgroup/dra/{MARKER.lower()}-{spec.id}")
    assert command.cgroups == [cgroup]
    assert cgroup.is_dir()
    beacons.daemons.stop(spec.id)
    assert not cgroup.exists()


# -- after a restart of the driver


def test_the_daemon_of_an_interrupted_start_is_found(beacons):
    beacons.started()
    before = beacons.pid
    beacons.file.unlink()
    beacons.started()
    assert beacons.pid == before


def test_another_process_with_the_pid_of_a_daemon_is_not_the_daemon(beacons):
    beacons.started()
    kept = json.loads(beacons.file.read_text())
    beacons.kill()
    beacons.file.write_text(json.dumps({**kept, "process": [os.getpid(), kept["process"][1]]}))
    FakeTime(beacons).check()
    assert beacons.pid != os.getpid()


def test_after_a_reboot_no_daemon_is_wanted(beacons):
    beacons.started()
    beacons.node.reboot()
    assert beacons.daemons.wanted() == []


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"boot": "BOOT", "what": 1}'])
def test_a_daemon_whose_file_is_damaged_is_not_wanted_but_listed(beacons, content, caplog):
    beacons.node.file(f"{BASE}/x/daemon.json", content.replace("BOOT", beacons.node.boot_id))
    assert beacons.daemons.wanted() == []
    assert list(beacons.daemons.ids()) == ["x"]
    beacons.daemons.stop("x")
    assert list(beacons.daemons.ids()) == []


# -- while it runs


def test_a_daemon_that_does_not_answer_twice_is_reported(beacons, caplog):
    beacons.started()
    time = FakeTime(beacons)
    assert time.check() == {}
    beacons.hang()
    assert time.check() == {}
    assert time.check(PROBE_SECONDS) == {}
    assert time.check() == {}
    assert list(time.check(PROBE_SECONDS)) == ["device-1"]
    assert "its beacon does not answer: " in time.watch.troubles["device-1"]
    assert "does not answer" in caplog.text
    assert list(time.check()) == ["device-1"]
    beacons.go_on()
    assert time.check(PROBE_SECONDS) == {}
    beacons.hang()
    assert time.check(PROBE_SECONDS) == {}


def test_the_trouble_of_a_daemon_ends_with_it(beacons):
    spec = beacons.started()
    time = FakeTime(beacons)
    beacons.hang()
    time.check()
    assert time.check(PROBE_SECONDS)
    beacons.daemons.stop(spec.id)
    assert time.check() == {}


def test_a_daemon_that_ended_is_started_again_with_its_configuration(beacons, caplog):
    beacons.started(color="blue")
    before = beacons.kill()
    FakeTime(beacons).check()
    assert f"the beacon of claim {beacons.claim} had ended and was started again" in caplog.text
    assert beacons.pid != before
    assert beacons.colors() == ["blue", "blue"]


def test_a_daemon_that_cannot_be_started_again_is_reported(beacons):
    beacons.started()
    beacons.kill()
    beacons.tool.write_text("#!/bin/sh\nexit 3\n")
    time = FakeTime(beacons)
    assert time.check() == {}
    assert time.check(PROBE_SECONDS)
    beacons.tool.write_text(TOOL)
    assert time.check(PROBE_SECONDS) == {}


def test_a_daemon_that_refuses_its_configuration_is_ended(beacons):
    beacons.started()
    beacons.kill()
    beacons.start_seconds = 0.2
    beacons.tool.write_text(NEVER_READY)
    time = FakeTime(beacons)
    for _ in range(3):
        time.check()
        wait(lambda: not beacons.node.effects.running_daemons())
    beacons.tool.write_text(TOOL)
    beacons.start_seconds = LONG
    time.check()
    assert beacons.node.effects.started(beacons.pid) is not None


def test_the_environment_of_processes_is_not_read_while_daemons_run(beacons, monkeypatch):
    beacons.started()
    time = FakeTime(beacons)
    time.check()
    calls = len(beacons.node.effects.calls)
    with monkeypatch.context() as patched:
        patched.setattr(SystemEffects, "running", lambda *_: pytest.fail("the environment of processes is read"))
        time.check()
    assert len(beacons.node.effects.calls) == calls


def test_a_daemon_that_ended_is_started_again_although_its_server_runs_on(beacons, caplog, tmp_path):
    """A server that outlives its daemon has the same environment; its clients go on."""
    spec = beacons.started()
    server = beacons.node.effects.start(Command(["sleep", "60"], env={MARKER: spec.id}), tmp_path / "log")
    before = beacons.kill()
    FakeTime(beacons).check()
    assert "was started again" in caplog.text
    assert beacons.pid not in {before, server}
    assert beacons.node.effects.started(server) is not None
    beacons.daemons.stop(spec.id)
    assert beacons.node.effects.running_daemons() == []
