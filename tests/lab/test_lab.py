"""Boots the virtual machine and reports the result of each test inside it as a test of its own.

Needs root. Three minutes on an idle machine, many more on a busy one: every instruction is emulated.
"""

from __future__ import annotations

import os

import pytest

from tests.cluster.harness.cache import DEFAULT_VERSION, Cache
from tests.cluster.harness.progress import Progress
from tests.lab.harness.layers import compile_checkout, ensure_layers
from tests.lab.harness.machine import run_tests
from tests.lab.harness.outcome import INSIDE, NEEDS_KERNEL, REBOOTED, ROOT, expected_tests
from tests.lab.harness.plane import node_plane

pytestmark = pytest.mark.timeout(0)  # the machine has a time limit of its own, which also removes it


@pytest.fixture(scope="session")
def outcome(pytestconfig):
    """The results of all tests inside. Progress goes to the terminal, although pytest captures the output."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print()
        progress = Progress()
        cache = Cache.from_env()
        layers = ensure_layers(cache, ROOT, progress)
        compile_checkout(layers, ROOT, progress)
        with node_plane(cache, os.environ.get("KUBE_VERSION") or DEFAULT_VERSION, progress) as plane:
            return run_tests(layers, ROOT, [[INSIDE, NEEDS_KERNEL, "-v"], [REBOOTED, "-v"]], progress, plane=plane)


@pytest.mark.parametrize("test", expected_tests())
def test_inside_the_machine(outcome, test):
    if problem := outcome.problem(test):
        pytest.fail(problem, pytrace=False)


def test_the_machine_powered_off_after_exactly_the_tests_that_are_there(outcome):
    expected = expected_tests()
    failed = any(outcome.problem(test) for test in expected)
    details = f"{outcome.ended}; the console ends:\n{outcome.tail()}"
    assert not outcome.why, details
    assert outcome.status == int(failed), details
    assert set(outcome.cases) == set(expected), details
