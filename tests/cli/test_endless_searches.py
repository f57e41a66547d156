"""Claims whose search for devices would never end: the search stops by itself, or is interrupted."""

from __future__ import annotations

import signal
import threading

import pytest
import yaml

from dra_sdk.tools.scheduling.cluster import schedule
from tests.cli.commands import runner

DRIVER = "d.example.com"


def objects():
    """Forty devices with seven values of an attribute, and a claim for eight of different values."""
    devices = [{"name": f"d{i}", "attributes": {"a": {"int": i % 7}}} for i in range(40)]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    requests = [{"name": f"r{i}", "exactly": {"deviceClassName": "c"}} for i in range(8)]
    devices_spec = {"requests": requests, "constraints": [{"distinctAttribute": f"{DRIVER}/a"}]}
    specs = {
        "ResourceSlice": {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": devices},
        "DeviceClass": {},
        "ResourceClaim": {"devices": devices_spec},
    }
    for kind, spec in specs.items():
        yield {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "c"}, "spec": spec}


@pytest.fixture
def run(capsys, tmp_path):
    path = tmp_path / "endless.yaml"
    path.write_text(yaml.safe_dump_all(objects()))
    return lambda command: runner(capsys)(command, path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", ["simulate", "explain"])
def test_an_endless_search_is_stopped_with_a_sentence(run, command):
    result = run(command)
    assert result.status == 1
    reason = "there are not enough different values" if command == "explain" else "given up after 1000000 steps"
    assert reason in result.out
    assert "Traceback" not in result.err


@pytest.fixture
def interruptible():
    """As in a terminal; the workers of pytest-xdist ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("command", ["simulate", "explain"])
def test_an_endless_search_can_be_interrupted(run, command, monkeypatch):
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])

    def interrupted(*arguments, **more):
        timer.start()  # when the search begins, which takes seconds
        return schedule(*arguments, **more)

    monkeypatch.setattr("dra_sdk.cli.outcomes.schedule", interrupted)
    result = run(command)
    timer.join()
    assert (result.status, result.out) == (130, "")
    assert "Traceback" not in result.err
