"""Whether what a driver says about itself is usable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dra_sdk.errors import DriverLoadError
from dra_sdk.model.config import OpaqueConfig, wrong_defaults
from dra_sdk.model.driver import DriverInfo

NAME_LIMIT: Final = 63
"""Characters of a driver name (resource.k8s.io/v1)."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_API_VERSION: Final = re.compile(rf"({_NAME.pattern}/)?v[0-9][a-z0-9]*")
_SHORTEST: Final = 2  # characters of a CDI vendor or class


def check_info(info: Any, source: str) -> None:
    """DriverLoadError with the driver and the first thing that is wrong."""
    if not isinstance(info, DriverInfo):
        raise DriverLoadError(f"{source}: dra_driver_info returned {info!r}, want a DriverInfo")
    for problem in _problems(info):
        raise DriverLoadError(f"{source}: {problem}")


def _problems(info: Any) -> Iterator[str]:
    if not isinstance(info.name, str) or len(info.name) > NAME_LIMIT or not _NAME.fullmatch(info.name):
        yield f"driver name {info.name!r} must be a lower-case DNS subdomain of at most {NAME_LIMIT} characters"
    yield from _cdi_problems(str(info.cdi_kind), info.name)
    if not isinstance(info.configs, Sequence) or not all(_is_config(each) for each in info.configs):
        yield f"configs must be a list of OpaqueConfig classes, is {info.configs!r}"
    yield from _config_problems(info)


def _cdi_problems(kind: str, name: str) -> Iterator[str]:
    parts = kind.split("/")
    if len(parts) != 2:  # noqa: PLR2004 (vendor and class)
        yield f"CDI kind {kind!r} must be vendor/class, such as {name}/device"
    if any(len(part) < _SHORTEST for part in parts):
        yield f"CDI kind {kind!r}: vendor and class need two characters or more, containerd 2.1 crashes on one"


def _config_problems(info: DriverInfo) -> Iterator[str]:
    kinds: set[tuple[str, str]] = set()
    for config in info.configs:
        name = config.__name__
        if not config.api_version:
            example = f'class {name}(OpaqueConfig, api_version="{info.name}/v1")'
            yield f"config class {name} needs an API version: {example}"
        if not _API_VERSION.fullmatch(str(config.api_version)):
            yield f"config class {name}: API version {config.api_version!r} must be like {info.name}/v1"
        if (config.api_version, config.kind) in kinds:
            yield f"two config classes share apiVersion {config.api_version} and kind {config.kind}"
        kinds.add((config.api_version, config.kind))
        for problem in wrong_defaults(config):
            yield f"config class {name}: {problem}"


def _is_config(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, OpaqueConfig)
