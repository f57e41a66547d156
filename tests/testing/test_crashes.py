from __future__ import annotations

import pytest

from dra_sdk import PermanentError
from dra_sdk.testing import claim
from dra_sdk.testing.crashes import assert_survives_crashes, tree
from tests.testing.lamps import Forgetful, InMemory, LampDriver

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.fixture
def lamps(dra_node):
    for name in ("lamp-0", "lamp-1"):
        dra_node.file(f"/sys/class/lamps/{name}/watt", "5\n")
        dra_node.file(f"/sys/class/lamps/{name}/on")
        dra_node.device_node(f"/dev/{name}")
        dra_node.file(f"/run/{name}/socket")
    return dra_node


def test_a_sound_driver_is_killed_everywhere_and_survives(lamps, dra_driver):
    driver = dra_driver(LampDriver)
    before = tree(lamps.root)
    lines = assert_survives_crashes(driver, claim())
    steps = assert_survives_crashes(driver, claim("a", "b"), lines=False)
    assert min(lines, steps) > 30
    assert tree(lamps.root) == before
    driver.assert_clean()


@pytest.mark.parametrize("kind", [Forgetful, InMemory])
def test_a_driver_that_does_not_is_told_where(lamps, dra_driver, kind):
    with pytest.raises(AssertionError, match=r"killed in prepare at point \d+ \(lamps\.py, line \d+\), then") as caught:
        assert_survives_crashes(dra_driver(kind), claim())
    assert "lamp-0" in str(caught.value)


def test_a_driver_that_fails_without_a_crash(lamps, dra_driver):
    driver = dra_driver(LampDriver)
    driver.allocate(asked := claim())
    lamps.file("/sys/class/lamps/lamp-0/on", "somebody")
    with pytest.raises(PermanentError, match="lamp lamp-0 is on"):
        assert_survives_crashes(driver, asked)


def test_an_instance_cannot_be_started_again(lamps, dra_driver):
    with pytest.raises(TypeError, match="as a class or a function"):
        assert_survives_crashes(dra_driver(LampDriver()), claim())


def test_a_tree_has_contents_and_links(lamps):
    lamps.link("/sys/here", "class/lamps")
    found = tree(lamps.root)
    assert (found["sys/here"], found["sys/class/lamps/lamp-0/watt"]) == ("class/lamps", b"5\n")
