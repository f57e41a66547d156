"""The tutorial and the README are true: their files and commands, in their order, do what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.template.virtual_environment import VirtualEnvironment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial/pizza.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"  # status (\d)$")


@pytest.mark.timeout(1200)  # a minute and more of conformance
def test_the_tutorial_leads_from_an_empty_folder_to_a_prepared_claim(tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "venv")
    folder, output, commands = tmp_path, "", []
    for kind, text in BLOCKS:
        if kind in {"python", "yaml"}:
            name, _, content = text.removeprefix("# ").partition("\n")
            assert (folder / name).is_file(), f"a block replaces {name}, which `dra-sdk new` has not written"
            (folder / name).write_text(content)
        elif kind == "text":
            assert [line for line in text.splitlines() if line not in output] == []
        elif kind == "sh":
            output = ""
            for line in text.splitlines():
                commands.append(line)
                if line == "cd pizza":
                    folder = tmp_path / "pizza"
                else:
                    expected = STATUS.search(line)
                    done = environment.run(line, folder)
                    assert done.returncode == (int(expected[1]) if expected else 0), line
                    output += done.stdout
        else:
            assert kind == "console", (
                f"a block of the tutorial is marked {kind}, want python, yaml, sh, text or console"
            )
    assert [line for line in commands if line.startswith(("dra-sdk demo", "dra-sdk conformance"))]


@pytest.mark.timeout(600)
def test_the_three_commands_of_the_readme_lead_to_a_prepared_claim(tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "venv")
    (block,) = re.findall(r"^```\n(dra-sdk new .*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    new, test, demo = block.splitlines()
    assert environment.run(new, tmp_path).returncode == 0
    assert environment.run(test, tmp_path).returncode == 0
    done = environment.run(demo, tmp_path / "my-driver")
    assert (done.returncode, "7. Unprepare" in done.stdout) == (0, True)
