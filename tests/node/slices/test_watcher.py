from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import monotonic
from typing import Any

import pytest

from dra_sdk.errors import ApiError, GoneError, UnreachableError
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.node.slices.cache import Scope, SliceCache, select
from dra_sdk.node.slices.watcher import SliceWatcher
from dra_sdk.testing.waiting import LONG, wait

FAST = Backoff(retry=0.01, retry_limit=0.02)


def item(name: str, version: int, node: str = "n") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": str(version)},
        "spec": {"driver": "d", "nodeName": node, "pool": {"name": "p"}},
    }


def event(kind: str, name: str, version: int, node: str = "n") -> dict[str, Any]:
    return {"type": kind, "object": item(name, version, node)}


@dataclass(frozen=True)
class Counted(Backoff):
    """Remembers for how many failures in a row it was asked, and pauses hardly at all."""

    failures: list[int] = field(default_factory=list)

    def after_failure(self, failures: int, error: Exception) -> float:
        self.failures.append(failures)
        return 0.001


def ignore(_: object) -> None:
    """For those who need not be told."""


class Stream:
    """A watch with these events, which then ends, or (an exception) breaks, or (None) stays open until closed."""

    def __init__(self, *steps: dict[str, Any] | Exception | None) -> None:
        self.steps = steps
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if step is None:
                self.closed.wait(LONG)
                return
            yield step

    def close(self) -> None:
        self.closed.set()


class Api:
    """Answers lists and watches from a script; after its end a watch stays open."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[tuple[str, str]] = []
        self.quiet = threading.Event()

    def list(self, path: str, params: dict[str, str]) -> dict[str, Any]:
        self.asked.append(("list", ""))
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer[1], "metadata": {"resourceVersion": answer[0]}}

    def watch(self, path: str, params: dict[str, str], *, resource_version: str) -> Stream:
        self.asked.append(("watch", resource_version))
        if not self.watches:
            self.quiet.set()
            return Stream(None)
        answer = self.watches.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def follow(api: Api, timing: Backoff = FAST) -> tuple[SliceCache, list[Any], list[Any]]:
    """Runs a watcher until the script is over; what it told: pools, and errors."""
    cache, changed, failed = SliceCache(), [], []

    def tell(pools: Iterable[str] | None) -> None:
        changed.append(pools if pools is None else list(pools))

    selection = select(Scope.NODE, "d", "n")
    watcher = SliceWatcher(api, selection, cache, tell, failed.append, backoff=timing)  # type: ignore[arg-type]
    watcher.start()
    assert api.quiet.wait(LONG)
    watcher.stop()
    assert None in changed, "it listed"
    return cache, changed, failed


def names(cache: SliceCache) -> list[str]:
    return sorted(each["metadata"]["name"] for each in cache.of_pool("p"))


def test_list_then_watch_from_there():
    api = Api([("5", [item("a", 3)])], [Stream(event("ADDED", "b", 7), event("DELETED", "a", 8))])
    cache, changed, failed = follow(api)
    assert names(cache) == ["b"]
    assert changed == [None, ["p"], ["p"]]
    assert api.asked == [("list", ""), ("watch", "5"), ("watch", "8")]
    assert failed == []


def test_bookmarks_move_on():
    api = Api([("5", [])], [Stream({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}})])
    _, changed, _ = follow(api)
    assert api.asked[-1] == ("watch", "99")
    assert changed == [None]


def test_others_are_none_of_our_business():
    api = Api([("5", [item("x", 1, "m")])], [Stream(event("ADDED", "y", 7, "m"), event("DELETED", "y", 8, "m"))])
    cache, changed, _ = follow(api)
    assert names(cache) == []
    assert changed == [None]
    assert api.asked[-1] == ("watch", "8")


def test_a_slice_that_leaves_the_selection_is_gone():
    api = Api([("5", [item("a", 3)])], [Stream(event("MODIFIED", "a", 7, "m"))])
    cache, changed, _ = follow(api)
    assert names(cache) == []
    assert changed == [None, ["p"]]


def test_a_broken_watch_goes_on_where_it_was():
    broken = UnreachableError("broke off")
    api = Api([("5", [])], [Stream(event("ADDED", "a", 7), broken), Stream(event("ADDED", "b", 9))])
    cache, _, failed = follow(api)
    assert names(cache) == ["a", "b"]
    assert api.asked == [("list", ""), ("watch", "5"), ("watch", "7"), ("watch", "9")]
    assert failed == []  # told only if it goes on


def test_a_watch_that_stays_broken_is_told():
    broken = [UnreachableError("broke off"), UnreachableError("refused"), UnreachableError("refused again")]
    _, _, failed = follow(Api([("5", [])], [*broken]))
    assert failed == [*broken[1:], None]


@pytest.mark.parametrize("inside", [True, False])
def test_too_old_lists_again_without_alarm(inside: bool):
    gone = GoneError("too old", status=410)
    api = Api([("5", [item("a", 3)]), ("50", [item("b", 40)])], [Stream(gone) if inside else gone])
    cache, changed, failed = follow(api)
    assert names(cache) == ["b"]
    assert changed == [None, None]
    assert api.asked == [("list", ""), ("watch", "5"), ("list", ""), ("watch", "50")]
    assert failed == []


def test_always_too_old_is_told():
    gone = GoneError("too old", status=410)
    api = Api([("5", []), ("6", []), ("7", [])], [gone, gone])
    _, _, failed = follow(api)
    assert api.asked[-1] == ("watch", "7")
    assert failed == [gone, None]


def test_a_list_that_works_does_not_hide_a_watch_that_does_not():
    """No right to watch, for instance: the pauses must grow all the same."""
    forbidden = ApiError("no watch", status=403)
    api = Api([(str(version), []) for version in range(5, 500)], [forbidden] * 400)
    timing = Counted(retry_limit=60)
    watcher = SliceWatcher(api, select(Scope.NODE, "d", "n"), SliceCache(), ignore, ignore, backoff=timing)  # type: ignore[arg-type]
    watcher.start()
    wait(lambda: len(timing.failures) >= 10)
    watcher.stop()
    assert timing.failures == list(range(1, len(timing.failures) + 1))


def test_a_server_with_older_versions_lists_again():
    """After etcd was restored the server does not know our version yet, and says so with a 504."""
    api = Api([("500", []), ("4", [item("a", 3)])], [ApiError("Too large resource version", status=504)])
    cache, _, _ = follow(api)
    assert names(cache) == ["a"]
    assert api.asked[-1] == ("watch", "4")


class Silent(Stream):
    """A watch that lasts for a while, without as much as a bookmark."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.closed.wait(0.05)
        yield from self.steps  # type: ignore[misc]


