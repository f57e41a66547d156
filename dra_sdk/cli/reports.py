"""What `simulate` and `explain` report beside the table: a function for each section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.texts import counted, shortened
from dra_sdk.tools.scheduling.cluster import (
    NO_NODE_PREFIX,
    NodeSuggestion,
    ObjectKey,
    PlacementChange,
    PlacementState,
    SchedulingOutcome,
    Snapshot,
    compare_outcomes,
    display_name,
    suggest_nodes,
)
from dra_sdk.tools.scheduling.cluster.core_v1 import pod_of
from dra_sdk.tools.scheduling.cluster.drain_waves import DrainWave
from dra_sdk.tools.scheduling.cluster.eviction_plan import EvictionPlan, PlannedEviction
from dra_sdk.tools.scheduling.cluster.fragmentation import Fragmentation, driver_fragmentation, pool_fragmentation
from dra_sdk.tools.scheduling.cluster.slice_changes import DeviceChange, compare_slices
from dra_sdk.tools.scheduling.cluster.snapshot import Count, no_count

MAX_NAMES: Final = 8
"""The most names in one line."""


def simulation_json(
    before: SchedulingOutcome, after: SchedulingOutcome, waves: Sequence[DrainWave] | None = None
) -> JSON:
    """Return what a simulation says beside its slices and claims: all that the lines say, and for each pool."""
    pools = pool_fragmentation(after.snapshot)
    fragmentation = {"drivers": driver_fragmentation(pools), "pools": pools}
    answer: JSON = {
        "preemptions": [preemption.to_json() for preemption in after.preemptions],
        "fragmentation": {name: [figure.to_json() for figure in figures] for name, figures in fragmentation.items()},
    }
    if after is not before:
        answer["changes"] = [change.to_json() for change in compare_outcomes(before, after)]
        answer["devices"] = [change.to_json() for change in compare_slices(before.snapshot, after.snapshot)]
    if waves is not None:
        answer["waves"] = [_wave_json(wave) for wave in waves]
    return answer


# -- preemption


def preemption_lines(outcome: SchedulingOutcome) -> list[str]:
    """Return a line for each pod that kube-scheduler evicts others for; empty without any."""
    lines = []
    for preemption in outcome.preemptions:
        victims = [f"{display_name(key)} (priority {_priority(outcome.snapshot, key)})" for key in preemption.victims]
        who = f"pod {display_name(preemption.pod)} (priority {preemption.priority})"
        line = f"  {who} evicts {', '.join(victims)} from {preemption.node}, for {', '.join(preemption.missing)}"
        if preemption.violations:
            line += f"; {counted(preemption.violations, 'victim')} in spite of a PodDisruptionBudget"
        lines.append(line)
    return ["Preemption:", *lines] if lines else []


def _priority(snapshot: Snapshot, key: ObjectKey) -> int:
    return pod_of(snapshot.pods_by_key[key]).spec.effective_priority


# -- fragmentation


def fragmentation_lines(snapshot: Snapshot) -> list[str]:
    """Return a line for each driver with devices in use: what is free, in whole pieces of hardware and in parts."""
    drivers = driver_fragmentation(pool_fragmentation(snapshot))
    return [_fragmentation_line(driver) for driver in drivers if driver.whole < driver.pieces]


def _fragmentation_line(fragmentation: Fragmentation) -> str:
    whole = f"{fragmentation.whole} of {counted(fragmentation.pieces, 'piece')} of hardware wholly free"
    if not fragmentation.free:
        return f"{fragmentation.driver}: {whole}, nothing in parts"
    percent = round(fragmentation.figure * 100)
    return f"{fragmentation.driver}: {whole}, {float(fragmentation.free):.1f} with parts; fragmentation {percent} %"


# -- slices


def device_change_lines(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the devices that differ between the slices of two clusters, like changes of a pool in one line."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for change in compare_slices(before, after):
        driver, pool, device = change.device
        groups.setdefault((driver, pool, _device_change(change)), []).append(device)
    lines = [
        f"  {driver}/{pool}: {shortened(names, MAX_NAMES)} {what}" for (driver, pool, what), names in groups.items()
    ]
    return ["What changes in the slices:", *lines] if lines else ["No device changes in the slices."]


def _device_change(change: DeviceChange) -> str:
    fields = [f"{name} {_value(old)} → {_value(new)}" for name, (old, new) in change.fields.items()]
    return f"changed: {', '.join(fields)}" if fields else change.what


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


# -- what changes


def change_lines(before: SchedulingOutcome, after: SchedulingOutcome, when: str = "") -> list[str]:
    """Return a line for each pod or claim whose placement differs; `when` is added to the heading."""
    changes = [change_line(change) for change in compare_outcomes(before, after)]
    return [f"What changes{when}:", *(f"  {change}" for change in changes)] if changes else [f"Nothing changes{when}."]


def advice_lines(outcome: SchedulingOutcome, original: Snapshot, count: Count = no_count) -> list[str]:
    """Return whether new nodes would help what is not placed; empty if nodes are not the reason."""
    reasons = [*(pod.reason for pod in outcome.unplaced), *(claim.reason for claim in outcome.unallocated)]
    if not any(reason.startswith(NO_NODE_PREFIX) or f": {NO_NODE_PREFIX}" in reason for reason in reasons):
        return []
    suggestions = suggest_nodes(outcome, original, count)
    if not suggestions:
        return ["Would a new node help? No: no node like the existing ones would change anything."]
    best = suggestions[0]
    equal = [other for other in suggestions if (len(other.placed), other.nodes) == (len(best.placed), best.nodes)]
    return [f"Would a new node help? {_advice(best, [suggestion.like for suggestion in equal])}"]


def _advice(suggestion: NodeSuggestion, likes: Sequence[str]) -> str:
    nodes = counted(suggestion.nodes, "more node")
    enough = f"{nodes} like {' or '.join(likes)} would be enough for {_key_names(suggestion.placed)}"
    return f"In part: {enough}, not for {_key_names(suggestion.left)}." if suggestion.left else f"Yes: {enough}."


def _key_names(keys: Sequence[ObjectKey]) -> str:
    return shortened([display_name(key) for key in keys], MAX_NAMES)


def change_line(change: PlacementChange) -> str:
    """Return one pod or claim, with its node and devices before and after."""
    subject = f"{'pod' if change.is_pod else 'claim'} {display_name(change.subject)}"
    if change.after is None:
        return f"{subject}: no longer exists"
    before = _placement(change.before) if change.before else "did not exist"
    line = f"{subject}: {before} → {_placement(change.after, change.reason)}"
    return f"{line} (evicted: {change.evicted})" if change.evicted else line


def _placement(situation: PlacementState, reason: str = "") -> str:
    if situation.node is None:
        return f"not placed, {reason}" if reason else "not placed"
    devices = ", ".join(f"{request} {' + '.join(names)}" for request, names in situation.devices.items())
    return f"{situation.node} with {devices}" if devices else situation.node


# -- waves


def wave_lines(waves: Sequence[DrainWave]) -> list[str]:
    """Return the waves, what moves in each of them, and how many leave a pod without a node."""
    lines = []
    for number, wave in enumerate(waves, 1):
        lines.append(f"Wave {number} of {len(waves)}: drain {shortened(wave.nodes, MAX_NAMES)}")
        lines += [f"  {change_line(change)}" for change in wave.changes] or ["  nothing moves"]
        if wave.blocked:
            names = shortened([display_name(key) for key in wave.blocked], MAX_NAMES)
            lines.append(f"  kubectl drain waits for PodDisruptionBudgets: {names}")
    short = [str(number) for number, wave in enumerate(waves, 1) if not wave.fits]
    if short:
        return [*lines, f"A pod is left without a node in {'wave' if len(short) == 1 else 'waves'} {', '.join(short)}."]
    return [*lines, f"All pods keep a node in {'the wave' if len(waves) == 1 else f'all {len(waves)} waves'}."]


def _wave_json(wave: DrainWave) -> JSON:
    return {
        "nodes": list(wave.nodes),
        "fits": wave.fits,
        "changes": [change.to_json() for change in wave.changes],
        "blocked": [{"namespace": namespace, "name": name} for namespace, name in wave.blocked],
    }


# -- plans


def plan_lines(plan: EvictionPlan) -> list[str]:
    """Return a plan that frees devices for a pod, in sentences."""
    who = f"pod {display_name(plan.pod)} (priority {plan.priority})"
    if not plan.evictions:
        return [f"No eviction is needed: {who} fits on {plan.node}."]
    number = counted(len(plan.evictions), "pod")
    lines = [f"To place {who} on {plan.node}, evict {number}:"]
    lines += [f"  {_eviction(eviction)}" for eviction in plan.evictions]
    if plan.fewest:
        lines.append("Fewer evictions would not do.")
    else:
        lines.append(f"The search ended at its limit, after {plan.trials} trials: fewer evictions may do.")
    important = (eviction for eviction in plan.evictions if eviction.priority >= plan.priority and eviction.owner)
    if rivals := [display_name(eviction.pod) for eviction in important]:
        are = f"{shortened(rivals, MAX_NAMES)} {'are' if len(rivals) > 1 else 'is'}"
        lines.append(f"{are} at least as important, and may be back before the pod: scale it down first.")
    return [*lines, "What changes:", *(f"  {change_line(change)}" for change in plan.changes)]


def _eviction(eviction: PlannedEviction) -> str:
    text = f"{display_name(eviction.pod)} (priority {eviction.priority}, {eviction.owner or 'no controller'})"
    text += f": {', '.join(eviction.devices)}" if eviction.devices else ""
    return text + (" (violates a PodDisruptionBudget)" if eviction.violates else "")
