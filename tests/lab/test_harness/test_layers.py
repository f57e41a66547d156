"""The machine's files in the cache, and programs that run on them in namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.testing.waiting import wait
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.debian import Tool
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.lab.harness import layers
from tests.lab.harness.layers import (
    LAB,
    Layers,
    compile_checkout,
    ensure_layers,
    in_namespaces,
    in_root,
    key,
    python_packages,
)
from tests.lab.harness.outcome import ROOT

STARTER = """
import subprocess, sys, time
from tests.lab.harness.layers import in_namespaces
process = subprocess.Popen(in_namespaces(["sh", "-c", sys.argv[1]]), stdout=subprocess.PIPE, text=True)
print(process.stdout.readline(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def made(monkeypatch):
    """What would be made; nothing is."""
    done = []
    monkeypatch.setattr(layers, "make_base", lambda at, system: done.append(f"{system.name} base"))
    monkeypatch.setattr(layers, "make_python", lambda at, base, wanted: done.append("python"))
    monkeypatch.setattr(layers, "TO_INSTALL", ())
    return done


def names(cache, system=LAB):
    return sorted(path.name.partition("-")[0] for path in (cache.root / system.name).iterdir())


def test_layers_are_made_once(tmp_path, made):
    cache = Cache(tmp_path)
    first = ensure_layers(cache, ROOT, Progress())
    assert ensure_layers(cache, ROOT, Progress()) == first
    assert made == ["lab base", "python"]
    assert names(cache) == ["base", "python"]


@pytest.mark.parametrize(
    "change", [{"suite": "sid"}, {"packages": ("python3",)}, {"mounts": ("/other",)}, {"kernel": "forky"}]
)
def test_another_recipe_replaces_the_former_one_unless_that_is_in_use(tmp_path, made, change):
    cache = Cache(tmp_path)
    former = ensure_layers(cache, ROOT, Progress())
    with former.in_use():
        assert ensure_layers(cache, ROOT, Progress(), replace(LAB, **change)) != former
        assert names(cache) == ["base", "base", "python", "python"]
    ensure_layers(cache, ROOT, Progress(), replace(LAB, packages=("another",)))
    assert names(cache) == ["base", "python"]
    with pytest.raises(HarnessError, match="was removed"), former.in_use():
        pass


def test_systems_do_not_replace_each_other(tmp_path, made):
    cache, other = Cache(tmp_path), replace(LAB, name="other", packages=("python3",))
    found = [ensure_layers(cache, ROOT, Progress(), system) for system in (LAB, other, LAB, other)]
    assert made == ["lab base", "python", "other base", "python"]
    assert found[:2] == found[2:]
    assert names(cache) == names(cache, other) == ["base", "python"]


def test_a_layer_that_fails_half_way_is_not_kept(tmp_path, made, monkeypatch):
    def fail(at, base, wanted):
        (at / "half").touch()
        raise HarnessError("no network")

    monkeypatch.setattr(layers, "make_python", fail)
    with pytest.raises(HarnessError, match="no network"):
        ensure_layers(Cache(tmp_path), ROOT, Progress())
    assert names(Cache(tmp_path)) == ["base"]


def test_layers_need_root(tmp_path, monkeypatch):
    monkeypatch.setattr(layers.os, "geteuid", lambda: 1000)
    with pytest.raises(HarnessError, match="needs root"):
        ensure_layers(Cache(tmp_path), ROOT, Progress())


def test_a_missing_program_is_named_before_anything_is_made(tmp_path, made, monkeypatch):
    absent = Tool("unshare", "util-linux", "runs the virtual machine in namespaces", lambda: False)
    monkeypatch.setattr(layers, "NAMESPACES", (absent,))
    with pytest.raises(HarnessError, match=r"(?s)virtual machine needs .*\bunshare\b.*apt-get install -y util-linux"):
        ensure_layers(Cache(tmp_path), ROOT, Progress())
    assert made == []


def test_keys_tell_recipes_apart():
    assert key("a", "b") == key("a", "b")
    assert len({key("a", "b"), key("ab"), key("b", "a")}) == 3


def test_layers_that_are_not_there_cannot_be_used(tmp_path):
    with pytest.raises(HarnessError, match="was removed"), Layers(tmp_path / "base", tmp_path / "python").in_use():
        pass


def test_the_machine_gets_everything_that_the_project_asks_for():
    found = python_packages(ROOT)
    names = {each.partition(">")[0] for each in found.requirements}
    assert {"pydantic", "grpcio", "pytest", "pytest-timeout", "hypothesis", "nvidia-ml-py"} <= names
    assert not [name for name in names if name.startswith("dra-")]
    points = {path.partition("-")[0]: text for path, text in found.metadata.items() if path.endswith("points.txt")}
    assert "[dra_sdk.drivers]\ncpu = dra_driver_cpu:CpuDriver\n" in points["dra_driver_cpu"]
    assert "[console_scripts]\ndra-sdk = dra_sdk.cli.main:main\n" in points["dra_sdk"]


def test_the_modules_of_a_checkout_are_compiled_for_the_python_of_the_machine(tmp_path, machine_layers):
    for name in ("dra_sdk", "drivers", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text("value = 1\n")
    compile_checkout(machine_layers, tmp_path, Progress())
    (version,) = [path.name for path in (machine_layers.base / "usr/lib").glob("python3.*")]
    tag = version.removeprefix("python").replace(".", "")
    found = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.pyc")}
    assert found == {Path(name, f"__pycache__/module.cpython-{tag}.pyc") for name in ("dra_sdk", "drivers", "tests")}


def processes(mark):
    """The processes with this text in their command line, except this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in words and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


def mounts(text):
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if text in line]


def test_a_killed_starter_takes_all_processes_and_mounts_with_it(tmp_path):
    mark = f"7{os.getpid()}.25"
    script = f"mount --bind {tmp_path} /mnt; sleep {mark} & sleep {mark} & echo started; wait"
    with subprocess.Popen([sys.executable, "-c", STARTER, script], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout.readline().strip() == "started"
        assert len(processes(mark)) >= 3
        assert not mounts(f" {tmp_path} ")
        starter.send_signal(signal.SIGKILL)
    wait(lambda: not processes(mark))


def test_it_has_no_network():
    done = subprocess.run(in_namespaces(["cat", "/proc/net/dev"]), capture_output=True, text=True, check=True)
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()[2:]] == ["lo"]


def test_another_root_with_directories_to_read_and_to_write(tmp_path, busybox):
    root, read, write = (tmp_path / name for name in ("root", "read", "write"))
    for path in (root / "in", root / "out", root / "proc", root / "dev/pts", read, write):
        path.mkdir(parents=True)
    (root / "busybox").write_bytes(busybox.read_bytes())
    (root / "busybox").chmod(0o755)
    (read / "word").write_text("hello")
    script = """\
/busybox cat /in/word >/out/word
/busybox ls /dev/pts >/out/terminals
for each in /in /; do /busybox touch $each/other; done
"""
    command = in_root(root, ["/busybox", "sh", "-c", script], read={"/in": read}, write={"/out": write})
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.count("Read-only file system") == 2
    assert (write / "word").read_text() == "hello"
    assert (write / "terminals").read_text() == "ptmx\n"
    assert not mounts(str(tmp_path))
