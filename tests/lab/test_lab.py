"""Boots the virtual machine once and tells here, for each test inside it, how it went there.

Needs root, and about six minutes on two busy cores: every instruction of the machine is emulated.
"""

from __future__ import annotations

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.progress import Progress
from tests.lab.collected import INSIDE, ROOT, inside_tests
from tests.lab.harness.layers import ensure_layers
from tests.lab.harness.machine import TIME, run_tests

pytestmark = pytest.mark.timeout(0)  # the machine has a time limit of its own, and cleans up after it


@pytest.fixture(scope="session")
def outcome(pytestconfig):
    """Of all tests inside. What takes so long is said on the terminal, although output is captured."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print()
        progress = Progress()
        layers = ensure_layers(Cache.from_env(), ROOT, progress)
        return run_tests(layers, ROOT, [INSIDE, "-v"], progress, seconds=TIME)


@pytest.mark.parametrize("test", inside_tests())
def test_inside_the_machine(outcome, test):
    if problem := outcome.problem(test):
        pytest.fail(problem, pytrace=False)


def test_nothing_else_went_wrong_in_the_machine(outcome):
    expected = inside_tests()
    failed = any(outcome.problem(test) for test in expected)
    said = f"{outcome.ended}; the console ends:\n{outcome.tail()}"
    assert not outcome.why, said
    assert outcome.status == int(failed), said
    assert set(outcome.cases) == set(expected), said
