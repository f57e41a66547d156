"""The packages of the extra `tools`: which commands need them, and what they say without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dra_sdk.cli.main import COMMANDS
from tests.cli.commands import EXAMPLES

PIZZA = str(EXAMPLES / "pizza.yaml")
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


def without_packages(*lines: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in a process of its own, in which the packages cannot be imported."""
    program = PROGRAM.format(lines=list(lines))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "package"), [(["new", "my-driver"], "jinja2"), (["completion", "bash"], "shtab")], ids=lambda one: one[0]
)
def test_a_command_without_its_package_is_one_line_with_status_2(line: list[str], package: str) -> None:
    done = without_packages(line)
    text = f"dra-sdk: {line[0]} needs the package {package}, which is not installed: pip install {package}\n"
    assert (done.stderr, done.stdout) == (text, f"status of {line}: 2\n")


def test_a_regular_expression_names_its_package(tmp_path: Path) -> None:
    file = tmp_path / "pizza.yaml"
    text = Path(PIZZA).read_text()
    file.write_text(text.replace("device.driver == ", '"a".matches("a") && device.driver == ', 1))
    done = without_packages(["validate", str(file)])
    assert "regular expressions need the package google-re2, which is not installed: pip install google-re2" in (
        done.stdout + done.stderr
    )


def test_everything_else_works_without_the_packages() -> None:
    lines = [["--help"], *([command, "--help"] for command in COMMANDS)]
    lines += [["drivers"], ["drivers", "--schema", "cpu"], ["discover", "cpu"], ["top", "--here", "cpu"]]
    lines += [["conformance", "--list"], ["validate", PIZZA], ["top", PIZZA], ["explain", PIZZA], ["simulate", PIZZA]]
    done = without_packages(*lines)
    assert done.returncode == 0, done.stderr
    statuses = [line for line in done.stdout.splitlines() if line.startswith("status of ")]
    expected = {("explain", PIZZA): 1, ("simulate", PIZZA): 1}
    assert statuses == [f"status of {line}: {expected.get(tuple(line), 0)}" for line in lines]
