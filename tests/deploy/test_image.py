"""The image: its lock file is complete, its tree runs Python, its list of content is right and repeatable."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "deploy/image"
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
NAME = re.compile(r"[A-Za-z0-9._-]+")
ONLY_AIO = {"aiohttp", "aiohttp-retry"}
"""What kubernetes needs for kubernetes.aio, which the image does not have."""


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((IMAGE / name).read_text()))


def canonical(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_the_lock_file_has_every_dependency_of_the_drivers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = {canonical(each) for each in [*project["dependencies"], *extras["gpu"], *extras["nic"]]}
    locked = pins("requirements.txt")
    assert needed <= locked.keys()
    assert not ONLY_AIO & locked.keys()
    assert "hatchling" in pins("build-requirements.txt")


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_everything_is_pinned_by_hashes(name: str) -> None:
    text = re.sub(r"^#.*\n", "", (IMAGE / name).read_text(), flags=re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) == len(pins(name)) > 3
    for each in entries:
        assert "--hash=sha256:" in each, each
    assert "://" not in text


def test_the_build_gets_what_the_containerfile_copies() -> None:
    ignored = [each for each in (ROOT / ".dockerignore").read_text().splitlines() if each and each[0] != "#"]
    allowed = [each.removeprefix("!") for each in ignored if each.startswith("!")]
    lines = (ROOT / "deploy/Containerfile").read_text().splitlines()
    sources = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert len(sources) > 5
    for each in sources:
        assert (ROOT / each).exists(), each
        assert any(fnmatch(each, one) or one.startswith(f"{each}/") for one in allowed), each
    assert "drivers/*/tests" in ignored


def distribution(site: Path, name: str, version: str, *lines: str) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    head = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines]
    (folder / "METADATA").write_text("\n".join(head) + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    site = tmp_path / "tree/opt/dra-sdk/lib/python3.13/site-packages"
    distribution(site, "dra-sdk", "0.1.0", "License-Expression: Apache-2.0")
    distribution(site, "Py_YAML", "6.0+x", "License: MIT", "Classifier: License :: OSI Approved :: MIT License")
    distribution(site, "bare", "1")
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
        "pkg:pypi/bare@1",
        "pkg:pypi/py-yaml@6.0%2Bx",
    ]
    assert found["components"][2]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert "licenses" not in found["components"][1]


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
