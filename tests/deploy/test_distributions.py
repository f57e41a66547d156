"""The SDK and its drivers as distributions: one shape, and no index is asked for their names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.cli.main import main
from tests.distributions import ROOT, Distribution, driver_names, drivers, sdk

OURS = r"dra[-_]sdk|dra[-_]driver"
PIP = re.compile(r"\b(?:pip|uv)\S* (?:.* )?(?:install|wheel|download|compile)\b")
ARGUMENT = re.compile(rf"""[^\s'"]*(?:{OURS})[^\s'"]*""")
PUBLIC = re.compile(r"dra_sdk(\.hardware|\.testing|\.rpc|\.cli\.main)?(\..*)?")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `dra-sdk new` writes."""
    directory = tmp_path_factory.mktemp("new")
    assert main(["new", "my-driver", "--directory", str(directory)]) == 0
    return directory / "my-driver"


def tables(file: dict[str, Any], *names: str) -> Any:
    for name in names:
        file = file[name]
    return file


def test_the_list_has_every_driver() -> None:
    assert sorted(driver_names()) == sorted(path.parent.name for path in (ROOT / "drivers").glob("*/pyproject.toml"))


@pytest.mark.parametrize("driver", drivers(), ids=lambda one: one.name)
def test_a_driver_has_the_shape_that_the_template_gives(driver: Distribution, rendered: Path) -> None:
    own, new = (tomllib.loads((path / "pyproject.toml").read_text()) for path in (driver.folder, rendered))
    assert own["build-system"] == new["build-system"]
    assert [key for key in own["project"] if key != "license"] == list(new["project"])
    assert own["project"]["dependencies"][0] == new["project"]["dependencies"][0]
    assert list(own["project"]["entry-points"]) == list(new["project"]["entry-points"])
    assert list(tables(own, "tool", "hatch")) == list(tables(new, "tool", "hatch"))
    own["tool"].setdefault("mypy", {})  # ours extend the SDK's configuration
    assert own["tool"].keys() == new["tool"].keys()
    mine, wanted = (file["tool"]["importlinter"] for file in (own, new))
    assert set(mine["contracts"][0]["forbidden_modules"]) >= set(wanted["contracts"][0]["forbidden_modules"])
    assert mine["contracts"][0]["source_modules"] == list(driver.packages)
    for package in driver.packages:
        assert (driver.folder / package / "py.typed").is_file()
    assert {"README.md", "tests", "pyproject.toml"} <= {path.name for path in driver.folder.iterdir()}
    assert {"README.md", "tests", "pyproject.toml", "my_driver"} <= {path.name for path in rendered.iterdir()}


def test_drivers_and_template_are_for_this_version_of_the_sdk() -> None:
    major, minor, _ = sdk().project["version"].split(".")
    wanted = f"dra-sdk>={major}.{minor},<{major}.{int(minor) + 1}"
    assert {driver.project["dependencies"][0] for driver in drivers()} == {wanted}


@pytest.mark.parametrize("driver", drivers(), ids=lambda one: one.name)
def test_the_tests_of_a_driver_use_what_an_outside_author_has(driver: Distribution) -> None:
    for path in sorted((driver.folder / "tests").rglob("*.py")):
        modules = re.findall(r"^\s*(?:from|import) ((?:tests|dra_sdk)[\w.]*)", path.read_text(), re.MULTILINE)
        assert [name for name in modules if not PUBLIC.fullmatch(name)] == [], path


def asked_of_an_index(text: str) -> list[str]:
    """The lines in which an installer gets a name of ours that is neither a path nor a wheel, nor offline."""
    lines = []
    for line in text.replace("\\\n", " ").splitlines():
        command = PIP.search(line)
        if command and "--no-index" not in line:
            words = ARGUMENT.findall(line[command.end() :].partition("`")[0])
            if any("/" not in word and ".whl" not in word for word in words):
                lines.append(line)
    return lines


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pip install dra-sdk", True),
        ("run: pip install 'dra-sdk[tools]' pytest", True),
        ("python -m pip install --quiet dra_driver_nic", True),
        ("pip install \\\n  dra-driver-gpu", True),
        ("pip install './dra-sdk[tools]'", False),
        ('pip install "$(echo wheels/dra_sdk-*.whl)[testing]"', False),
        ("pip install --no-index dra-sdk", False),
        ("pip install pytest", False),
    ],
)
def test_an_installation_from_an_index_is_seen(line: str, *, expected: bool) -> None:
    assert bool(asked_of_an_index(line)) is expected


def texts() -> list[Path]:
    """The files of this repository that have text."""
    folders = (".ci", "deploy", "docs", "dra_sdk", "drivers", "templates", "tests")
    listed = [*ROOT.glob("*.*"), ROOT / "Makefile", *(path for name in folders for path in (ROOT / name).rglob("*"))]
    return [path for path in listed if path.is_file() and path.suffix not in {".gz", ".png", ".pyc", ".svg"}]


def test_nothing_asks_an_index_for_our_names() -> None:
    """A stranger could own them there. This file and the changelog of the past are left out."""
    read = [path for path in texts() if path.name != "CHANGELOG.md" and path != Path(__file__)]
    assert len(read) > 1000
    asking = {path: lines for path in read if (lines := asked_of_an_index(path.read_text(errors="replace")))}
    assert asking == {}
