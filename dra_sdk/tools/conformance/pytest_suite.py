"""All checks as a test module, for drivers without a test suite of their own.

`pytest -p dra_sdk.tools.conformance.pytest_plugin --pyargs dra_sdk.tools.conformance.pytest_suite --dra-command '…'`
"""

from __future__ import annotations

from collections.abc import Callable


def test_conformance(dra_check: Callable[[], None]) -> None:
    """Check that the driver keeps the contract of this check."""
    dra_check()
