"""Allocate for each request of a claim."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dra_driver_plugin.edits import container_edits
from dra_driver_plugin.plugin import DevicePlugin
from dra_driver_plugin.settings import PluginSettings
from dra_sdk import (
    AllocatedDevice,
    Claim,
    Condition,
    DeviceStatus,
    PreparedDevice,
)
from dra_sdk.rpc.client import CallError

log = logging.getLogger(__name__)
_PREFERENCE_SECONDS: Final = 1.0
_MARGIN: Final = 1.0  # seconds that the SDK needs after the last answer
_MESSAGE: Final = 1024  # characters


def prepare(
    claim: Claim[Any],
    plugin: DevicePlugin,
    devices: Sequence[AllocatedDevice[Any]],
    number: int,
    settings: PluginSettings,
) -> Iterator[PreparedDevice]:
    """Prepare the devices of one request and resource by one call: variables often list all ids of a container."""
    ids, connection = [device.hardware.id for device in devices], plugin.follower.connection

    def seconds() -> float:
        claim.deadline.check()
        return max(0.1, min(settings.allocate_seconds, claim.deadline.remaining() - _MARGIN))

    notes: list[str] = []
    if plugin.registration.prefers:
        notes += _preference(claim, plugin, ids, min(_PREFERENCE_SECONDS, seconds()))
    answer = connection.allocate(ids, seconds())
    edits = container_edits(answer, claim.node.root, settings.allowed_paths, str(plugin))
    if len(ids) == 1:
        plugin.learn(ids[0], edits.device_nodes, claim.node)
    if plugin.registration.pre_start:
        connection.pre_start(ids, seconds())
    if answer.annotations:
        listed = ", ".join(f"{name}={text}" for name, text in sorted(answer.annotations.items()))
        notes.append(f"annotations that containers do not get, because CDI has none: {listed}")
    status, message = None, "; ".join(notes)[:_MESSAGE]
    if message:
        log.warning("%s: %s: %s", claim, plugin, message)
        condition = Condition(type="Ready", status=True, reason="Allocated", message=message)
        status = DeviceStatus(conditions=[condition])
    for device in devices:
        yield device.prepared(
            edits,
            data={"id": device.hardware.id, "resource": device.hardware.resource},
            cdi_name=f"claim-{claim.uid}_{number}",
            cdi_devices=[cdi_device.name for cdi_device in answer.cdi_devices],
            status=status,
        )


def _preference(claim: Claim[Any], plugin: DevicePlugin, ids: Sequence[str], seconds: float) -> Iterator[str]:
    """Yield a sentence if the plugin would have given other devices of those that no other claim holds."""
    held = {device.name for other in claim.held() for device in other.devices}
    free = [device.id for device in plugin.devices.values() if device.name not in held]
    if len(free) <= len(ids):
        return
    try:
        preferred = plugin.follower.connection.preferred(free, len(ids), seconds)
    except CallError as error:
        log.warning("%s: its preference is not known: %s", claim, error)
        return
    if len(preferred) == len(ids) and set(preferred) != set(ids):
        yield f"the plugin would have preferred {', '.join(preferred)} to {', '.join(ids)}, which kube-scheduler chose"
