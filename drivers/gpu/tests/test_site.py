"""Where things of a node are, and how long they are waited for."""

from __future__ import annotations

from pathlib import Path

from dra_driver_gpu.effects import Command
from dra_driver_gpu.site import Clock, Site


class Time:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self._sleep, 1.0)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_all_waits_of_a_call_together_end_with_it():
    time = Time()
    clock = time.clock().within(10)
    waited = []
    for _ in range(3):
        begun = time.now
        assert not clock.until(lambda: False, 6)
        waited.append(time.now - begun)
    assert waited == [6, 4, 0]
    assert clock.until(lambda: True, 6)
    assert clock.within(60).end == clock.end


def test_a_tool_gets_what_is_left_of_the_time(make_gpus, monkeypatch):
    rig, time = make_gpus("L4"), Time()
    asked = []
    monkeypatch.setattr(rig.effects, "run", lambda command: asked.append(command.timeout) or "")
    site = Site(rig.node.root, rig.settings, rig.site.library, rig.effects, time.clock()).within(10)
    for _ in range(2):
        site.run(Command(["x"], timeout=7))
        time.now += 8
    site.run(Command(["x"]))
    assert asked == [7, 2, 1]


def test_a_mounted_host_keeps_its_links(make_gpus):
    rig = make_gpus("L4", driver_root="/var/run/nvidia/driver")
    rig.node.path("/data/kubelet").mkdir(parents=True)
    rig.node.link("/var/lib/kubelet", "/data/kubelet")
    site = rig.site
    assert site.here("/var/lib/kubelet/x") == rig.node.root / "data/kubelet/x"
    assert Site(Path("/"), rig.settings, site.library, site.effects).here("/var/lib/kubelet") == Path(
        "/var/lib/kubelet"
    )


def test_a_root_file_system_of_the_drivers_own_is_where_its_programs_run(make_gpus):
    rig = make_gpus("L4", driver_root="/run/nvidia/driver")
    root = f"{rig.node.root}/run/nvidia/driver"
    bare = rig.site.tool("nvidia-smi", "-L")
    assert bare.argv == [f"{root}/usr/bin/nvidia-smi", "-L"]
    rig.node.link("/run/nvidia/driver/bin", "/usr/bin")
    rig.node.file("/run/nvidia/driver/usr/bin/sh")
    assert rig.site.tool("nvidia-smi", "-L").argv == ["chroot", root, "/usr/bin/nvidia-smi", "-L"]
