"""Values that a process reads at each scrape: devices by health and taint, its version, and itself."""

from __future__ import annotations

import re

from dra_sdk import Device, DeviceHealth, DeviceTaint, HealthStatus
from dra_sdk.node.runtime.metrics import Metrics


def test_devices_are_counted_by_health_and_by_taint() -> None:
    metrics = Metrics("lamps.example.com")
    tainted = Device("b", taints=[DeviceTaint(key="lamps.example.com/unhealthy", effect="NoSchedule")])
    health = [DeviceHealth("a", HealthStatus.HEALTHY, pool="n"), DeviceHealth("b", HealthStatus.UNHEALTHY, pool="n")]
    metrics.add_devices(lambda: [("n", Device("a")), ("n", tainted), ("n", Device("c"))], lambda: health)
    text = metrics.text().decode()
    assert counts(text, "dra_sdk_devices") == {
        ("driver=lamps.example.com", "health=healthy", "pool=n"): 1,
        ("driver=lamps.example.com", "health=unhealthy", "pool=n"): 1,
        ("driver=lamps.example.com", "health=unknown", "pool=n"): 1,
    }
    assert counts(text, "dra_sdk_devices_tainted") == {
        ("driver=lamps.example.com", "effect=NoSchedule", "key=lamps.example.com/unhealthy", "pool=n"): 1
    }


def counts(text: str, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by its labels."""
    lines = re.findall(rf"^{name}\{{(.*)\}} (.*)$", text, re.MULTILINE)
    return {tuple(sorted(labels.replace('"', "").split(","))): float(value) for labels, value in lines}


def test_a_process_tells_its_version_and_its_own_use() -> None:
    text = Metrics("lamps.example.com").text().decode()
    assert re.search(r'^dra_sdk_build_info\{driver="lamps\.example\.com",version="\d[^"]*"\} 1\.0$', text, re.MULTILINE)
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        assert f"\n{name} " in text
