"""The release: built twice, in different folders and at different times, wheel and sdist have the same bytes."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.release import BUILD, built, checkout, provenance
from tests.distributions import distributions

NAMES = [distribution.name.replace("-", "_") for distribution in distributions()]


def unpacked(files: dict[str, bytes], name: str, folder: Path) -> Path:
    """Unpack the sdist of a distribution into a folder."""
    with tarfile.open(fileobj=io.BytesIO(files[f"{name}-0.1.0.tar.gz"])) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return built(checkout(tmp_path_factory.mktemp("one") / "first"))


@pytest.mark.timeout(300)
def test_two_builds_are_the_same(first: dict[str, bytes], tmp_path: Path) -> None:
    again = checkout(tmp_path / "elsewhere")
    for each in again.rglob("*"):
        os.utime(each, (1_000_000_000, 1_000_000_000))
    second = built(again)
    assert (
        sorted(first)
        == sorted(second)
        == sorted(f"{name}-0.1.0{ending}" for name in NAMES for ending in ("-py3-none-any.whl", ".tar.gz"))
    )
    assert {name: sha256(each).digest() for name, each in first.items()} == {
        name: sha256(each).digest() for name, each in second.items()
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["dra_sdk", "dra_driver_gpu"])
def test_the_wheel_comes_from_the_sdist_as_well(first: dict[str, bytes], tmp_path: Path, name: str) -> None:
    (folder,) = unpacked(first, name, tmp_path).glob(f"{name}-*")
    subprocess.run([*BUILD, "--target", "wheel"], cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "dist").iterdir()
    assert wheel.read_bytes() == first[wheel.name]


def test_the_sdk_holds_no_driver_and_its_sdist_the_policies(first: dict[str, bytes], tmp_path: Path) -> None:
    (folder,) = unpacked(first, "dra_sdk", tmp_path).glob("dra_sdk-*")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert {"SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "README.md"} <= names
    assert not [name for name in names if "dra_driver" in name]


def test_the_provenance_names_each_file_the_commit_and_the_tools(first: dict[str, bytes]) -> None:
    found: Any = provenance(first, "0" * 40, changed=True)
    assert {each["name"]: each["digest"]["sha256"] for each in found["subject"]} == {
        name: sha256(each).hexdigest() for name, each in first.items()
    }
    source, *tools = found["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "0" * 40}
    assert source["annotations"] == {"changed": True}
    assert [each["name"] for each in tools] == ["hatchling"]


def contents(files: dict[str, bytes], name: str) -> list[str]:
    """The names in a wheel."""
    with zipfile.ZipFile(io.BytesIO(files[f"{name}-0.1.0-py3-none-any.whl"])) as archive:
        return archive.namelist()


def test_the_sdks_wheel_has_chart_and_template_and_no_driver(first: dict[str, bytes]) -> None:
    names = contents(first, "dra_sdk")
    assert "dra_sdk/tools/manifests/chart/Chart.yaml" in names
    assert "dra_sdk/templates/driver/cookiecutter.json" in names
    assert {name.partition("/")[0] for name in names} == {"dra_sdk", "dra_sdk-0.1.0.dist-info"}


@pytest.mark.parametrize("name", NAMES)
def test_no_wheel_has_tests_or_compiled_files(first: dict[str, bytes], name: str) -> None:
    names = [path for path in contents(first, name) if not path.startswith("dra_sdk/templates/")]
    assert names
    assert not [path for path in names if "/tests/" in path or path.endswith(".pyc")]
    assert any(path.endswith("/py.typed") for path in names)
