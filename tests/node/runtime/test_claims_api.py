"""Reading claims and writing `status.devices`: what is tried again, and what waits for nobody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from dra_sdk.errors import (
    ApiError,
    ClaimError,
    ConflictError,
    InvalidError,
    NotFoundError,
    SettingsError,
    UnreachableError,
)
from dra_sdk.kube.client import KubeClient
from dra_sdk.model.claim import NO_DEADLINE, ClaimRef, Deadline
from dra_sdk.node.runtime import claims_api
from dra_sdk.node.runtime.claims_api import ApiConnection, ClaimStatusWriter
from dra_sdk.testing.waiting import LONG, wait

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
    monkeypatch.setattr(claims_api, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(claims_api, "SETTLE_SECONDS", 0.0)


def written(api: Api, *refs: ClaimRef, attempts: int) -> list[tuple[str, Any]]:
    writer = ClaimStatusWriter("d", lambda: api)  # type: ignore[arg-type, return-value]
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


def test_parameters_that_the_server_writes_in_another_way_are_named(caplog: pytest.LogCaptureFixture) -> None:
    error = InvalidError("status.allocation: Forbidden: changing status.allocation; field is immutable", status=422)
    written(Api(error), FIRST, SECOND, attempts=2)
    assert "opaque parameters have spaces or keys that are not sorted" in caplog.text


def test_a_status_that_is_replaced_at_once_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(claims_api, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(claims_api, "monotonic", lambda: clock[0])
    api = Api()
    writer = ClaimStatusWriter("d", lambda: api)  # type: ignore[arg-type, return-value]
    writer.start()
    for status in ("planned", "ready"):
        writer.put(FIRST, [{"device": status}])
    assert api.asked == 0
    clock[0] = 1.0
    wait(lambda: api.asked)
    writer.put(FIRST, [{"device": "gone"}])
    clock[0] = 2.0
    wait(lambda: api.asked == 2)
    writer.stop(LONG)
    assert api.applied == [("first", [{"device": "ready"}]), ("first", [{"device": "gone"}])]


class Client:
    """Stands in for a KubeClient; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.closed = False

    def get(self, path: str, *, patience: float) -> dict[str, Any]:
        self.asked.append((path, patience))
        return {}

    def close(self) -> None:
        self.closed = True


def test_a_claim_is_read_in_the_time_that_is_left() -> None:
    client = Client()
    api = ApiConnection(lambda: client)  # type: ignore[arg-type, return-value]
    for deadline in (NO_DEADLINE, Deadline(lambda: 3.0), Deadline(lambda: 30.0)):
        api.fetch(FIRST, deadline)
    path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/first"
    assert client.asked == [(path, 10.0), (path, 3.0), (path, 10.0)]
    with pytest.raises(ClaimError, match="needs a name"):
        api.fetch(ClaimRef("ns", "", "1"), NO_DEADLINE)


def test_closing_waits_for_nobody_who_connects() -> None:
    """A plugin that gives credentials may hang for ever, and the process must end all the same."""
    entered, leave = Event(), Event()

    def hang() -> KubeClient:
        entered.set()
        assert leave.wait(LONG)
        raise SettingsError("no credentials")

    api = ApiConnection(hang)
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(api.get)
        assert entered.wait(LONG)
        pool.submit(api.close).result(LONG)
        leave.set()
        assert isinstance(call.exception(LONG), SettingsError)
    with pytest.raises(UnreachableError, match="connects to the API server no more"):
        api.get()


def test_a_connection_that_could_not_be_made_is_tried_again() -> None:
    client, fails = Client(), [True]

    def connect() -> Any:
        if fails:
            fails.pop()
            raise SettingsError("no credentials")
        return client

    api = ApiConnection(connect)
    with pytest.raises(SettingsError):
        api.get()
    assert api.get() is api.get() is client  # type: ignore[comparison-overlap]
    api.close()
    assert client.closed
