"""The whole suite for pytest, where there is no test of one's own.

`pytest -p dra_sdk.tools.conformance.pytest_plugin --pyargs dra_sdk.tools.conformance.pytest_suite --dra-command '…'`
"""

from __future__ import annotations

from collections.abc import Callable


def test_conformance(dra_check: Callable[[], None]) -> None:
    """The driver keeps to the sentence of this check."""
    dra_check()
