"""An audit log: a JSON line for each device that a hook prepared or gave back. Also the example of an extension.

An extension is a plugin whose methods wrap hooks, advertised under the entry points `dra_sdk.extensions`; it runs
around every driver of the process. Steps of an undo that an operator skipped have a line, too. This extension is silent
until `DRA_SDK_AUDIT_LOG` names a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dra_sdk.hookspecs import hookimpl
from dra_sdk.model.claim import Claim, HeldClaim, PreparedDevice
from dra_sdk.model.undo import Verdict

VARIABLE = "DRA_SDK_AUDIT_LOG"


class AuditLog:
    """Appends to the file that the environment names. If the file cannot be written, the call fails."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._path = Path(environment[VARIABLE]) if environment.get(VARIABLE) else None

    @hookimpl(wrapper=True)
    def dra_prepare(self, claim: Claim[Any]) -> Generator[None, Any, Any]:
        """Record each device as soon as it is prepared, and a failure with its reason."""
        devices = yield
        return devices if self._path is None else self._prepared(claim, devices)

    @hookimpl(wrapper=True)
    def dra_unprepare(self, claim: HeldClaim) -> Generator[None, None, None]:
        """Record each step that an operator does without, and each device after its unprepare."""
        try:
            yield
        finally:
            for step in claim.undo.steps:
                if step.verdict is Verdict.SKIPPED:
                    self._write("skipped", claim, step=step.name, error=step.reason)
        for device in claim.devices:
            self._write("unprepared", claim, device=f"{device.pool}/{device.name}", request=device.request)

    def _prepared(self, claim: Claim[Any], devices: Iterable[PreparedDevice]) -> Iterator[PreparedDevice]:
        try:
            for device in devices:
                self._write("prepared", claim, device=f"{device.pool}/{device.name}", request=device.request)
                yield device
        except Exception as error:
            self._write("failed", claim, error=f"{type(error).__name__}: {error}")
            raise

    def _write(self, event: str, claim: Claim[Any] | HeldClaim, **more: str) -> None:
        if self._path is None:
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            "claim": f"{claim.namespace}/{claim.name}",
            "uid": claim.uid,
            **more,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
