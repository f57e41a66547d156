"""The thread that keeps a `SliceCache` equal to the API server: list, watch, and list again when necessary."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread

from dra_sdk.errors import ApiError, GoneError, UnreachableError
from dra_sdk.kube.api import EventStream, KubeApi
from dra_sdk.kube.paths import resource_slices
from dra_sdk.model import JSON
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.node.slices.cache import SliceCache, SliceSelection, pool_of

_log = logging.getLogger(__name__)


class SliceWatcher:
    """Follows one selection in its own thread, until `stop`.

    changed: called with the pools whose slices changed; with None after each list, when any of them may have changed.
    failed: called with each error, and with None when requests succeed again.
    """

    def __init__(
        self,
        api: KubeApi,
        selection: SliceSelection,
        cache: SliceCache,
        changed: Callable[[Iterable[str] | None], None],
        failed: Callable[[Exception | None], None],
        *,
        backoff: Backoff,
    ) -> None:
        self._api = api
        self._selection = selection
        self._cache = cache
        self._report_change, self._report_failure = changed, failed
        self._backoff = backoff
        self._stop = Event()
        self._lock = Lock()
        self._stream: EventStream | None = None
        self._version = ""
        self._failures = 0
        self._opened: float | None = None
        self._has_failed = False
        self._thread = Thread(target=self._run, name=f"slices-watch-{selection.scope.value}")

    def start(self) -> None:
        """Start following."""
        self._thread.start()

    def stop(self) -> None:
        """Stop. The watch is closed at once; a request in progress is waited for."""
        self._stop.set()
        with self._lock:
            if self._stream:
                self._stream.close()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                if not self._watch():
                    self._stop.wait(self._backoff.retry)  # a pause, in case the server ends watches at once
            except Exception as error:  # noqa: BLE001 (a bug must be reported, and must not end the thread)
                if not self._stop.is_set():
                    self._failed(error)

    def _list(self) -> None:
        self._cache.before_list(self._selection.scope)
        query = {"fieldSelector": self._selection.field_selector}
        slices = self._api.list(resource_slices(), query)
        version = str(slices["metadata"]["resourceVersion"])
        self._cache.listed(self._selection.scope, filter(self._selection.accepts, slices["items"]), version)
        self._version = version
        self._report_change(None)

    def _watch(self) -> bool:
        """Follow one watch until the server ends it; False if there was no event, not even a bookmark."""
        query = {"fieldSelector": self._selection.field_selector}
        stream = self._api.watch(resource_slices(), query, resource_version=self._version)
        self._opened = opened = time.monotonic()
        with self._lock:
            self._stream = stream
        if self._stop.is_set():
            stream.close()
        heard = False
        try:
            if self._has_failed:
                self._has_failed = False
                self._report_failure(None)
            for event in stream:
                heard, self._failures = True, 0
                self._event(event["type"], event["object"])
        finally:
            with self._lock:
                self._stream = None
            stream.close()
        if not heard and time.monotonic() - opened > self._backoff.calm:
            self._version = ""  # a server restored from a backup sends nothing until it reaches this version again
        return heard

    def _event(self, kind: str, item: JSON) -> None:
        if kind != "BOOKMARK":
            mine = self._selection.accepts(item)
            if self._cache.seen(kind, item) if mine else self._cache.lost(item["metadata"]["name"]):
                self._report_change([pool_of(item)])
        self._version = item["metadata"]["resourceVersion"]

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, UnreachableError):
            self._version = ""  # start again from a list
        if self._opened is not None and time.monotonic() - self._opened > self._backoff.retry_limit:
            self._failures = 0  # it worked for a while
        self._opened = None
        self._failures += 1
        if self._failures == 1 and isinstance(error, (GoneError, UnreachableError)):
            _log.debug("%s", error)  # it is normal that a watch breaks off sometimes
        else:
            self._has_failed = True
            self._report_failure(error)
        if not isinstance(error, ApiError):
            _log.error("following ResourceSlices failed", exc_info=error)
        self._stop.wait(self._backoff.after_failure(self._failures, error))
