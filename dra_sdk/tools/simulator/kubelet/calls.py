"""Calling a driver to prepare and unprepare, with the kubelet's deadline and its strictness about the answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc

from dra_sdk.tools.simulator.kubelet import wire
from dra_sdk.tools.simulator.kubelet.errors import DriverCallError, KubeletError, ResponseError
from dra_sdk.tools.simulator.kubelet.records import PREPARE, UNPREPARE, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dra_sdk.tools.simulator.kubelet.plugins import Plugin
    from dra_sdk.tools.simulator.kubelet.records import ClaimRef, PreparedDevice, Records
    from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
    from dra_sdk.tools.simulator.kubelet.wire import Answers

_METHODS = {PREPARE: "NodePrepareResources", UNPREPARE: "NodeUnprepareResources"}


class Caller:
    """Makes the calls and journals them. Every method may raise `DriverCallError` or `ResponseError`."""

    def __init__(self, timing: KubeletTiming, records: Records) -> None:
        self._timing = timing
        self._records = records

    def prepare(self, plugin: Plugin, claims: Sequence[ClaimRef]) -> dict[str, tuple[PreparedDevice, ...]]:
        """NodePrepareResources; the devices by claim UID."""
        info = plugin.info
        timeout = self._timing.call
        return self._call(
            PREPARE,
            plugin,
            claims,
            lambda: wire.prepare(plugin.channel, info.service, info.driver, claims, timeout),
        )

    def unprepare(self, plugin: Plugin, claims: Sequence[ClaimRef]) -> None:
        """NodeUnprepareResources."""
        service, timeout = plugin.info.service, self._timing.call
        self._call(UNPREPARE, plugin, claims, lambda: wire.unprepare(plugin.channel, service, claims, timeout))

    def _call(
        self, kind: str, plugin: Plugin, claims: Sequence[ClaimRef], send: Callable[[], Answers]
    ) -> dict[str, tuple[PreparedDevice, ...]]:
        started = time.monotonic()
        error = ""
        answers: Answers = {}
        try:
            answers = _sent(kind, plugin, send)
            check(kind, plugin, claims, answers)
        except KubeletError as broken:
            error = str(broken)
            raise
        finally:
            devices = {uid: found for uid, (_, found) in answers.items()}
            seconds = time.monotonic() - started
            info = plugin.info
            self._records.add(Call(kind, info.driver, info.endpoint, started, seconds, error, tuple(claims), devices))
        return devices


def _sent(kind: str, plugin: Plugin, send: Callable[[], Answers]) -> Answers:
    info = plugin.info
    try:
        return send()
    except grpc.RpcError as error:
        code, why = wire.failure(error)
        name = code.name
    except ValueError as error:
        # What grpc raises for a call on a channel that was closed meanwhile.
        name, why = "CANCELLED", f"CANCELLED: {error}"
    raise DriverCallError(f"{_METHODS[kind]}: {why}", code=name, driver=info.driver, socket=info.endpoint)


def check(kind: str, plugin: Plugin, claims: Sequence[ClaimRef], answers: Answers) -> None:
    """`ResponseError` unless there is exactly one entry per requested claim and none of them has an error."""
    method, info = _METHODS[kind], plugin.info
    asked = {claim.uid: claim for claim in claims}
    for uid in answers:
        if uid not in asked:
            why = f"{method} returned result for unknown claim UID {uid}"
            raise ResponseError("unknown-claim", why, driver=info.driver, socket=info.endpoint, claim=uid)
    for uid, claim in asked.items():
        error = answers[uid][0] if uid in answers else ""
        if error:
            why = f"{method} failed for ResourceClaim {claim.name}: {error}"
            raise ResponseError("claim-error", why, driver=info.driver, socket=info.endpoint, claim=str(claim))
    missing = [claim for uid, claim in asked.items() if uid not in answers]
    if missing:
        why = f"{method} skipped {len(missing)} ResourceClaims"
        names = ", ".join(map(str, missing))
        raise ResponseError("missing-claim", why, driver=info.driver, socket=info.endpoint, claim=names)
