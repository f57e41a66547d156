"""What `simulate` and `explain` say beside the table: preemptions, waves, slices that differ, plans, fragmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dra_sdk.cli.what_if import change_line
from dra_sdk.model import JSON
from dra_sdk.texts import counted, shortened
from dra_sdk.tools.scheduling.cluster import ObjectKey, SchedulingOutcome, Snapshot, compare_outcomes, display_name
from dra_sdk.tools.scheduling.cluster.core_v1 import pod_of
from dra_sdk.tools.scheduling.cluster.drain_waves import DrainWave
from dra_sdk.tools.scheduling.cluster.eviction_plan import EvictionPlan, PlannedEviction
from dra_sdk.tools.scheduling.cluster.fragmentation import Fragmentation, driver_fragmentation, pool_fragmentation
from dra_sdk.tools.scheduling.cluster.slice_changes import DeviceChange, compare_slices

MAX_NAMES: Final = 8
"""The most names in one line."""


def simulation_json(
    before: SchedulingOutcome, after: SchedulingOutcome, waves: Sequence[DrainWave] | None = None
) -> JSON:
    """What a simulation says beside its slices and claims: everything that the lines say, and for each pool."""
    pools = pool_fragmentation(after.snapshot)
    fragmentation = {"drivers": driver_fragmentation(pools), "pools": pools}
    found: JSON = {
        "preemptions": [each.to_json() for each in after.preemptions],
        "fragmentation": {name: [each.to_json() for each in figures] for name, figures in fragmentation.items()},
    }
    if after is not before:
        found["changes"] = [each.to_json() for each in compare_outcomes(before, after)]
        found["devices"] = [each.to_json() for each in compare_slices(before.snapshot, after.snapshot)]
    if waves is not None:
        found["waves"] = [_wave_json(each) for each in waves]
    return found


# -- preemption


def preemption_lines(outcome: SchedulingOutcome) -> list[str]:
    """A line for each pod that kube-scheduler evicts others for; empty without any."""
    lines = []
    for each in outcome.preemptions:
        victims = [f"{display_name(key)} (priority {_priority(outcome.snapshot, key)})" for key in each.victims]
        budgets = f"; {counted(each.violations, 'victim')} in spite of a PodDisruptionBudget" if each.violations else ""
        who = f"pod {display_name(each.pod)} (priority {each.priority})"
        lines.append(f"  {who} evicts {', '.join(victims)} from {each.node}, for {', '.join(each.missing)}{budgets}")
    return ["Preemption:", *lines] if lines else []


def _priority(snapshot: Snapshot, key: ObjectKey) -> int:
    return pod_of(snapshot.pods_by_key[key]).spec.effective_priority


# -- fragmentation


def fragmentation_lines(snapshot: Snapshot) -> list[str]:
    """A line for each driver with devices in use: what is free, in whole pieces of hardware and in parts."""
    return [_fragmentation_line(each) for each in driver_fragmentation(pool_fragmentation(snapshot)) if _in_use(each)]


def _in_use(found: Fragmentation) -> bool:
    return found.whole < found.pieces


def _fragmentation_line(found: Fragmentation) -> str:
    whole = f"{found.whole} of {counted(found.pieces, 'piece')} of hardware wholly free"
    if not found.free:
        return f"{found.driver}: {whole}, nothing in parts"
    return f"{found.driver}: {whole}, {float(found.free):.1f} with parts; fragmentation {round(found.figure * 100)} %"


# -- slices


def device_change_lines(before: Snapshot, after: Snapshot) -> list[str]:
    """The devices that differ between the slices of two clusters, like changes of a pool in one line."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in compare_slices(before, after):
        driver, pool, device = each.device
        groups.setdefault((driver, pool, _device_change(each)), []).append(device)
    lines = [
        f"  {driver}/{pool}: {shortened(names, MAX_NAMES)} {what}" for (driver, pool, what), names in groups.items()
    ]
    return ["What changes in the slices:", *lines] if lines else ["No device changes in the slices."]


def _device_change(change: DeviceChange) -> str:
    fields = [f"{name} {_value(old)} → {_value(new)}" for name, (old, new) in change.fields.items()]
    return f"changed: {', '.join(fields)}" if fields else change.what


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


# -- waves


def wave_lines(waves: Sequence[DrainWave]) -> list[str]:
    """The waves, what moves in each of them, and how many leave a pod without a node."""
    lines = []
    for number, wave in enumerate(waves, 1):
        lines.append(f"Wave {number} of {len(waves)}: drain {shortened(wave.nodes, MAX_NAMES)}")
        lines += [f"  {change_line(each)}" for each in wave.changes] or ["  nothing moves"]
        if wave.blocked:
            names = shortened([display_name(each) for each in wave.blocked], MAX_NAMES)
            lines.append(f"  kubectl drain waits for PodDisruptionBudgets: {names}")
    short = [str(number) for number, wave in enumerate(waves, 1) if not wave.fits]
    if short:
        return [*lines, f"Not enough room in {'wave' if len(short) == 1 else 'waves'} {', '.join(short)}."]
    return [*lines, f"All pods keep a node in {'the wave' if len(waves) == 1 else f'all {len(waves)} waves'}."]


def _wave_json(wave: DrainWave) -> JSON:
    return {
        "nodes": list(wave.nodes),
        "fits": wave.fits,
        "changes": [each.to_json() for each in wave.changes],
        "blocked": [{"namespace": namespace, "name": name} for namespace, name in wave.blocked],
    }


# -- plans


def plan_lines(plan: EvictionPlan) -> list[str]:
    """A plan that makes room for a pod, in sentences."""
    who = f"pod {display_name(plan.pod)} (priority {plan.priority})"
    if not plan.evictions:
        return [f"There is room for {who} already, on {plan.node}."]
    number = counted(len(plan.evictions), "pod")
    lines = [f"To make room for {who} on {plan.node}, evict {number}:"]
    lines += [f"  {_eviction(each)}" for each in plan.evictions]
    if plan.fewest:
        lines.append("Fewer evictions would not do.")
    else:
        lines.append(f"The search ended at its limit, after {plan.trials} trials: fewer evictions may do.")
    if rivals := [display_name(each.pod) for each in plan.evictions if each.priority >= plan.priority and each.owner]:
        are = f"{shortened(rivals, MAX_NAMES)} {'are' if len(rivals) > 1 else 'is'}"
        lines.append(f"{are} at least as important, and may be back before the pod: scale it down first.")
    return [*lines, "What changes:", *(f"  {change_line(each)}" for each in plan.changes)]


def _eviction(each: PlannedEviction) -> str:
    text = f"{display_name(each.pod)} (priority {each.priority}, {each.owner or 'no controller'})"
    text += f": {', '.join(each.devices)}" if each.devices else ""
    return text + (" (violates a PodDisruptionBudget)" if each.violates else "")
