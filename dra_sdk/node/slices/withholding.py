"""What is published to an API server that drops fields: nothing that its scheduler could give away wrongly.

| dropped | then |
|---|---|
| counters | what fits together is published: devices that the driver names, then others in the order of discovery |
| taints | devices with a taint NoSchedule or NoExecute are withheld |
| binding conditions | devices with conditions are withheld, unless `dra_prepare` waits for them |
| all else | devices are published without the field: no claim gets more than is there |

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.model.device import ResourcePool
from dra_sdk.node.slices.gates import CONDITIONS, PARTITIONS, TAINTS, dropped_fields, without_gates
from dra_sdk.texts import shortened
from dra_sdk.wire.counters import overlapping

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_SHOWN: Final = 10  # devices in a sentence
_REASONS: Final = {
    PARTITIONS: "they share hardware with others, and the API server drops the counters that say so",
    TAINTS: "the API server drops the taints that keep pods away from them",
    CONDITIONS: "the API server drops their binding conditions, for which pods would have to wait",
}


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a driver says about servers that drop fields.

    without_counters: the devices that it publishes first without counters (`ResourcePool.without_counters`).
    waiting: the devices whose prepare waits for their binding conditions (`Device.waits_in_prepare`).
    """

    without_counters: Sequence[str] = ()
    waiting: Set[str] = frozenset()

    @classmethod
    def of(cls, pool: ResourcePool) -> Preferences:
        """Return the preferences for a pool."""
        waiting = frozenset(device.name for device in pool.devices if device.waits_in_prepare)
        return cls(tuple(pool.without_counters), waiting)


@dataclass(frozen=True, slots=True)
class ServerFit:
    """The slices of a pool as a server keeps them.

    specs: the slices, without what the server drops and without the devices that are withheld.
    dropped: the lost fields, each with its gate, by the index of the slice.
    withheld: the devices that are not published, each with the gate without which they cannot be.
    """

    specs: Sequence[JSON]
    dropped: Mapping[int, Sequence[tuple[str, str]]] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)


def fit_server(specs: Sequence[JSON], lost: Set[str], preferences: Preferences) -> ServerFit:
    """Return slices for a server that drops the fields of the gates `lost`."""
    kept = [without_gates(spec, lost) for spec in specs]
    dropped = {
        index: fields
        for index, (sent, stored) in enumerate(zip(specs, kept, strict=True))
        if stored is not sent and (fields := dropped_fields(sent, stored))
    }
    if not dropped:
        return ServerFit(specs)
    withheld = dict(_withheld(specs, lost, preferences))
    return ServerFit([_without_devices(spec, withheld.keys()) for spec in kept], dropped, withheld)


def undecided(specs: Sequence[JSON], preferences: Preferences) -> dict[str, list[str]]:
    """Return the devices that are withheld without counters, each with its rivals, of which the driver names none.

    Then the order of discovery decides, perhaps unknown to the author.
    """
    named = set(preferences.without_counters)
    return {name: rivals for name, rivals in _overlapping(specs, preferences).items() if named.isdisjoint(rivals)}


def withheld_sentences(withheld: Mapping[str, str]) -> Iterator[str]:
    """Yield for each reason which devices are not published."""
    for gate, reason in _REASONS.items():
        if names := [name for name, missing in withheld.items() if missing == gate]:
            yield f"not published: {shortened(names, _SHOWN)}, because {reason}"


def _withheld(specs: Sequence[JSON], lost: Set[str], preferences: Preferences) -> Iterator[tuple[str, str]]:
    if PARTITIONS in lost:  # a device that is withheld for a taint keeps its place, because its claim may still run
        yield from ((name, PARTITIONS) for name in _overlapping(specs, preferences))
    for device in _devices(specs):
        if TAINTS in lost and any(taint["effect"] in _REPELLING for taint in device.get("taints", ())):
            yield device["name"], TAINTS
        elif CONDITIONS in lost and device.get("bindingConditions") and device["name"] not in preferences.waiting:
            yield device["name"], CONDITIONS


def _overlapping(specs: Sequence[JSON], preferences: Preferences) -> dict[str, list[str]]:
    rank = {name: place for place, name in enumerate(preferences.without_counters)}
    devices = sorted(_devices(specs), key=lambda device: rank.get(device["name"], len(rank)))
    return overlapping(devices, [counters for spec in specs for counters in spec.get("sharedCounters", ())])


def _devices(specs: Sequence[JSON]) -> Iterator[JSON]:
    for spec in specs:
        yield from spec.get("devices", ())


def _without_devices(spec: JSON, names: Set[str]) -> JSON:
    if not names or "devices" not in spec:
        return spec
    return {**spec, "devices": [device for device in spec["devices"] if device["name"] not in names]}
