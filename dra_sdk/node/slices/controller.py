"""Keeps the API server's ResourceSlices equal to what the driver published last.

One thread, `slices`, does all the work; it has one more, `slices-watch-…`, for each watch. Without changes the watch is
its only traffic; a restart with equal devices writes nothing; slices stay when the driver stops, and the kubelet
removes them if it does not come back. A slice that somebody else changes or deletes is repaired at once, and
after a growing delay if that is repeated, but not if it is the kubelet, which deletes all slices of its node when it
starts. Failed writes are retried with a back-off for each pool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from threading import Condition, Event, Lock, Thread

from dra_sdk.errors import ApiError, DraError
from dra_sdk.kube.api import KubeApi
from dra_sdk.kube.paths import node, resource_slices
from dra_sdk.model import JSON
from dra_sdk.model.device import ResourcePool
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.node.slices.cache import Scope, SliceCache, select
from dra_sdk.node.slices.diff import Operation, Owner, PoolIdentity, diff, with_times
from dra_sdk.node.slices.gates import DROPPING_GATES, samples
from dra_sdk.node.slices.packing import depends_on_release, for_release
from dra_sdk.node.slices.plan import plan
from dra_sdk.node.slices.queue import Desired, PoolQueue, PoolState
from dra_sdk.node.slices.watcher import SliceWatcher
from dra_sdk.node.slices.withholding import ServerFit, fit_server
from dra_sdk.node.slices.writer import DroppedFieldsError, SliceWriter, Stats
from dra_sdk.wire.profile import NEWEST, ServerProfile

OnError = Callable[[str, Exception], None]
_log = logging.getLogger(__name__)


def log_error(pool: str, error: Exception) -> None:
    """Log why a pool is not published, "" standing for all pools; with a traceback if that was not expected."""
    _log.warning("pool %s: %s", pool or "-", error, exc_info=None if isinstance(error, DraError) else error)


class SliceController:
    """The publisher of one driver.

    driver: the driver's name.
    node_name: the driver's node; None for a driver that publishes for the whole cluster, whose pools say themselves
        which nodes reach them.
    connect: returns an API client, which the controller does not close; called in the controller's thread, and again
        after a delay if it raises.
    on_error: called with a pool and its problem, from any thread; pool "" stands for all pools.
    owner: the object with which the slices are deleted, for a driver without node.
    backoff: the delays.
    kubelet_restarted: called in the controller's thread when slices are missing that were there; returns whether the
        kubelet has deleted them at its start, once the driver may publish them again.
    """

    def __init__(
        self,
        driver: str,
        node_name: str | None,
        connect: Callable[[], KubeApi],
        on_error: OnError = log_error,
        *,
        owner: Owner | None = None,
        backoff: Backoff | None = None,
        kubelet_restarted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._driver = driver
        self._node_name = node_name
        self._connect = connect
        self._on_error = on_error
        self._owner = owner
        self._backoff = backoff or Backoff()
        self._kubelet_restarted = kubelet_restarted
        self._cache = SliceCache()
        self._queue = PoolQueue(self._backoff)
        self._changed = Condition()  # guards the queue, the stats and the general error
        self._publishing = Lock()
        self._stats = Stats()
        self._error: Exception | None = None
        self._watchers: dict[Scope, SliceWatcher] = {}
        self._listed: set[Scope] = set()
        self._owner_is_old = False
        self._has_shared = False
        self._stop = Event()
        self._thread = Thread(target=self._run, name="slices")

    def start(self) -> None:
        """Start the thread. Nothing is written before the first `publish`."""
        self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """End the thread; slices stay. Waits for a request in progress. False after `timeout` seconds."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def publish(self, pools: Iterable[ResourcePool]) -> None:
        """Make these the driver's pools; returns at once. The latest call wins, and pools left out are deleted.

        A pool that breaks a rule stays as it was published before; `on_error` and `errors` have the reason.
        """
        with self._publishing:
            plans = plan(pools, driver=self._driver, node_name=self._node_name)
            with self._changed:
                problems = self._queue.publish(plans, self._cache.pools(), time.monotonic())
                self._stats.errors += len(problems)
                self._changed.notify_all()
        for error in problems:
            self._report(error.subject.removeprefix("pool "), error)

    @property
    def stats(self) -> Stats:
        """A copy of the counts of writes and errors."""
        with self._changed:
            return replace(self._stats)

    @property
    def errors(self) -> dict[str, Exception]:
        """Why a pool is not published as desired, by pool; "" stands for all pools (no connection)."""
        with self._changed:
            general = {"": self._error} if self._error else {}
            return {**general, **self._queue.errors()}

    @property
    def withheld(self) -> dict[str, Mapping[str, str]]:
        """The devices that are not published because the server drops fields, with the gate, by pool."""
        return {pool: error.withheld for pool, error in self.errors.items() if isinstance(error, DroppedFieldsError)}

    @property
    def synced(self) -> bool:
        """Whether the server has all that was published last, apart from fields that it does not know."""
        with self._changed:
            return self._queue.is_settled() and self._is_listed()

    def _is_listed(self) -> bool:
        return bool(self._watchers) and self._listed >= self._watchers.keys()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            since = float("inf")  # when it started to work
            try:
                api = self._connect()
                if self._node_name is not None:
                    self._owner = self._node(api, self._node_name)
                    self._has_shared = self._finds_shared(api)
                self._general(None)
                since = time.monotonic()
                self._serve(api)
            except Exception as error:  # noqa: BLE001 (anything that connecting raises; a bug must not end the thread)
                failures = 1 if time.monotonic() - since > self._backoff.calm else failures + 1
                self._general(error)
                self._stop.wait(self._backoff.after_failure(failures, error))

    def _serve(self, api: KubeApi) -> None:
        """Work on one pool after the other until `stop`."""
        writer = SliceWriter(api, self._cache, self._stats)
        try:
            while not self._stop.is_set():
                self._watch(api)
                if pool := self._next():
                    self._work(writer, api, pool)
        finally:
            for watcher in self._watchers.values():
                watcher.stop()
            with self._changed:
                self._watchers.clear()
                self._listed.clear()

    def _next(self) -> PoolState | None:
        """Wait for a pool that is due; None on stop, or if a watch must be started first."""
        with self._changed:
            while not self._stop.is_set():
                if self._queue.has_cluster_pools() and Scope.CLUSTER not in self._watchers:
                    return None
                pool, now = self._queue.next(), time.monotonic()
                due = pool.due if pool and self._is_listed() else None
                if due is not None and due <= now:
                    return pool
                self._changed.wait(None if due is None else due - now)
        return None

    def _work(self, writer: SliceWriter, api: KubeApi, pool: PoolState) -> None:
        """Make the server's slices of one pool equal to the desired ones."""
        with self._changed:
            desired, known = self._queue.begin(pool), pool.error
        specs: Sequence[JSON] = desired.specs
        try:
            specs, dropped = self._write(writer, api, pool, desired)
            # The time of a taint decides when pods are evicted, so the server's value is kept.
            specs = with_times(specs, [item["spec"] for item in self._cache.of_pool(pool.name)])
            self._cache.share(pool.name, specs)
        except Exception as error:  # noqa: BLE001 (a problem with one pool must not hold up the others)
            with self._changed:
                self._stats.errors += 1
                worth_reporting = self._queue.failed(pool, desired, specs, error, time.monotonic())
            if worth_reporting:
                self._report(pool.name, error)
            return
        with self._changed:
            # An event is in the cache before it makes the pool due, so if both are equal here, no event is missing.
            is_current = not self._diff(pool, specs)
            self._queue.done(pool, desired, specs, dropped, is_current=is_current)
        if dropped and str(dropped) != str(known):
            self._report(pool.name, dropped)

    def _write(
        self, writer: SliceWriter, api: KubeApi, pool: PoolState, desired: Desired
    ) -> tuple[Sequence[JSON], DroppedFieldsError | None]:
        """Make the server have the desired specs. Return them as it keeps them, and what it drops.

        What it would drop is asked before anything is visible. But servers of two releases may stand side by side, so
        each answer is compared too, and if it lacks more, then devices are withdrawn at once.
        """
        if not self._diff(pool, desired.specs):
            return desired.specs, pool.error if isinstance(pool.error, DroppedFieldsError) else None
        if pool.settled:
            self._begin_repair(pool, desired.specs)
        if self._owner_is_old and self._node_name is not None:
            self._owner, self._owner_is_old = self._node(api, self._node_name), False
        wanted = self._for_server(api, desired)
        lost = writer.lost_gates(wanted, self._identity(pool))
        while True:
            fit = fit_server(wanted, lost, desired.preferences)
            specs, dropped = writer.apply(self._diff(pool, fit.specs), fit.specs, pool.name)
            surprising = set(dropped.gates) & DROPPING_GATES - lost if dropped else set()
            if not surprising:
                return specs, _dropped(pool.name, fit, dropped)
            lost |= surprising

    def _for_server(self, api: KubeApi, desired: Desired) -> Sequence[JSON]:
        """Return the specs as they are sent to a server of this release, before it is known what it drops."""
        if depends_on_release(desired.planned):
            return with_times(for_release(desired.planned, _minor(api)), desired.specs)
        is_gated = any(True for _ in samples(desired.planned))
        return with_times(desired.planned, desired.specs) if is_gated else desired.specs

    def _begin_repair(self, pool: PoolState, specs: Sequence[JSON]) -> None:
        """Wait for the kubelet to register the driver if it has deleted the slices at its start."""
        missing = len(self._cache.of_pool(pool.name)) < len(specs)
        if missing and self._kubelet_restarted():
            _log.info("pool %s: the kubelet has restarted; publishing its slices again", pool.name)
        else:
            _log.warning("pool %s: somebody else changed its slices; putting them right", pool.name)
            with self._changed:
                self._queue.repairing(pool, time.monotonic())
        # The Node may have been created again; slices of the old one would be deleted with it.
        self._owner_is_old = True

    def _diff(self, pool: PoolState, specs: Sequence[JSON]) -> list[Operation]:
        return diff(self._cache.of_pool(pool.name), specs, self._identity(pool))

    def _identity(self, pool: PoolState) -> PoolIdentity:
        return PoolIdentity(self._driver, pool.name, self._owner)

    def _watch(self, api: KubeApi) -> None:
        """Start the watches that are needed and not yet running."""
        needed = {Scope.CLUSTER if self._node_name is None else Scope.NODE}
        with self._changed:
            if self._has_shared or self._queue.has_cluster_pools():
                needed.add(Scope.CLUSTER)
        for scope in needed - set(self._watchers):
            selection = select(scope, self._driver, self._node_name)
            touched = partial(self._touched, scope)
            watcher = SliceWatcher(api, selection, self._cache, touched, self._general, backoff=self._backoff)
            with self._changed:
                self._watchers[scope] = watcher
            watcher.start()

    def _finds_shared(self, api: KubeApi) -> bool:
        """Return whether an earlier run published slices for several nodes: ours even if no pool needs them."""
        selection = select(Scope.CLUSTER, self._driver, self._node_name)
        slices = api.list(resource_slices(), {"fieldSelector": selection.field_selector})
        return any(map(selection.accepts, slices["items"]))

    def _touched(self, scope: Scope, pools: Iterable[str] | None) -> None:
        with self._changed:
            if pools is None:
                self._listed.add(scope)
                self._queue.listed(self._cache.pools(), time.monotonic())
            else:
                self._queue.touched(pools, time.monotonic())
            self._changed.notify_all()

    def _general(self, error: Exception | None) -> None:
        """Set the problem of all pools; None clears it."""
        with self._changed:
            self._error = error
            if error is None:
                self._queue.reachable(time.monotonic())
            else:
                self._stats.errors += 1
            self._changed.notify_all()
        if error is not None:
            self._report("", error)

    def _report(self, pool: str, error: Exception) -> None:
        try:
            self._on_error(pool, error)
        except Exception:  # noqa: BLE001 (it is the caller's code)
            _log.exception("the error handler of the slice controller failed on: %s", error)

    @staticmethod
    def _node(api: KubeApi, name: str) -> Owner:
        return Owner(name, str(api.get(node(name))["metadata"]["uid"]))


def _dropped(pool: str, fit: ServerFit, answered: DroppedFieldsError | None) -> DroppedFieldsError | None:
    """Return all that the server drops: what was left out for it, and what its answers lacked beyond that."""
    fields = {**fit.dropped, **(answered.dropped if answered else {})}
    return DroppedFieldsError(pool, fields, fit.withheld) if fields else None


def _minor(api: KubeApi) -> int:
    """Return the server's minor release, asked before each write that depends on it, because servers are upgraded.

    If the server does not answer, the newest release is assumed.
    """
    try:
        version = api.get("/version")
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return NEWEST
    return ServerProfile.of(str(version.get("gitVersion", ""))).minor
