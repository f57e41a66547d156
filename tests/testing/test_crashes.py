from __future__ import annotations

import pytest

from dra_sdk import PermanentError
from dra_sdk.testing import claim
from dra_sdk.testing.crashes import assert_survives_crashes, differences, tree
from tests.testing.lamps import Forgetful, InMemory, MakingDirectories, SwitchedLamps

pytest_plugins = ["dra_sdk.testing.plugin"]


def test_a_sound_driver_survives_a_crash_at_every_point(lamps, driver):
    before = tree(lamps.root)
    lines = assert_survives_crashes(driver, claim())
    steps = assert_survives_crashes(driver, claim("a", "b"), lines=False)
    assert min(lines, steps) > 30
    assert tree(lamps.root) == before
    driver.assert_clean()


@pytest.mark.parametrize("kind", [Forgetful, InMemory])
def test_a_driver_that_does_not_survive_is_told_the_line(lamps, dra_driver, kind):
    with pytest.raises(AssertionError, match=r"killed in prepare at point \d+ \(lamps\.py, line \d+\), then") as caught:
        assert_survives_crashes(dra_driver(kind), claim())
    assert "lamp-0" in str(caught.value)


def test_a_directory_is_a_change_that_is_worth_a_crash(lamps, dra_driver):
    with pytest.raises(AssertionError, match=r"FileExistsError: .*run/lamp-0/busy"):
        assert_survives_crashes(dra_driver(MakingDirectories), claim())


def test_a_driver_that_fails_without_a_crash_is_an_error(lamps, driver):
    driver.allocate(fake := claim())
    lamps.file("/sys/class/lamps/lamp-0/on", "another claim")
    with pytest.raises(PermanentError, match="lamp lamp-0 is on"):
        assert_survives_crashes(driver, fake)


def test_an_instance_cannot_be_tested(lamps, dra_driver):
    with pytest.raises(TypeError, match="as a class or a function"):
        assert_survives_crashes(dra_driver(SwitchedLamps()), claim())


def test_a_tree_has_contents_and_links(lamps):
    lamps.link("/sys/here", "class/lamps")
    entries = tree(lamps.root)
    assert (entries["sys/here"], entries["sys/class/lamps/lamp-0/watt"]) == ("class/lamps", b"5\n")


def test_a_difference_shows_both_contents():
    before = {"state": b"up\n", "link": "a", "old": b"1", "same": b"", "long": b"x" * 100}
    after = {"state": b"down", "link": "b", "new": b"2", "same": b"", "long": b"y" * 60}
    assert differences(before, after) == [
        "link: link to 'a' → link to 'b'",
        f"long: b'{'x' * 60}'… → b'{'y' * 60}'",
        "new: no file → b'2'",
        "old: b'1' → no file",
        r"state: b'up\n' → b'down'",
    ]
