"""The tutorials and the README are true: their files and commands, in their order, do what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.template.pages import ROOT, run_page
from tests.template.virtual_environment import VirtualEnvironment


@pytest.mark.timeout(1200)  # a minute and more of conformance
@pytest.mark.parametrize("name", ["pizza", "pci"])
def test_a_tutorial_leads_from_an_empty_folder_to_a_prepared_claim(name: str, tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "venv")
    commands = run_page(ROOT / f"docs/tutorial/{name}.md", tmp_path, environment.run, new_files=False)
    assert {line.split()[1] for line in commands if line.startswith("dra-sdk ")} >= {"demo", "conformance"}


@pytest.mark.timeout(600)
def test_the_three_commands_of_the_readme_lead_to_a_prepared_claim(tmp_path: Path) -> None:
    environment = VirtualEnvironment(tmp_path / "venv")
    (block,) = re.findall(r"^```\n(dra-sdk new .*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    new, test, demo = block.splitlines()
    assert environment.run(new, tmp_path).returncode == 0
    assert environment.run(test, tmp_path).returncode == 0
    done = environment.run(demo, tmp_path / "my-driver")
    assert (done.returncode, "7. Unprepare" in done.stdout) == (0, True)
