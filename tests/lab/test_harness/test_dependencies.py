"""What the machine's Python gets."""

from __future__ import annotations

import pytest

from tests.cluster.harness.errors import HarnessError
from tests.lab.collected import ROOT
from tests.lab.harness.dependencies import read


def test_the_projects_dependencies_and_pytest():
    found = read(ROOT)
    names = {each.partition(">")[0] for each in found.requirements}
    assert {"pydantic", "grpcio", "pytest", "pytest-timeout"} <= names
    assert "ruff" not in names
    (points,) = [text for path, text in found.metadata.items() if path.endswith("entry_points.txt")]
    assert "[dra_sdk.drivers]\ncpu = dra_driver_cpu:CpuDriver\n" in points
    assert "[console_scripts]\ndra-sdk = dra_sdk.cli.main:main\n" in points


def test_a_development_dependency_that_is_gone(tmp_path):
    project = '[project]\nname = "a"\nversion = "1"\ndependencies = []\n'
    text = f'{project}[project.optional-dependencies]\ndev = ["pytest>=8"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(HarnessError, match="no development dependency pytest-timeout"):
        read(tmp_path)
