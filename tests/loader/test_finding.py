"""Drivers by name, by module:Class, and by all that people write instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk.errors import DriverLoadError, SettingsError
from dra_sdk.loader import find_settings, iter_drivers, load_driver
from dra_sdk.model.settings import KUBELET_DIR, SettingsFile

CODE = """
from dra_sdk import DriverInfo

class Helper:
    pass

class Mine:
    def dra_driver_info(self): return DriverInfo("mine.example.com")
    def dra_discover(self, node): return []
    def dra_prepare(self, claim): return []

class Needy(Mine):
    def __init__(self, path, other=1): pass

class Raising(Mine):
    def __init__(self): self.path = open("/absent")

def factory(): return Mine()

made = Mine()
nothing = None
"""
WITH_SETTINGS = """
from dra_sdk import DriverInfo, DriverSettings
from mod_mine import Helper, Mine

class Lamp(DriverSettings, prefix="LAMP_"):
    level: int = 1

class Set(Mine):
    settings_class = Lamp
    def __init__(self, settings):
        self.level = settings.level
    def dra_driver_info(self): return DriverInfo(f"level{self.level}.example.com")

class Unset(Mine):
    settings_class = Lamp

class Odd(Mine):
    settings_class = Helper

made = Set(Lamp())
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mod_mine.py").write_text(CODE)
    (tmp_path / "mod_set.py").write_text(WITH_SETTINGS)
    (tmp_path / "mod_none.py").write_text("VALUE = 1\n")
    (tmp_path / "mod_half.py").write_text("import mod_absent\n")
    yield tmp_path
    for name in ("mod_mine", "mod_set", "mod_none", "mod_half"):
        sys.modules.pop(name, None)


def refusal(name: str) -> str:
    with pytest.raises(DriverLoadError) as caught:
        load_driver(name)
    return str(caught.value)


def test_a_dot_in_place_of_the_colon_is_told(here: Path) -> None:
    assert refusal("mod_mine.Mine").endswith("one that is not installed is written module:Class, here mod_mine:Mine")
    info = here / "dotted-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dotted\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dra_sdk.drivers]\ndotted = mod_mine.Mine\n")
    sys.path.insert(0, str(here))
    assert refusal("dotted").endswith("; an entry point is written module:Class, here mod_mine:Mine")


def test_a_class_or_an_instance_of_a_module_here() -> None:
    assert load_driver("mod_mine:Mine").info.name == "mine.example.com"
    assert load_driver("mod_mine:made").info.name == "mine.example.com"


@pytest.mark.parametrize("name", ["mod_mine.py:Mine", "./mod_mine:Mine", "./mod_mine.py:Mine"])
def test_a_file_is_not_a_module_but_told_as_one(name: str) -> None:
    assert refusal(name) == f"driver {name!r} must be written module:Class, here mod_mine:Mine"


@pytest.mark.parametrize("name", [":Mine", "mod_other:", "a b:C", "a/b:C", "1a:C", "a:b:c", "/abs/x.py:C"])
def test_what_is_neither_is_told_by_example(name: str) -> None:
    assert refusal(name).startswith(f"driver {name!r} must be written module:Class, such as my_driver:MyDriver")


@pytest.mark.parametrize("name", ["mod_mine", "mod_mine.py"])
def test_a_module_without_class_is_told_how_to_go_on(name: str) -> None:
    assert refusal(name).endswith("one that is not installed is written module:Class, here mod_mine:MyDriver")


def test_what_is_not_there_is_told_with_where_it_was_looked_for(here: Path) -> None:
    missing = f"ModuleNotFoundError: No module named 'mod_gone'; it is neither installed nor a file in {here}"
    assert refusal("mod_gone:Mine") == f"driver 'mod_gone:Mine' failed to load: {missing}"
    assert refusal("mod_gone.inner:Mine").endswith(f"it is neither installed nor a file in {here}")
    assert refusal("mod_mine:Yours").endswith("has no attribute 'Yours'; it has Mine, Needy, Raising")
    assert refusal("mod_none:Yours").endswith("; it has no class with methods dra_…")


def test_what_a_module_lacks_is_not_taken_for_the_module() -> None:
    assert refusal("mod_half:Mine").endswith("No module named 'mod_absent' (mod_half.py, line 1)")


@pytest.mark.parametrize(
    ("name", "what"), [("factory", "a function"), ("nothing", "None"), ("CODE", "a str"), ("sys", "")]
)
def test_what_is_no_class_is_named(here: Path, name: str, what: str) -> None:
    (here / "mod_mine.py").write_text(f"import sys\n{CODE}\nCODE = 'x'\n")
    assert f"driver 'mod_mine:{name}' is {what}" in refusal(f"mod_mine:{name}")
    assert refusal(f"mod_mine:{name}").endswith("want a class with methods dra_…")


def test_a_constructor_is_called_without_arguments() -> None:
    assert refusal("mod_mine:Needy").endswith("; a driver is made without arguments, so each needs a default")
    assert refusal("mod_mine:Raising").endswith("No such file or directory: '/absent' (mod_mine.py, line 16)")


FILE = SettingsFile(Path("/etc/lamp.yaml"), {"level": "3"})


def test_a_driver_is_made_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_driver("mod_set:Set").info.name == "level1.example.com"
    assert load_driver("mod_set:Set", FILE).info.name == "level3.example.com"
    monkeypatch.setenv("LAMP_LEVEL", "7")
    assert load_driver("mod_set:Set", FILE).info.name == "level7.example.com"


def test_wrong_settings_are_the_operators_error_and_not_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMP_LEVEL", "high")
    with pytest.raises(SettingsError, match=r"^environment variable LAMP_LEVEL='high': must be a whole number$"):
        load_driver("mod_set:Set")


def test_a_section_of_a_file_for_a_driver_without_settings_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"lamp.yaml has a section driver, but driver 'mod_mine:Mine' has no set"):
        load_driver("mod_mine:Mine", FILE)


def test_settings_are_found_without_making_the_driver() -> None:
    settings = find_settings("mod_set:Set")
    assert settings is not None
    assert [setting.variable for setting in settings.documentation()] == ["LAMP_LEVEL"]
    assert find_settings("mod_mine:Raising") is None
    assert find_settings("cpu") is not None


def test_a_driver_that_cannot_be_made_with_settings_is_told_how_it_must_be() -> None:
    assert refusal("mod_set:Unset").endswith("; a driver with a settings_class is made with one argument, settings")
    odd = refusal("mod_set:Odd")
    assert odd.endswith(": settings_class must be a subclass of DriverSettings, is <class 'mod_mine.Helper'>")
    assert "'mod_set:made' is an instance with a settings_class; name its class" in refusal("mod_set:made")


@pytest.mark.parametrize("name", [driver.name for driver in iter_drivers()])
def test_the_paths_of_a_driver_move_with_the_directory_of_the_kubelet(name: str) -> None:
    """Otherwise an operator has to find and set each of them, and the chart would mount another directory."""
    kind = find_settings(name)
    if kind is None:
        return
    usual = {key: value for key, value in kind.read({}).model_dump().items() if str(value).startswith(KUBELET_DIR)}
    elsewhere = kind.read({}, kubelet_dir="/data/kubelet").model_dump()
    assert {key: elsewhere[key] for key in usual} == {
        key: value.replace(KUBELET_DIR, "/data/kubelet") for key, value in usual.items()
    }
    assert usual, f"{name} has no path there: a test that cannot fail"
