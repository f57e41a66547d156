"""Writing `status.devices`: what is tried again, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.errors import ApiError, ConflictError, InvalidError, NotFoundError, UnreachableError
from dra_sdk.node.runtime import statuses
from dra_sdk.node.runtime.statuses import StatusWriter
from dra_sdk.wire.dra import ClaimRef
from tests.waiting import LONG, wait

FIRST, SECOND = ClaimRef("ns", "first", "1"), ClaimRef("ns", "second", "2")


class Api:
    """Answers with these errors first; notes what was applied, by name of the claim."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.asked = 0
        self.applied: list[tuple[str, Any]] = []

    def apply(self, _path: str, body: dict[str, Any], *, field_manager: str) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        assert field_manager == "d"
        self.applied.append((body["metadata"]["name"], body["status"]["devices"]))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statuses, "FIRST_DELAY", 0.001)


def written(api: Api, *refs: ClaimRef, attempts: int) -> list[tuple[str, Any]]:
    writer = StatusWriter("d", lambda: api)  # type: ignore[arg-type, return-value]
    for ref in refs:
        writer.put(ref, [{"device": ref.name}])
    writer.start()
    wait(lambda: api.asked >= attempts)
    writer.stop(LONG)
    assert api.asked == attempts
    return api.applied


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("no answer"),
        ApiError("busy", status=503),
        ConflictError("Operation cannot be fulfilled on resourceclaims: the object has been modified; please apply"),
    ],
)
def test_what_may_pass_is_tried_again_after_the_others(error: ApiError) -> None:
    found = written(Api(error), FIRST, SECOND, attempts=3)
    assert found == [("second", [{"device": "second"}]), ("first", [{"device": "first"}])]


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("no such claim", status=404),
        ConflictError("Precondition failed: UID in precondition: 1, UID in object meta: 3", status=409),
        InvalidError('metadata.uid: Invalid value: "1": field is immutable', status=422),
        InvalidError("too long", status=422),
        ApiError("no right", status=403),
    ],
)
def test_what_stays_is_not_tried_again(error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    assert written(Api(error), FIRST, SECOND, attempts=2) == [("second", [{"device": "second"}])]
    told = isinstance(error, InvalidError) and "uid" not in str(error)
    assert [each.levelname for each in caplog.records] == ["ERROR"] * (told or error.status == 403)
