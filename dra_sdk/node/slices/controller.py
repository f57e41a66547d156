"""Keeps the API server's ResourceSlices equal to what the driver published last.

One thread, `slices`, does all the work; it has one more, `slices-watch-…`, for each watch. Without changes there is no
traffic but the watch; a restart with equal devices writes nothing; slices stay when the driver stops, and the kubelet
removes them if it does not come back. What somebody else changes or deletes is put right at once, and ever more slowly
if that goes on. Failures are retried per pool with back-off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from http import HTTPStatus
from threading import Condition, Event, Lock, Thread

from dra_sdk.errors import ApiError, DraError
from dra_sdk.kube.api import KubeApi
from dra_sdk.kube.paths import node, resource_slices
from dra_sdk.model import JSON
from dra_sdk.model.device import ResourcePool
from dra_sdk.node.slices.agenda import Agenda, Task
from dra_sdk.node.slices.cache import Scope, SliceCache
from dra_sdk.node.slices.compare import with_times
from dra_sdk.node.slices.diff import Identity, Operation, Owner, diff
from dra_sdk.node.slices.layout import arranged, has_counters
from dra_sdk.node.slices.plan import plan
from dra_sdk.node.slices.selection import select
from dra_sdk.node.slices.sync import Stats, Writer
from dra_sdk.node.slices.timing import Timing
from dra_sdk.node.slices.watcher import Listener, SliceWatcher
from dra_sdk.wire.profile import NEWEST, ServerProfile

OnError = Callable[[str, Exception], None]
_log = logging.getLogger(__name__)


def _log_error(pool: str, error: Exception) -> None:
    _log.warning("pool %s: %s", pool or "-", error, exc_info=None if isinstance(error, DraError) else error)


class SliceController:
    """The publisher of one driver.

    `node_name` None is for a driver that publishes for the whole cluster; then pools say themselves which nodes reach
    them, and `owner` may name an object that the slices shall go with. `connect` gives an API client, which the
    controller does not close; it is called in the controller's thread, again and again if it raises. `on_error(pool,
    error)` hears of each problem, from any thread; pool "" means the controller as a whole.
    """

    def __init__(
        self,
        driver: str,
        node_name: str | None,
        connect: Callable[[], KubeApi],
        on_error: OnError = _log_error,
        *,
        owner: Owner | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._driver = driver
        self._node_name = node_name
        self._connect = connect
        self._on_error = on_error
        self._owner = owner
        self._timing = timing or Timing()
        self._cache = SliceCache()
        self._agenda = Agenda(self._timing)
        self._changed = Condition()  # guards the agenda, the stats and the general error
        self._publishing = Lock()
        self._stats = Stats()
        self._error: Exception | None = None
        self._watchers: dict[Scope, SliceWatcher] = {}
        self._owner_is_old = False
        self._has_shared = False
        self._stop = Event()
        self._thread = Thread(target=self._run, name="slices")

    def start(self) -> None:
        """Start the thread. Nothing is written before the first `publish`."""
        self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """End the thread; slices stay. Waits for a request that is under way; False where it took over `timeout` s."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def publish(self, pools: Iterable[ResourcePool]) -> None:
        """Make these the driver's pools; returns at once. The latest call wins, and pools left out are deleted.

        A pool that breaks a rule stays as it was published before; `on_error` and `errors` tell what is wrong.
        """
        with self._publishing:
            plans = plan(pools, driver=self._driver, node_name=self._node_name)
            with self._changed:
                wrong = self._agenda.publish(plans, self._cache.pools(), time.monotonic())
                self._stats.errors += len(wrong)
                self._changed.notify_all()
        for error in wrong:
            self._tell(error.subject.removeprefix("pool "), error)

    @property
    def stats(self) -> Stats:
        """A copy of the counts of writes and errors."""
        with self._changed:
            return replace(self._stats)

    @property
    def errors(self) -> dict[str, Exception]:
        """What keeps the server from having what was published, by pool; "" is about all of them (no connection)."""
        with self._changed:
            general = {"": self._error} if self._error else {}
            return {**general, **self._agenda.errors()}

    def last_error(self, pool: str = "") -> Exception | None:
        """What is wrong with one pool, or with the controller as a whole."""
        return self.errors.get(pool)

    @property
    def synced(self) -> bool:
        """Whether the server has all that was published last, apart from fields that it does not know."""
        with self._changed:
            return self._is_synced()

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Wait until `synced`; False after `timeout` seconds or where the controller was stopped before."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_synced() or self._stop.is_set(), timeout)
            return self._is_synced()

    def _is_synced(self) -> bool:
        return self._agenda.is_settled() and self._is_listed()

    def _is_listed(self) -> bool:
        return bool(self._watchers) and all(watcher.ready for watcher in self._watchers.values())

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            since = float("inf")  # when it began to work
            try:
                api = self._connect()
                if self._node_name is not None:
                    self._owner = self._node(api, self._node_name)
                    self._has_shared = self._finds_shared(api)
                self._general(None)
                since = time.monotonic()
                self._serve(api)
            except Exception as error:  # noqa: BLE001 (whatever a connection raises; a bug must not end the thread)
                failures = 1 if time.monotonic() - since > self._timing.calm else failures + 1
                self._general(error)
                self._stop.wait(self._timing.after_failure(failures, error))
        with self._changed:
            self._changed.notify_all()

    def _serve(self, api: KubeApi) -> None:
        """Work on one pool after the other, until told to stop."""
        writer = Writer(api, self._cache, self._stats)
        try:
            while not self._stop.is_set():
                self._watch(api)
                if task := self._next():
                    self._work(writer, api, task)
        finally:
            for watcher in self._watchers.values():
                watcher.stop()
            with self._changed:
                self._watchers.clear()

    def _next(self) -> Task | None:
        """Wait for a task that is due; None where watches must be looked after first, or on stop."""
        with self._changed:
            while not self._stop.is_set():
                if self._agenda.needs_cluster() and Scope.CLUSTER not in self._watchers:
                    return None
                task, now = self._agenda.next(), time.monotonic()
                listed = self._is_listed()
                if task and task.due is not None and task.due <= now and listed:
                    self._agenda.begin(task)
                    return task
                self._changed.wait(task.due - now if task and task.due is not None and listed else None)
        return None

    def _work(self, writer: Writer, api: KubeApi, task: Task) -> None:
        """Make the server have what one pool shall be."""
        wanted = task.wanted
        try:
            operations = self._operations(task.name, wanted)
            if operations and task.settled:
                self._repairing(task)
            if operations and self._owner_is_old and self._node_name is not None:
                self._owner, self._owner_is_old = self._node(api, self._node_name), False
                operations = self._operations(task.name, wanted)
            if operations and has_counters(planned := task.plan or ()):
                wanted[:] = with_times(arranged(planned, _minor(api)), wanted)
                operations = self._operations(task.name, wanted)
            dropped = writer.carry_out(operations, wanted, task.name)
            # The times that the server gave to taints must survive the slices: pods are evicted so long after them.
            wanted[:] = with_times(wanted, [each["spec"] for each in self._cache.of_pool(task.name)])
            self._cache.share(task.name, wanted)
        except Exception as error:  # noqa: BLE001 (whatever is wrong with one pool must not hold up the others)
            with self._changed:
                self._stats.errors += 1
                telling = self._agenda.failed(task, wanted, error, time.monotonic())
            if telling:
                self._tell(task.name, error)
            return
        with self._changed:
            self._agenda.done(task, wanted, dropped)
            self._changed.notify_all()
        if dropped:
            self._tell(task.name, dropped)

    def _operations(self, pool: str, wanted: list[JSON]) -> list[Operation]:
        return diff(self._cache.of_pool(pool), wanted, Identity(self._driver, pool, self._owner))

    def _repairing(self, task: Task) -> None:
        _log.warning("pool %s: somebody else changed its slices; putting them right", task.name)
        with self._changed:
            self._agenda.repairing(task, time.monotonic())
        self._owner_is_old = True  # perhaps: a Node that was made anew takes the slices of the old one along

    def _watch(self, api: KubeApi) -> None:
        """Start the watches that are needed and not yet running."""
        needed = {Scope.CLUSTER if self._node_name is None else Scope.NODE}
        with self._changed:
            if self._has_shared or self._agenda.needs_cluster():
                needed.add(Scope.CLUSTER)
        for scope in needed - set(self._watchers):
            selection = select(scope, self._driver, self._node_name)
            listener = Listener(self._touched, self._general)
            watcher = SliceWatcher(api, selection, self._cache, listener, self._timing)
            with self._changed:
                self._watchers[scope] = watcher
            watcher.start()

    def _finds_shared(self, api: KubeApi) -> bool:
        """Whether an earlier run published slices for several nodes, which must be minded even if no pool is so now."""
        selection = select(Scope.CLUSTER, self._driver, self._node_name)
        found = api.list(resource_slices(), {"fieldSelector": selection.field_selector})
        return any(map(selection.accepts, found["items"]))

    def _touched(self, pools: Iterable[str] | None) -> None:
        with self._changed:
            if pools is None:
                self._agenda.listed(self._cache.pools(), time.monotonic())
            else:
                self._agenda.touched(pools, time.monotonic())
            self._changed.notify_all()

    def _general(self, error: Exception | None) -> None:
        """A problem that is about all pools, or (None) its end."""
        with self._changed:
            self._error = error
            if error is None:
                self._agenda.reachable(time.monotonic())
            else:
                self._stats.errors += 1
            self._changed.notify_all()
        if error is not None:
            self._tell("", error)

    def _tell(self, pool: str, error: Exception) -> None:
        try:
            self._on_error(pool, error)
        except Exception:  # noqa: BLE001 (it is the caller's code)
            _log.exception("the error handler of the slice controller failed on: %s", error)

    @staticmethod
    def _node(api: KubeApi, name: str) -> Owner:
        return Owner(name, str(api.get(node(name))["metadata"]["uid"]))


def _minor(api: KubeApi) -> int:
    """Which release the server is, asked before each write that depends on it, because servers are upgraded.

    One that tells us not is taken for one of the newest: only 1.34 differs.
    """
    try:
        version = api.get("/version")
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return NEWEST
    return ServerProfile.of(str(version.get("gitVersion", ""))).minor
