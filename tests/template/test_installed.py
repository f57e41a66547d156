"""Drivers that `dra-sdk new` writes, built and installed, go through every command of their CI and their README."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
import yaml

from dra_sdk.cli.main import main
from dra_sdk.cli.new import INSTALL, KINDS, template_directory
from tests.template.virtual_environment import VirtualEnvironment, pip

ROOT = Path(__file__).parents[2]
NO = 1  # the exit status for an answer that is no


@pytest.mark.timeout(1200)  # a minute and more of conformance
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_driver_is_built_installed_and_passes_its_ci(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my-driver"
    assert main(["new", "my-driver", "--kind", kind]) == 0
    environment = VirtualEnvironment(tmp_path / "venv")

    def status(line: str) -> int:
        return environment.run(line, folder).returncode

    steps = yaml.safe_load((folder / ".github/workflows/ci.yaml").read_text())["jobs"]["test"]["steps"]
    others, sdk, *lines = [each["run"] for each in steps if "run" in each]
    assert "--require-hashes" in others
    assert sdk == "pip install --no-index wheels/dra_sdk-*.whl"  # it is installed already
    assert lines[0] == INSTALL
    assert {line: status(line) for line in lines} == dict.fromkeys(lines, 0)
    assert {each.name for each in (folder / "reports").iterdir()} == {"tests.xml", "conformance.xml"}
    (block,) = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    told = [line.partition("  #")[0] for line in block.splitlines()]
    assert told[0] == INSTALL
    further = [line for line in told[3:] if " conformance " not in line]  # the tests and the tree come before
    found = {re.findall(r"dra-sdk (\w+)", line)[0]: status(line) for line in further}
    assert found == {"discover": 0, "demo": 0, "validate": 0, "simulate": NO, "explain": NO}


@pytest.mark.timeout(300)
def test_the_wheel_has_the_template(tmp_path: Path) -> None:
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    prefix = "dra_sdk/templates/driver/"
    names = {name.removeprefix(prefix) for name in zipfile.ZipFile(wheel).namelist() if name.startswith(prefix)}
    template = template_directory()
    files = {path.relative_to(template).as_posix() for path in template.rglob("*") if path.is_file()}
    assert names == files
    assert ".gitignore" in {Path(name).name for name in names}
