"""The release: built twice, in different folders and at different times, wheel and sdist have the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.release import built, checkout, provenance


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return built(checkout(tmp_path_factory.mktemp("one") / "first"))


@pytest.mark.timeout(300)
def test_two_builds_are_the_same(first: dict[str, bytes], tmp_path: Path) -> None:
    again = checkout(tmp_path / "elsewhere")
    for each in again.rglob("*"):
        os.utime(each, (1_000_000_000, 1_000_000_000))
    second = built(again)
    assert sorted(first) == sorted(second) == ["dra_sdk-0.1.0-py3-none-any.whl", "dra_sdk-0.1.0.tar.gz"]
    assert {name: sha256(each).digest() for name, each in first.items()} == {
        name: sha256(each).digest() for name, each in second.items()
    }


@pytest.mark.timeout(300)
def test_the_wheel_comes_from_the_sdist_as_well(first: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "sdist.tar.gz").write_bytes(first["dra_sdk-0.1.0.tar.gz"])
    with tarfile.open(tmp_path / "sdist.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("dra_sdk-*")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "dist").iterdir()
    assert wheel.read_bytes() == first[wheel.name]


def test_the_sdist_has_the_policies_and_the_changelog(first: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "sdist.tar.gz").write_bytes(first["dra_sdk-0.1.0.tar.gz"])
    with tarfile.open(tmp_path / "sdist.tar.gz") as archive:
        names = {each.name.partition("/")[2] for each in archive}
    assert {"SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "README.md"} <= names


def test_the_provenance_names_each_file_the_commit_and_the_tools(first: dict[str, bytes]) -> None:
    found: Any = provenance(first, "0" * 40, changed=True)
    assert {each["name"]: each["digest"]["sha256"] for each in found["subject"]} == {
        name: sha256(each).hexdigest() for name, each in first.items()
    }
    source, *tools = found["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "0" * 40}
    assert source["annotations"] == {"changed": True}
    assert [each["name"] for each in tools] == ["hatchling"]


def test_the_wheel_has_drivers_chart_and_template_and_no_tests(first: dict[str, bytes], tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    file.write_bytes(first["dra_sdk-0.1.0-py3-none-any.whl"])
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    for needed in (
        "dra_driver_cpu/",
        "dra_driver_gpu/",
        "dra_driver_amd/",
        "dra_driver_nic/",
        "dra_sdk/templates/driver/",
    ):
        assert any(each.startswith(needed) for each in names), needed
    assert "dra_sdk/tools/manifests/chart/Chart.yaml" in names
    assert not [each for each in names if "/tests/" in each and not each.startswith("dra_sdk/templates/")]
    assert not [each for each in names if each.endswith(".pyc")]
