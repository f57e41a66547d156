from __future__ import annotations

import pytest

from dra_sdk.errors import ApiError, InvalidError, UnreachableError
from dra_sdk.node.slices.backoff import Backoff


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.25), (2, 0.5), (5, 4.0), (20, 60.0), (10**6, 60.0)])
def test_failures_double_the_wait_up_to_a_limit(failures: int, seconds: float):
    waits = [Backoff().after_failure(failures, UnreachableError("x")) for _ in range(100)]
    assert all(0.8 * seconds <= wait <= 1.2 * seconds for wait in waits)
    assert len(set(waits)) > 1  # jitter


def test_what_is_refused_waits_longer():
    refused = InvalidError("x", status=422)
    assert 4.0 <= Backoff().after_failure(1, refused) <= 6.0
    assert 240.0 <= Backoff().after_failure(20, refused) <= 360.0


def test_retry_after_is_a_lower_limit():
    assert Backoff().after_failure(1, ApiError("x", status=429, retry_after=30)) == 30.0
    assert Backoff().after_failure(20, ApiError("x", status=429, retry_after=1)) > 1


def test_any_error_has_a_wait():
    assert 0.2 <= Backoff().after_failure(1, KeyError("bug")) <= 0.3


def test_repairs():
    assert [Backoff().before_repair(count) for count in (0, 1, 2, 3, 50)] == [0.0, 0.2, 0.4, 0.8, 60.0]
