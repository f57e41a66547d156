"""The image of the drivers: what its archive's name depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness.driver_image import ROOT, checkout_of, content_key


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        ".dockerignore": "# a comment\n*\n!pyproject.toml\n!dra_sdk\n!drivers\ndrivers/*/tests\n**/__pycache__\n",
        "deploy/Containerfile": "FROM scratch\n",
        "pyproject.toml": "[project]\n",
        "dra_sdk/a.py": "a",
        "dra_sdk/__pycache__/a.pyc": "a",
        "drivers/cpu/b.py": "b",
        "drivers/cpu/tests/test_b.py": "b",
        "tests/test_a.py": "a",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dra_sdk/a.py", True),
        ("drivers/cpu/b.py", True),
        ("pyproject.toml", True),
        ("deploy/Containerfile", True),
        ("dra_sdk/__pycache__/a.pyc", False),
        ("drivers/cpu/tests/test_b.py", False),
        ("tests/test_a.py", False),
    ],
)
def test_an_image_is_built_again_when_a_file_of_it_has_changed(checkout: Path, name: str, changes: bool) -> None:
    before = content_key(checkout)
    assert content_key(checkout) == before
    (checkout / name).write_text("changed")
    assert (content_key(checkout) != before) is changes


def test_a_new_file_changes_an_image(checkout: Path) -> None:
    before = content_key(checkout)
    (checkout / "dra_sdk/c.py").write_text("")
    assert content_key(checkout) != before


def test_this_checkout_has_all_that_its_image_is_built_from() -> None:
    assert len(content_key(ROOT)) == 12


def test_a_revision_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert checkout_of("0" * 40, tmp_path / "checkout") is None
    assert not (tmp_path / "checkout").exists()
