"""What is wrong with the opaque configuration in an object, by the drivers' own classes.

It checks each entry of opaque configuration that is for a known driver, with the driver's own classes, as the driver
does when it prepares a claim, and with their CEL rules, as an admission policy does. Each problem has its path. Entries
of other drivers are not read. Source: resource.k8s.io/v1, v1beta2 and v1beta1, which have the entries
at the same paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from dra_sdk.errors import DriverLoadError, raised_at
from dra_sdk.model import JSON
from dra_sdk.model.class_fields import CLASS_ONLY, given
from dra_sdk.model.config import OpaqueConfig, config_class, wrong_fields
from dra_sdk.model.driver import DriverInfo
from dra_sdk.tools.configuration.rules import ConfigRules

_CONFIGS: Final = {
    "ResourceClaim": ("spec", "devices", "config"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "config"),
    "DeviceClass": ("spec", "config"),
}
"""Where the entries of each kind are."""
Problem = tuple[str, str]
"""The path of a wrong field, and what it must be."""


class ConfigReviewer:
    """Reviews objects with configuration for some drivers.

    drivers: what each driver says about itself. DriverLoadError if two have the same name.
    """

    def __init__(self, drivers: Iterable[DriverInfo]) -> None:
        self._drivers: dict[str, DriverInfo] = {}
        self._rules: dict[type[OpaqueConfig], ConfigRules] = {}
        for info in drivers:
            if info.name in self._drivers:
                raise DriverLoadError(f"driver {info.name} is given twice; name the one that runs in the cluster")
            self._drivers[info.name] = info
            self._rules.update((config, ConfigRules(config)) for config in info.configs if config.cel_rules)

    def problems(self, kind: str, obj: Any) -> tuple[list[Problem], list[str]]:
        """Return what is wrong with an object of this kind, and warnings about what a driver's code could not check."""
        place = _CONFIGS.get(kind, ())
        entries = _at(obj, *place) if place else None
        problems: list[Problem] = []
        warnings: list[str] = []
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            opaque = _at(entry, "opaque")
            info = self._drivers.get(str(_at(opaque, "driver")))
            if info is None:
                continue
            path = f"{'.'.join(place)}[{index}].opaque.parameters"
            try:
                wrong = [*self._wrong(info, opaque["parameters"]), *_class_only(info, kind, opaque["parameters"])]
                problems += [(_joined(path, field), text) for field, text in wrong]
            except Exception as error:  # noqa: BLE001 (the author's code)
                reason = f"{type(error).__name__}: {error}{raised_at(error)}"
                warnings.append(f"{path}: not checked, because driver {info.name} failed: {reason}"[:250])
        return problems, warnings

    def _wrong(self, info: DriverInfo, parameters: Any) -> Iterator[Problem]:
        """Yield the path below the parameters and a sentence for each problem."""
        if not isinstance(parameters, dict):
            yield "", f"must be an object of driver {info.name}"
        elif (config := config_class(info.configs, parameters)) is None:
            yield "", _unknown_kind(info, parameters)
        elif problems := wrong_fields(config, parameters):
            yield from problems
        elif rules := self._rules.get(config):
            yield from (("", f"{config.kind}.{rule} refuses it: {reason}") for rule, reason in rules.broken(parameters))


def _class_only(info: DriverInfo, kind: str, parameters: Any) -> Iterator[Problem]:
    if kind != "DeviceClass" and isinstance(parameters, dict):
        yield from ((path, CLASS_ONLY) for path in given(parameters, info.class_only))


def _unknown_kind(info: DriverInfo, parameters: JSON) -> str:
    known = " or ".join(f"{config.api_version} {config.kind}" for config in info.configs)
    wanted = f"must be {known}" if known else "there must be no entry, because the driver takes no configuration"
    given = f"{parameters.get('apiVersion')!s:.100} {parameters.get('kind')!s:.100}"
    return f"apiVersion and kind for driver {info.name}: {wanted} (got {given})"


def _joined(path: str, field: str) -> str:
    return f"{path}{'' if not field or field.startswith('[') else '.'}{field}"


def _at(value: Any, *path: str) -> Any:
    """Return the value at a path; None if there is none."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value
