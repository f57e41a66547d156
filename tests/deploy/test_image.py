"""The image: its lock file is complete, its tree runs Python, its list of content is right and repeatable."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.distributions import Distribution, distributions, sdk

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy/image"
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
NAME = re.compile(r"[A-Za-z0-9._-]+")
ONLY_AIO = {"aiohttp", "aiohttp-retry"}
"""What kubernetes needs for kubernetes.aio, which the image does not have."""


LOCKS = sorted([*(ROOT / "deploy/lock").glob("*.txt"), *(ROOT / "drivers").glob("*/lock.txt")])


def pins(path: Path) -> dict[str, str]:
    return dict(PIN.findall(path.read_text()))


def canonical(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


@pytest.mark.parametrize("distribution", distributions(), ids=lambda one: one.name)
def test_the_lock_files_have_every_dependency_on_a_node(distribution: Distribution) -> None:
    needed = {canonical(line) for line in distribution.project["dependencies"]} - {"dra-sdk"}
    locked = pins(ROOT / "deploy/lock/sdk.txt")
    if (own := distribution.folder / "lock.txt").is_file():
        locked |= pins(own)
    assert needed <= locked.keys()
    assert not ONLY_AIO & locked.keys()


def test_the_lock_files_have_every_extra_and_what_builds_wheels() -> None:
    locked = {name for path in LOCKS for name in pins(path)}
    assert {canonical(line) for line in sdk().requirements} <= locked
    assert {"hatchling", "editables"} <= pins(ROOT / "deploy/lock/build.txt").keys()


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_everything_is_pinned_by_hashes_and_nothing_of_ours(path: Path) -> None:
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) >= len(pins(path)) > 0
    for entry in entries:
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text
    assert not [name for name in pins(path) if name.startswith("dra-")]


def test_the_base_image_has_no_default_that_somebody_could_replace() -> None:
    lines = (ROOT / "deploy/Containerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith(("ARG BASE", "FROM "))] == [
        "ARG BASE",
        "FROM ${BASE} AS build",
        "FROM scratch",
    ]


def test_the_build_gets_what_the_containerfile_copies() -> None:
    ignored = [each for each in (ROOT / ".dockerignore").read_text().splitlines() if each and each[0] != "#"]
    allowed = [each.removeprefix("!") for each in ignored if each.startswith("!")]
    lines = (ROOT / "deploy/Containerfile").read_text().splitlines()
    sources = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert len(sources) > 5
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, one) or one.startswith(f"{source}/") for one in allowed), source
    assert "drivers/*/tests" in ignored


def installed(site: Path, name: str, version: str, *lines: str) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    head = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines]
    (folder / "METADATA").write_text("\n".join(head) + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    site = tmp_path / "tree/opt/dra-sdk/lib/python3.13/site-packages"
    installed(site, "dra-sdk", "0.1.0", "License-Expression: Apache-2.0")
    installed(site, "Py_YAML", "6.0+x", "License: MIT", "Classifier: License :: OSI Approved :: MIT License")
    installed(site, "bare", "1")
    installed(site, "dra_driver_cpu", "0.1.0")
    status = tmp_path / "tree/var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    (status / "libc6").write_text("Package: libc6\nArchitecture: amd64\nVersion: 2.36-9+deb12u1\n")
    return tmp_path / "tree"


def bill(tree: Path, name: str) -> bytes:
    target = tree.parent / "out" / name
    subprocess.run([sys.executable, IMAGE / "sbom.py", tree, target], check=True)
    return target.read_bytes()


def test_the_list_of_content_has_every_package_with_its_version_and_licence(tree: Path) -> None:
    found = json.loads(bill(tree, "a.json"))
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    product = found["metadata"]["component"]
    assert (product["name"], product["licenses"]) == ("dra-sdk", [{"expression": "Apache-2.0"}])
    assert [each["purl"] for each in found["components"]] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64",
        "pkg:generic/dra-driver-cpu@0.1.0",
        "pkg:pypi/bare@1",
        "pkg:pypi/py-yaml@6.0%2Bx",
    ]
    assert found["components"][3]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert "licenses" not in found["components"][2]


def test_the_list_of_content_can_be_made_again(tree: Path) -> None:
    assert bill(tree, "a.json") == bill(tree, "b.json")


def test_the_tree_of_the_image_runs_python_and_has_no_shell(tmp_path: Path) -> None:
    """With a virtual environment of this Python, in a root of its own."""
    if os.geteuid() != 0:
        pytest.skip("a root of its own needs root")
    venv, tree = tmp_path / "venv", tmp_path / "tree"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (python,) = venv.glob("lib/python3*/site-packages")
    (python / "mine.py").write_text("import ctypes, hashlib, json, ssl, subprocess\nprint(ssl.OPENSSL_VERSION)\n")
    subprocess.run([venv / "bin/python3", IMAGE / "runtime_tree.py", venv, tree], check=True)
    done = subprocess.run(
        ["chroot", tree, venv / "bin/python3", "-m", "mine"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/sbin:/usr/bin"},
    )
    assert done.stdout.startswith("OpenSSL")
    assert not [each for each in tree.rglob("*") if each.name in {"sh", "bash", "dash"}]
    assert (tree / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert not list(tree.rglob("ensurepip"))
