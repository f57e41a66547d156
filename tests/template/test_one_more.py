"""A driver of the template becomes one more distribution of this repository: its folder, and one line of the list."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dra_sdk.cli.main import main
from tests.distributions import ROOT, distributions
from tests.template.virtual_environment import pip

NAME = "dra-driver-fpga"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this repository with one more driver."""
    copy = tmp_path_factory.mktemp("checkout") / "copy"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name, follow_symlinks=False)
    assert main(["new", NAME, "--directory", str(copy / "drivers")]) == 0
    with (copy / "drivers/list.txt").open("a") as listing:
        listing.write(f"{NAME}\n")
    return copy


def run(checkout: Path, *arguments: str | Path, **variables: str) -> str:
    """Run Python in the copy; its output."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), **variables}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_types_and_contracts_are_checked(checkout: Path, tmp_path: Path) -> None:
    pip(
        "install",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "--target",
        tmp_path,
        checkout / "drivers" / NAME,
    )
    assert "dra_driver_fpga" in {package for one in distributions(checkout) for package in one.packages}
    output = run(checkout, "tests/distributions.py", "lint", NAME, PYTHONPATH=f"{checkout}:{tmp_path}")
    assert "a driver sees what an outside author sees KEPT" in output
    assert "Success: no issues found" in output
    run(checkout, "-m", "ruff", "check", "--no-cache", f"drivers/{NAME}")
    run(checkout, "-m", "ruff", "format", "--check", "--no-cache", f"drivers/{NAME}")


@pytest.mark.timeout(300)
def test_release_and_image_have_it(checkout: Path) -> None:
    output = run(
        checkout,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/deploy/test_image.py",
        "tests/deploy/test_release.py",
        "tests/deploy/test_distributions.py",
        "-k",
        "not index",
    )
    assert " passed" in output
    run(checkout, "-c", "from pathlib import Path; from tests.deploy.release import built; print(*built(Path('.')))")
    assert list((checkout / "drivers" / NAME / "dist").glob("dra_driver_fpga-0.1.0-py3-none-any.whl"))


def test_the_chart_installs_it(checkout: Path) -> None:
    output = run(checkout, "-m", "dra_sdk.cli.main", "manifests", "-f", f"drivers/{NAME}/deploy/values.yaml")
    kinds = {each["kind"]: each for each in yaml.safe_load_all(output)}
    assert kinds["DaemonSet"]["metadata"]["name"].endswith("fpga")