def test_a_watch_in_which_not_even_a_bookmark_came_lists_again():
    """A server that was restored from a backup takes a version that it has not reached, and waits for it."""
    api = Api([("900", [item("a", 800)]), ("7", [item("b", 6)])], [Silent(event("BOOKMARK", "", 950)), Silent()])
    cache, _, failed = follow(api, replace(FAST, calm=0.01))
    assert api.asked == [("list", ""), ("watch", "900"), ("watch", "950"), ("list", ""), ("watch", "7")]
    assert names(cache) == ["b"]
    assert failed == []


def test_a_list_that_fails_is_repeated():
    errors = [ApiError("busy", status=503), UnreachableError("away"), ApiError("no", status=403)]
    api = Api([*errors, ("5", [])], [])
    _, _, failed = follow(api)
    assert failed == [*errors, None]


def test_a_bug_does_not_end_the_thread(caplog: pytest.LogCaptureFixture):
    api = Api([("5", []), ("6", [])], [Stream({"type": "ADDED", "object": {}})])
    _, _, failed = follow(api)
    assert [type(error) for error in failed] == [KeyError, type(None)]
    assert "following ResourceSlices failed" in caplog.text


def test_watches_that_end_at_once_are_not_hammered():
    begun: list[float] = []

    class Timed(Api):
        def watch(self, path: str, params: dict[str, str], *, resource_version: str) -> Stream:
            begun.append(monotonic())
            return super().watch(path, params, resource_version=resource_version)

    api = Timed([("5", [])], [Stream() for _ in range(5)])
    watcher = SliceWatcher(
        api,
        select(Scope.NODE, "d", "n"),
        SliceCache(),
        ignore,
        ignore,
        backoff=Backoff(retry=0.05),  # type: ignore[arg-type]
    )
    watcher.start()
    assert api.quiet.wait(LONG)
    watcher.stop()
    assert len(begun) == 6
    assert all(after - before >= 0.05 for before, after in pairwise(begun))


def test_stop_without_start():
    api = Api([], [])
    SliceWatcher(api, select(Scope.NODE, "d", "n"), SliceCache(), ignore, ignore, backoff=FAST).stop()  # type: ignore[arg-type]
    assert api.asked == []
