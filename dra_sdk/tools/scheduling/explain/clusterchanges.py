"""What might happen in the cluster so that the claim can be had: claims end, taints go, slices and nodes come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.names import Key, key_of, shown
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.templates import Template, free_names
from dra_sdk.tools.scheduling.explain.checks import taint_text
from dra_sdk.tools.scheduling.explain.reports import Seen
from dra_sdk.tools.scheduling.explain.setting import Setting, results_of
from dra_sdk.tools.scheduling.explain.trials import Proposal, Size
from dra_sdk.tools.scheduling.tolerations import untolerated

_CLAIMS: Final = 24


def freed(setting: Setting, seen: Seen) -> Iterator[Proposal]:
    """Claims that hold devices on a node and would give them back."""
    found = _in_the_way(setting, seen)
    for key, devices in list(found.items())[:_CLAIMS]:
        name = shown(key)
        yield Proposal(
            Size.CLAIM_FREED,
            f"claim {name} gives its devices back ({', '.join(devices)} on {seen.report.example})",
            lambda changing, key=key: _without(changing, {key}),  # type: ignore[misc]  # (a default binds the key)
            [seen.node],
            family="claim",
            name=name,
        )
    if len(found) > 1:
        yield from _together(setting, seen, list(found))


def _together(setting: Setting, seen: Seen, keys: Sequence[Key]) -> Iterator[Proposal]:
    """As few of them as it takes, where all of them together would do."""
    if not _without(setting, set(keys)).attempt(seen.node).fits:
        return
    needed = list(keys)
    for each in keys:
        fewer = [key for key in needed if key != each]
        if _without(setting, set(fewer)).attempt(seen.node).fits:
            needed = fewer
    names = ", ".join(map(shown, needed))
    if len(needed) > 1:
        text = f"claims {names} give their devices back (on {seen.report.example})"
        yield Proposal(
            Size.CLAIMS_FREED,
            text,
            lambda changing: _without(changing, set(needed)),
            [seen.node],
            len(needed),
            "claims",
            names,
        )


def _without(setting: Setting, keys: set[Key]) -> Setting:
    return setting.changed(holders=tuple(each for each in setting.holders if key_of(each) not in keys))


def _in_the_way(setting: Setting, seen: Seen) -> dict[Key, list[str]]:
    """The claims that hold devices of the pools of this node that the claim's requests match, and which devices."""
    pools = {each.pool.id for looked in seen.looked for each in looked.nearest}
    found: dict[Key, list[str]] = {}
    for claim in setting.holders:
        for result in results_of(claim):
            if (result["driver"], result["pool"]) in pools and not result.get("adminAccess"):
                found.setdefault(key_of(claim), []).append(result["device"])
    return found


def untainted(seen: Seen) -> Iterator[Proposal]:
    """A taint is taken from the devices of a node."""
    taints: dict[str, list[str]] = {}
    pools = set()
    for looked in seen.looked:
        for each in looked.nearest:
            for taint in untolerated(each.device.taints, looked.request.tolerations):
                taints.setdefault(taint_text(taint), []).append(each.id.device)
                pools.add(each.pool.id)
    for text, devices in taints.items():
        names = ", ".join(dict.fromkeys(devices))
        yield Proposal(
            Size.TAINT_REMOVED,
            f"taint {text} is taken from {names} (on {seen.report.example})",
            lambda changing, text=text: _without_taint(changing, text, pools),  # type: ignore[misc]
            [seen.node],
            family=f"taint {text}",
            name=f"on {seen.report.example}",
        )


def _without_taint(setting: Setting, text: str, pools: set[tuple[str, str]]) -> Setting:
    slices = tuple(_clean(each.json, text) if each.pool in pools else each.json for each in setting.inventory.slices)
    return setting.changed(slices=slices, rules=())


def _clean(each: JSON, text: str) -> JSON:
    devices = [
        device | {"taints": [taint for taint in device.get("taints") or () if taint_text(taint) != text]}
        for device in each["spec"].get("devices") or ()
    ]
    return each | {"spec": each["spec"] | {"devices": devices}} if devices else each


def completed(setting: Setting, seen: Seen) -> Iterator[Proposal]:
    """The slices that a pool of a node lacks are published, even if they had no devices."""
    for pool in setting.inventory.view(seen.node).pools:
        if pool.incomplete:
            yield Proposal(
                Size.POOL_COMPLETED,
                f"the missing slices of pool {pool.name} are published",
                lambda changing, identity=pool.id: _complete(changing, identity),  # type: ignore[misc]
                [seen.node],
                family="pool",
                name=pool.name,
            )


def _complete(setting: Setting, identity: tuple[str, str]) -> Setting:
    current = [each for each in setting.inventory.slices if each.pool == identity]
    newest = max(each.generation for each in current)
    count = sum(1 for each in current if each.generation == newest)
    slices = tuple(
        _counted(each.json, count) if each.pool == identity and each.generation == newest else each.json
        for each in setting.inventory.slices
    )
    return setting.changed(slices=slices, rules=())


def _counted(each: JSON, count: int) -> JSON:
    spec = each["spec"]
    return each | {"spec": spec | {"pool": spec["pool"] | {"resourceSliceCount": count}}}


def opened(seen: Seen, pod: str) -> Iterator[Proposal]:
    """The pod may run on a node where it may not now."""
    name = seen.report.example
    text = f"pod {pod} can run on {name} (now: {seen.report.obstacle})"
    yield Proposal(Size.NODE_OPENED, text, lambda setting: setting, [seen.node], family="open", name=name)


def another_node(snapshot: Snapshot, seen: Seen) -> Iterator[Proposal]:
    """One more node with devices like those of this one."""
    template = Template.of(snapshot, seen.report.example)
    if not template.slices:
        return
    (name,) = free_names(snapshot, template.name, 1)
    node, *slices = template.copies(name)
    yield Proposal(
        Size.NODE,
        f"one more node like {template.name}",
        lambda changing: changing.changed(slices=(*changing.slices, *slices), nodes=(*changing.nodes, node)),
        [node],
        family="node",
        name=template.name,
    )
