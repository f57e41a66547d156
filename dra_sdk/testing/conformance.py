"""The conformance kit in a test: the driver runs as a process of its own, with a kubelet and an API server.

    def test_it_conforms(dra_node: FakeNode) -> None:
        assert_conforms(Target(driver="serial_driver:SerialDriver", host_root=dra_node.root))

`docs/conformance.md` says what is checked, and how to have one test for each check.
"""

from __future__ import annotations

from collections.abc import Collection

from dra_sdk.tools.conformance.check import Result, Severity, run_checks
from dra_sdk.tools.conformance.checks import CHECKS
from dra_sdk.tools.conformance.target import Target
from dra_sdk.tools.conformance.timeouts import Timeouts

__all__ = ["Target", "Timeouts", "assert_conforms"]


def assert_conforms(target: Target, *, without: Collection[str] = ()) -> list[Result]:
    """Run the checks but those of the levels `without`, and return their results.

    AssertionError if a `must` fails, or if less than half of the checks apply to the driver.
    """
    with target.open() as run:
        results = run_checks(run, [check for check in CHECKS if check.level not in without])
    broken = [result for result in results if result.failed and result.check.severity is Severity.MUST]
    assert not broken, "\n".join(f"{result.check.id}: {result.reason}" for result in broken)
    passed = sum(not result.reason for result in results)
    assert passed > len(results) / 2, f"only {passed} of {len(results)} checks passed"
    return results
