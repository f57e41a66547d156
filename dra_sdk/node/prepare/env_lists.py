"""Variables that the devices of a request fill together (`ContainerEdits.env_lists`): checked, and joined for CDI.

CDI can only set a variable, and of two devices that set it the last one wins. So what the devices of a request add is
joined here, into one CDI device of the request, which is among those of its first device. The kubelet answers for each
request by itself: a container that uses several requests gets the devices of each in the order of its own list, so by
CDI alone the variable is that of the last one. `dra_sdk.node.nri.env_lists` joins them for the container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from dra_sdk.errors import HookError, InvalidObjectError
from dra_sdk.model.claim import HeldDevice, PreparedDevice
from dra_sdk.model.edits import ContainerEdits, EnvList, joined_env_lists

FILLS: Final = attrgetter("edits.env_lists")
"""Returns what a prepared device adds to variables, unchecked. Few drivers do."""


def by_request(prepared: Sequence[PreparedDevice]) -> dict[str, ContainerEdits]:
    """Return for each request the variables that its devices fill, in their order; without requests that fill none.

    InvalidObjectError names the device and what is wrong with its lists; HookError if two devices disagree about the
    separator of a variable, or one of them sets it.
    """
    lists = [device_lists(device) for device in prepared]
    joined = joined_env_lists(lists)  # over all requests, because a container may use several
    for device in prepared:
        if twice := sorted(joined.keys() & set(device.edits.env)):
            raise HookError(
                f"dra_prepare: {twice[0]} is in env of device {device.pool}/{device.name} and in env_lists of a device "
                "of the claim; one of them would be lost"
            )
    requests = dict.fromkeys(device.base_request for device, filled in zip(prepared, lists, strict=True) if filled)
    return {request: _edits(request, prepared) for request in requests}


def device_lists(device: PreparedDevice) -> dict[str, EnvList]:
    """Return what a device adds to variables. InvalidObjectError names the device and each problem."""
    lists: Any = device.edits.env_lists
    if not lists:
        return {}
    if isinstance(lists, Mapping):
        problems = [problem for name, filled in lists.items() for problem in _problems(name, filled)]
    else:
        problems = [f"must be a mapping of names to lists of texts, is {lists!r}"]
    if problems:
        raise InvalidObjectError(f"env_lists of device {device.pool}/{device.name}", problems)
    return joined_env_lists([lists])


def split_variables(devices: Sequence[HeldDevice]) -> str:
    """Return a sentence about variables that several requests fill, which CDI alone does not join; else nothing."""
    requests: dict[str, dict[str, None]] = {}
    for device in devices:
        for name in device.env_lists:
            requests.setdefault(name, {})[device.base_request] = None
    sentence = ""
    for name, filling in requests.items():
        if len(filling) > 1:
            sentence += (
                f"of requests {', '.join(filling)} a container that uses several gets {name} of the last one alone; "
            )
    return f"{sentence}DriverInfo(nri=True) joins them" if sentence else ""


def _edits(request: str, prepared: Sequence[PreparedDevice]) -> ContainerEdits:
    joined = joined_env_lists(device.edits.env_lists for device in prepared if device.base_request == request)
    return ContainerEdits(env={name: str(filled) for name, filled in joined.items()})


def _problems(name: Any, filled: Any) -> Iterator[str]:
    values = filled.values if isinstance(filled, EnvList) else filled
    separator: Any = filled.separator if isinstance(filled, EnvList) else ","
    if not isinstance(name, str) or not name or "=" in name:
        yield f"the name of a variable must be text without '=', is {name!r}"
    if not isinstance(separator, str) or not separator:
        yield f"{name}: separator must be text that is not empty, is {separator!r}"
        return
    if not isinstance(values, list | tuple):
        yield f"{name}: must be a list of texts, is {values!r}"
        return
    for value in values:
        if not isinstance(value, str) or not value:
            yield f"{name}: must be a list of texts that are not empty, has {value!r}"
        elif separator in value:
            yield f"{name}: {value!r} contains the separator {separator!r}; it would be read as several values"
