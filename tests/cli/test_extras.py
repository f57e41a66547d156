"""The extra `tools`: which packages are missing, and which commands need them."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from dra_sdk.cli.extras import require_tools
from dra_sdk.cli.main import COMMANDS
from dra_sdk.errors import SettingsError
from tests.cli.commands import EXAMPLES, Run, runner

REQUIREMENTS = [
    "grpcio>=1.70",
    "google-re2>=1.1; extra == 'tools'",
    'trustme<2,>=1.2; python_version >= "3.11" and extra == "tools"',
    "pytest; extra == 'dev'",
    "a-tools; extra == 'tools-of-others'",
]
PIZZA = EXAMPLES / "pizza.yaml"
PROGRAM = """
import sys
sys.modules.update(jinja2=None, re2=None, shtab=None, trustme=None)
from dra_sdk.cli.main import main
for line in {lines}:
    try:
        status = main(line)
    except SystemExit as stop:
        status = stop.code
    print(f"status of {{line}}: {{status}}")
"""


def version_of(*installed: str):
    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return "1.0"

    return version


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed distribution declares the extra, and its packages are not installed."""
    found = importlib.metadata.version
    missing = {"google-re2", "jinja2", "shtab", "trustme"}

    def version(name: str) -> str:
        if name in missing:
            raise PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_installed_packages_are_enough() -> None:
    require_tools("simulate", requires=lambda _name: REQUIREMENTS, version=version_of("google-re2", "trustme"))
    require_tools("simulate", requires=lambda _name: None, version=version_of())


@pytest.mark.parametrize(
    ("installed", "missing"),
    [((), "google-re2, trustme"), (("trustme",), "google-re2"), (("google-re2", "pytest"), "trustme")],
)
def test_missing_packages_are_named_with_the_line_to_type(installed: tuple[str, ...], missing: str) -> None:
    message = f"^simulate needs packages that are not installed \\({missing}\\): pip install 'dra-sdk\\[tools\\]'$"
    with pytest.raises(SettingsError, match=message):
        require_tools("simulate", requires=lambda _name: REQUIREMENTS, version=version_of(*installed))


def test_the_distribution_declares_the_extra() -> None:
    with pytest.raises(SettingsError, match=r"not installed \(google-re2, jinja2, shtab, trustme\)"):
        require_tools("simulate", version=version_of())


@pytest.mark.usefixtures("without_tools")
@pytest.mark.parametrize(
    "command",
    [
        ("simulate", PIZZA),
        ("explain", PIZZA),
        ("validate", PIZZA),
        ("top", PIZZA),
        ("gpu", "top", PIZZA),
        ("demo",),
        ("new", "my-driver"),
        ("completion", "bash"),
        ("conformance", "--driver", "cpu"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_without_its_packages_is_one_line_with_status_2(run: Run, command: tuple[str, ...]) -> None:
    done = run(*command)
    name = command[0].replace("gpu", "top")
    packages = "(google-re2, jinja2, shtab, trustme)"
    line = f"dra-sdk: {name} needs packages that are not installed {packages}: pip install 'dra-sdk[tools]'\n"
    assert (done.status, done.out, done.err) == (2, "", line)


def test_what_a_node_needs_works_without_the_packages() -> None:
    """In one process of its own, in which the packages cannot be imported."""
    lines = [["--help"], *([command, "--help"] for command in COMMANDS)]
    lines += [["drivers"], ["drivers", "--schema", "cpu"], ["discover", "cpu"], ["top", "--here", "cpu"]]
    lines += [["conformance", "--list"]]
    program = PROGRAM.format(lines=lines)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    statuses = [line for line in done.stdout.splitlines() if line.startswith("status of ")]
    assert statuses == [f"status of {line}: 0" for line in lines]
