"""What the webhook answers: an AdmissionReview with an object goes in, one with a verdict comes out.

It checks each entry of opaque configuration that is for a known driver, with the driver's own classes, as the driver
does when it prepares a claim. So it also runs checks that are code of the class, which no policy can. Every problem is
in one answer, each with its path. Entries of other drivers are not read. Sources: admission.k8s.io/v1 AdmissionReview;
resource.k8s.io/v1, v1beta2 and v1beta1, which have the entries at the same paths.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.errors import DraError, DriverLoadError, raised_at
from dra_sdk.model import JSON
from dra_sdk.model.config import config_class, wrong_fields
from dra_sdk.model.driver import DriverInfo

log = logging.getLogger(__name__)
REVIEW: Final = ("admission.k8s.io/v1", "AdmissionReview")
GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
MAX_PROBLEMS: Final = 50
"""The most problems of an object that an answer has; a claim may have 32 entries with 10 KiB each."""
_CONFIGS: Final = {
    "ResourceClaim": ("spec", "devices", "config"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "config"),
    "DeviceClass": ("spec", "config"),
}
"""Where the entries of each kind are."""
_INVALID: Final = 422


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong field.

    field: its path in the object.
    message: what it must be.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ConfigReviewer:
    """Reviews objects with configuration for some drivers.

    drivers: what each driver says about itself. DriverLoadError if two have the same name.
    """

    def __init__(self, drivers: Iterable[DriverInfo]) -> None:
        self._drivers: dict[str, DriverInfo] = {}
        for each in drivers:
            if each.name in self._drivers:
                raise DriverLoadError(f"driver {each.name} is given twice; name the one that runs in the cluster")
            self._drivers[each.name] = each

    @property
    def drivers(self) -> list[str]:
        """The names of the drivers, sorted."""
        return sorted(self._drivers)

    def review(self, document: Any) -> JSON:
        """Return the AdmissionReview that answers one; DraError if `document` is no request of this API."""
        given = document if isinstance(document, dict) else {}
        request = given.get("request")
        if (given.get("apiVersion"), given.get("kind")) != REVIEW or not isinstance(request, dict):
            raise DraError(f"the body must be a request of {' '.join(REVIEW)}")
        if not isinstance(request.get("uid"), str):
            raise DraError("request.uid must be text")
        found, warnings = self._judged(request)
        response: JSON = {"uid": request["uid"], "allowed": not found}
        if found:
            response["status"] = _status(request, found)
        if warnings:
            response["warnings"] = warnings
        return {"apiVersion": REVIEW[0], "kind": REVIEW[1], "response": response}

    def _judged(self, request: JSON) -> tuple[list[Problem], list[str]]:
        """The problems of a request, and warnings. What was stored before is never stopped from a change elsewhere."""
        kind = request.get("kind")
        checked = request.get("operation") == "CREATE" or (
            request.get("operation") == "UPDATE" and _at(request, "object", "spec") != _at(request, "oldObject", "spec")
        )
        if not isinstance(kind, dict) or kind.get("group") != GROUP or not checked or request.get("subResource"):
            return [], []
        return self.problems(str(kind.get("kind")), request.get("object"))

    def problems(self, kind: str, obj: Any) -> tuple[list[Problem], list[str]]:
        """The problems of an object of this kind, and warnings about what a driver's own code could not check."""
        place = _CONFIGS.get(kind, ())
        entries = _at(obj, *place) if place else None
        problems, warnings = [], []
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            opaque = _at(entry, "opaque")
            info = self._drivers.get(str(_at(opaque, "driver")))
            if info is None:
                continue
            path = f"{'.'.join(place)}[{index}].opaque.parameters"
            try:
                problems += [Problem(_joined(path, field), text) for field, text in _wrong(info, opaque["parameters"])]
            except Exception as error:  # noqa: BLE001 (the author's code; a defect in it must not stop claims)
                reason = f"{type(error).__name__}: {error}{raised_at(error)}"
                log.warning("driver %s: a check of its configuration failed: %s", info.name, reason)
                warnings.append(f"{path}: not checked, because driver {info.name} failed: {reason}"[:250])
        return problems, warnings


def _wrong(info: DriverInfo, parameters: Any) -> Iterator[tuple[str, str]]:
    """The path below the parameters and a sentence for each problem."""
    if not isinstance(parameters, dict):
        yield "", f"must be an object of driver {info.name}"
        return
    config = config_class(info.configs, parameters)
    if config is None:
        known = " or ".join(f"{each.api_version} {each.kind}" for each in info.configs)
        wanted = f"must be {known}" if known else "there must be no entry, because the driver takes no configuration"
        given = f"{parameters.get('apiVersion')!s:.100} {parameters.get('kind')!s:.100}"
        yield "", f"apiVersion and kind for driver {info.name}: {wanted} (got {given})"
        return
    yield from wrong_fields(config, parameters)


def _status(request: JSON, problems: list[Problem]) -> JSON:
    """The meta/v1 Status of a refusal. The API server shows its message to the user, and passes on its causes."""
    shown = problems[:MAX_PROBLEMS]
    message = "; ".join(map(str, shown))
    if len(problems) > len(shown):
        message += f"; and {len(problems) - len(shown)} more problems"
    causes = [{"reason": "FieldValueInvalid", "field": each.field, "message": each.message} for each in shown]
    kind = _at(request, "kind", "kind")
    details = {"group": GROUP, "kind": kind, "name": request.get("name", ""), "causes": causes}
    return {"status": "Failure", "reason": "Invalid", "code": _INVALID, "message": message, "details": details}


def _joined(path: str, field: str) -> str:
    return f"{path}{'' if not field or field.startswith('[') else '.'}{field}"


def _at(value: Any, *path: str) -> Any:
    """The value at a path; None if there is none."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value
