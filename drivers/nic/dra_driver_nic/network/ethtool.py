"""What `ethtool` shows and changes of an interface: features, channels and rings, by the ioctls of pyroute2.

The functions work in the network namespace of the calling thread. Source: linux/ethtool.h, ethtool(8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyroute2.ethtool.ioctl import EthtoolError, IoctlEthtool, NotSupportedError

from dra_driver_nic.network.links import EthtoolLimits, EthtoolSettings, NetworkError

_CHANNELS: Final = {
    name: (f"{name}_count", f"max_{name}") for name in ("rx", "tx", "other", "combined")
}  # the field with the number, and that with the limit
_RINGS: Final = {"rx": "rx", "rxMini": "rx_mini", "rxJumbo": "rx_jumbo", "tx": "tx"}


def read(interface: str) -> EthtoolSettings:
    """Read the settings of an interface. Raises NetworkError."""
    with _ethtool(interface, "read the settings") as tool:
        features, channels, rings = _read(tool)
        return EthtoolSettings(
            features={name: bool(features.is_requested(name)) for name in _switchable(features)},
            channels={key: channels[number] for key, (number, most) in _CHANNELS.items() if channels.get(most)},
            rings={key: rings[field] for key, field in _RINGS.items() if rings.get(f"{field}_max")},
        )


def read_limits(interface: str) -> EthtoolLimits:
    """Read what these settings may be. Raises NetworkError."""
    with _ethtool(interface, "read the limits") as tool:
        features, channels, rings = _read(tool)
        switchable = {"", *_switchable(features)}
        return EthtoolLimits(
            fixed=tuple(name for name in features.keys() if name not in switchable),  # noqa: SIM118 (it is no mapping)
            channels={key: channels[most] for key, (_, most) in _CHANNELS.items() if channels.get(most)},
            rings={key: rings[f"{field}_max"] for key, field in _RINGS.items() if rings.get(f"{field}_max")},
        )


def set_features(interface: str, wanted: Mapping[str, bool]) -> list[str]:
    """Switch features; those that are not as wanted afterwards, because another feature prevents it.

    Raises NetworkError.
    """
    changes = ", ".join(f"{name} {'on' if is_on else 'off'}" for name, is_on in wanted.items())
    with _ethtool(interface, f"set features {changes}") as tool:
        features = tool.get_features()
        for name, is_on in wanted.items():
            features[name] = is_on
        try:
            tool.set_features(features)
        except NotSupportedError:  # also if some of them are not as wanted
            if not _switchable(features):
                raise
        now = tool.get_features()
        return [name for name, is_on in wanted.items() if bool(now.is_active(name)) != is_on]


def set_channels(interface: str, wanted: Mapping[str, int]) -> None:
    """Set numbers of queues. Raises NetworkError."""
    with _ethtool(interface, f"set channels {_changes(wanted)}") as tool:
        channels = tool.get_channels()
        for key, number in wanted.items():
            channels[_CHANNELS[key][0]] = number
        tool.set_channels(channels)


def set_rings(interface: str, wanted: Mapping[str, int]) -> None:
    """Set sizes of rings. Raises NetworkError."""
    with _ethtool(interface, f"set rings {_changes(wanted)}") as tool:
        rings = tool.get_rings()
        for key, number in wanted.items():
            rings[_RINGS[key]] = number
        tool.set_rings(rings)


def _changes(wanted: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {number}" for key, number in wanted.items())


def _switchable(features: Any) -> Iterable[str]:
    """Return the features that can be switched; the kernel has names that are empty."""
    return [name for name, _, available, *_ in features if name and available and not features.is_never_changed(name)]


def _read(tool: Any) -> tuple[Any, dict[str, int], dict[str, int]]:
    """Read features, channels and rings, as the ioctls of pyroute2 have them."""
    return tool.get_features(), _readable(tool.get_channels), _readable(tool.get_rings)


def _readable(read_one: Callable[[], Any]) -> dict[str, int]:
    """Read by one ioctl; empty if the interface does not have it."""
    try:
        return dict(read_one().items())
    except NotSupportedError:
        return {}


@contextmanager
def _ethtool(interface: str, what: str) -> Iterator[Any]:
    """Open the ioctls of an interface, and turn errors into sentences."""
    tool = IoctlEthtool(interface)
    try:
        yield tool
    except NotSupportedError as error:
        raise NetworkError(f"interface {interface} does not support to {what}") from error
    except (EthtoolError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        number = error.errno or 0 if isinstance(error, OSError) else 0
        raise NetworkError(f"the kernel refused to {what} of interface {interface}: {reason}", number) from error
    finally:
        tool.close()
