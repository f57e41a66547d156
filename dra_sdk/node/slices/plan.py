"""From the pools an author describes to the slices that hold them, within the limits of the API.

Pure. What no API server accepts is refused here, with the device and the field, before anything is sent. Releases and
their feature gates differ, and the release of the server is not known here, so only what all of them refuse is a
problem. Source: resource.k8s.io/v1 ResourceSliceSpec: 128 devices a slice, 64 if any device of the pool has taints,
consumed counters or list attributes; 8 counter sets a slice; counter sets and devices never in one slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.device import NodeSelection, ResourcePool
from dra_sdk.node.slices.diff import PoolIdentity, diff, generate_name
from dra_sdk.node.slices.packing import for_release
from dra_sdk.node.slices.withholding import Preferences, ServerFit, fit_server
from dra_sdk.texts import limited
from dra_sdk.wire.profile import GATES, NEWEST, OLDEST, ServerProfile
from dra_sdk.wire.slice import counter_set_json, device_json, is_complex, node_selection_json

Check = Callable[[Sequence[JSON], str, str], list[str]]
_T = TypeVar("_T")

DEVICES: Final = 128
COMPLEX_DEVICES: Final = 64
COUNTER_SETS: Final = 8
_PROBLEMS: Final = 20
_WRONG_TYPE: Final = (AttributeError, TypeError)  # raised if an author passes None or text instead of an object


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The slices of one pool.

    name: the pool's name.
    slices: ResourceSliceSpecs without `driver` and `pool`, in order.
    preferences: what the driver says about servers that drop fields.
    """

    name: str
    slices: tuple[JSON, ...]
    preferences: Preferences = field(default_factory=Preferences)

    @property
    def node_bound(self) -> bool:
        """Whether the slices carry `nodeName`, so that the kubelet deletes them when the driver goes."""
        return all("nodeName" in spec for spec in self.slices)


def api_problems(slices: Sequence[JSON], driver: str, pool: str) -> list[str]:
    """Return a sentence for each rule of the newest release that the slices break; none if a release accepts them.

    `slices` are ResourceSliceSpecs without `driver` and `pool`.
    """
    from dra_sdk.wire.validation import sentence, validate  # noqa: PLC0415 (its import takes 0.1 s of each start)

    objects = [_object(slices, index, driver, pool) for index in range(len(slices))]
    newest: list[str] = []
    releases = [ServerProfile.of(f"1.{minor}") for minor in range(NEWEST, OLDEST - 1, -1)]
    for profile in [*releases, ServerProfile.of(f"1.{NEWEST}", dict.fromkeys(GATES, True))]:
        problems = [sentence(problem, item) for item in objects for problem in validate(item, profile=profile)]
        if not problems:
            return []
        newest = newest or problems
    return newest


def plan(
    pools: Iterable[ResourcePool], *, driver: str, node_name: str | None, check: Check = api_problems
) -> dict[str, PoolPlan | InvalidObjectError]:
    """Return the plan of each pool by its name, or its problem. A bad pool does not affect the others.

    `node_name` is the driver's node, None for a driver that publishes for the whole cluster. `check` gives one sentence
    for each rule of the API that the slices of a pool break. Equal pools give equal plans.
    """
    plans: dict[str, PoolPlan | InvalidObjectError] = {}
    for pool in pools:
        name = str(pool.name)
        if name in plans:
            plans[name] = InvalidObjectError(f"pool {name}", ["there are two pools of this name"])
            continue
        try:
            plans[name] = _plan(pool, driver, node_name, check)
        except InvalidObjectError as error:
            plans[name] = _shortened(error)
        except _WRONG_TYPE as error:
            plans[name] = InvalidObjectError(f"pool {name}", [_problem(error)])
    return plans


def resource_slices(
    pools: Iterable[ResourcePool], *, driver: str, node_name: str, server: ServerProfile | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the ResourceSlices of a fresh publication, without the owner's UID, which only the API server knows.

    `server` is the server they are for, by default one of the newest release that drops nothing. Raises
    InvalidObjectError at the first pool that breaks a limit.
    """
    for planned in valid_plans(pools, driver=driver, node_name=node_name):
        slices = fit_profile(planned, server).specs if server else for_release(planned.slices, NEWEST)
        for operation in diff([], slices, PoolIdentity(driver, planned.name)):
            count = len(slices)
            operation.body["metadata"]["generateName"] = generate_name(operation.index, count, driver, node_name)
            yield operation.body


def valid_plans(pools: Iterable[ResourcePool], *, driver: str, node_name: str) -> Iterator[PoolPlan]:
    """Yield the plan of each pool. Raises InvalidObjectError at the first pool that breaks a limit."""
    for planned in plan(pools, driver=driver, node_name=node_name).values():
        if isinstance(planned, InvalidObjectError):
            raise planned
        yield planned


def fit_profile(planned: PoolPlan, server: ServerProfile) -> ServerFit:
    """Return the slices of a pool as a server keeps them, and what is not published there."""
    lost = {gate for gate in GATES if not server.enabled(gate)}
    return fit_server(for_release(planned.slices, server.minor), lost, planned.preferences)


def _plan(pool: ResourcePool, driver: str, node_name: str | None, check: Check) -> PoolPlan:
    problems: list[str] = []
    devices = list(_converted((lambda device: device_json(device, driver)), pool.devices, problems))
    sets = list(_converted(counter_set_json, pool.counter_sets, problems))
    problems += (
        _duplicates("device", devices) + _duplicates("counter set", sets) + list(_unknown_counters(devices, sets))
    )
    nodes = _nodes(pool, node_name, problems)
    if problems:
        raise InvalidObjectError(f"pool {pool.name}", problems)
    limit = COMPLEX_DEVICES if any(map(is_complex, devices)) else DEVICES
    slices = [
        *({**nodes, "sharedCounters": part} for part in _parts(sets, COUNTER_SETS)),
        *({**nodes, "devices": part} for part in _parts(devices, limit)),
    ]
    planned = tuple(slices or [nodes])
    if refused := check(planned, driver, pool.name):
        raise InvalidObjectError(f"pool {pool.name}", refused)
    return PoolPlan(str(pool.name), planned, Preferences.of(pool))


def _converted(convert: Any, items: Iterable[Any], problems: list[str]) -> Iterator[JSON]:
    for item in items:
        try:
            yield convert(item)
        except InvalidObjectError as error:
            problems += [f"{error.subject}: {problem}" for problem in error.problems]
        except _WRONG_TYPE as error:
            problems.append(f"{getattr(item, 'name', item)}: {_problem(error)}")


def _problem(error: Exception) -> str:
    return f"a value is of another type than the model's: {error}"


def _shortened(error: InvalidObjectError) -> InvalidObjectError:
    """Return the error with at most _PROBLEMS problems: thousands of devices are often wrong in the same way."""
    return InvalidObjectError(error.subject, limited(error.problems, _PROBLEMS, "problem"))


def _parts(items: Sequence[_T], size: int) -> list[list[_T]]:
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def _duplicates(what: str, items: Sequence[JSON]) -> list[str]:
    counts = Counter(item["name"] for item in items)
    return [f"{what} {name}: there are {count} of this name" for name, count in counts.items() if count > 1]


def _unknown_counters(devices: Sequence[JSON], sets: Sequence[JSON]) -> Iterator[str]:
    known = {counter_set["name"]: counter_set["counters"] for counter_set in sets}
    for device in devices:
        for consumption in device.get("consumesCounters", ()):
            name = consumption["counterSet"]
            if name not in known:
                yield f"device {device['name']}: consumes from counter set {name}, which the pool does not have"
                continue
            for counter in sorted(consumption["counters"].keys() - known[name].keys()):
                yield f"device {device['name']}: consumes counter {counter}, which counter set {name} does not have"


def _nodes(pool: ResourcePool, node_name: str | None, problems: list[str]) -> JSON:
    """Return the fields that say which nodes reach the pool."""
    own = sum(device.node is not None for device in pool.devices)
    if own:
        if own < len(pool.devices):
            problems.append("node: either every device has its own or none has")
        if pool.node is not None:
            problems.append("node: either the pool has one or its devices, not both")
        return {"perDeviceNodeSelection": True}
    if pool.node is None:
        if node_name is None:
            problems.append("node: must say which nodes reach it, because this driver runs for no single node")
        return {"nodeName": node_name}
    return _node_fields(pool.node, node_name, problems)


def _node_fields(node: NodeSelection, node_name: str | None, problems: list[str]) -> JSON:
    fields = node_selection_json(node, problems)
    if node.node_name is not None and node.node_name != node_name:
        whose = f"the driver of node {node_name}" if node_name else "a driver of the whole cluster"
        problems.append(f"node: {whose} cannot publish for node {node.node_name}; use node_selector")
    return fields


def _object(slices: Sequence[JSON], index: int, driver: str, pool: str) -> JSON:
    identity = {"name": pool, "generation": 1, "resourceSliceCount": len(slices)}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": generate_name(index, len(slices), driver, None)},
        "spec": {"driver": driver, "pool": identity, **slices[index]},
    }
