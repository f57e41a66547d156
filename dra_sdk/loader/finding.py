"""Finds, imports and checks a driver by name."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from dra_sdk.errors import DriverLoadError, SettingsError, raised_at
from dra_sdk.loader.contract import has_hooks, settings_class
from dra_sdk.loader.driver import Driver
from dra_sdk.model.settings import KUBELET_DIR, SECTION, DriverSettings, SettingsFile

DRIVERS = "dra_sdk.drivers"
EXTENSIONS = "dra_sdk.extensions"
_SUFFIX: Final = ".py"
_SDK: Final = "dra-sdk"
_TARGET: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def iter_drivers() -> list[EntryPoint]:
    """Return the entry points of all installed drivers, sorted by name; imports none."""
    return sorted(entry_points(group=DRIVERS), key=lambda entry_point: (entry_point.name, entry_point.value))


def origin(entry_point: EntryPoint) -> str:
    """Return name and version of the distribution that has an entry point."""
    return f"{entry_point.dist.name} {entry_point.dist.version}" if entry_point.dist else "an unknown distribution"


def find_driver(name: str) -> EntryPoint:
    """Return the one entry point called `name`; DriverLoadError if there is none or more than one."""
    known = iter_drivers()
    matches = {(driver.value, origin(driver)): driver for driver in known if driver.name == name}
    if not matches:
        listed = ", ".join(sorted({driver.name for driver in known})) or "none"
        raise DriverLoadError(
            f"unknown driver {name!r}; installed drivers: {listed} (see `dra-sdk drivers`); "
            f"one that is not installed is written module:Class{_here(name)}"
        )
    if len(matches) > 1:
        where = " and ".join(f"{driver.value} of {origin(driver)}" for driver in matches.values())
        raise DriverLoadError(f"driver {name!r} is installed more than once: {where}; uninstall one of them")
    return next(iter(matches.values()))


def load_driver(name: str, file: SettingsFile | None = None, kubelet_dir: str | Path = KUBELET_DIR) -> Driver:
    """Import, instantiate and check one driver. DriverLoadError names the driver, its distribution and the reason.

    A driver whose class has `settings_class` gets its settings from the environment and from `file`; SettingsError for
    those that are wrong.

    name: an entry point, or `module:Class` for a driver that is not installed; its module may lie in the working
        directory.
    kubelet_dir: where the kubelet's directory is, for settings that are paths below it.
    """
    entry_point, source = _find(name)
    target = _import(entry_point, source)
    kind = settings_class(target, source)
    if kind is None and file is not None:
        raise SettingsError(f"settings file {file.path} has a section {SECTION}, but {source} has no settings")
    driver = Driver(source)
    driver.register(_instance(target, source, None if kind is None else kind.read(file=file, kubelet_dir=kubelet_dir)))
    for extension in entry_points(group=EXTENSIONS):
        label = f"extension {extension.name!r} ({extension.value} of {origin(extension)})"
        driver.extend(_instance(_import(extension, label), label), label)
    driver.check()
    return driver


def find_settings(name: str) -> type[DriverSettings] | None:
    """Return the class of a driver's settings, None if it has none; imports the driver and does not instantiate it.

    name: as for `load_driver`.
    """
    entry_point, source = _find(name)
    return settings_class(_import(entry_point, source), source)


def _find(name: str) -> tuple[EntryPoint, str]:
    """Return the driver, and how messages call it."""
    if ":" in name:
        return _outside(name), f"driver {name!r}"
    entry_point = find_driver(name)
    return entry_point, f"driver {name!r} ({entry_point.value} of {origin(entry_point)})"


def _outside(name: str) -> EntryPoint:
    """Return an entry point for a driver that is not installed."""
    here = _here(name)
    if not _TARGET.fullmatch(name) or (here and name.partition(":")[0].endswith(_SUFFIX)):
        example = here or ", such as my_driver:MyDriver for a file my_driver.py in this directory"
        raise DriverLoadError(f"driver {name!r} must be written module:Class{example}")
    if os.getcwd() not in sys.path:  # noqa: PTH109 (as in sys.path); `python -m` does the same
        sys.path.append(os.getcwd())  # noqa: PTH109
    return EntryPoint(name, name, DRIVERS)


def _here(name: str) -> str:
    """Return a hint on how to name a driver in a file of the working directory; empty if there is no such file."""
    module, colon, attribute = name.partition(":")
    package, dot, last = module.rpartition(".")
    if dot and not colon and last[:1].isupper():
        return f", here {package}:{last}"
    file = Path(module if module.endswith(_SUFFIX) else f"{module}{_SUFFIX}")
    if file.is_absolute() or not (module and file.is_file()):
        return ""
    return f", here {'.'.join(file.with_suffix('').parts)}:{attribute or 'MyDriver'}"


def _import(entry_point: EntryPoint, source: str) -> object:
    _check_sdk_version(entry_point, source)
    try:
        return entry_point.load()
    except (Exception, SystemExit) as error:  # an import runs the author's code
        if isinstance(error, ModuleNotFoundError) and (package := _package(entry_point, error.name or "")):
            raise DriverLoadError(
                f"{source} needs {error.name}, which is not installed: pip install '{package}'"
            ) from error
        raise DriverLoadError(f"{source} failed to load: {_reason(error)}{_instead(entry_point, error)}") from error


def _check_sdk_version(entry_point: EntryPoint, source: str) -> None:
    """Raise DriverLoadError if the driver's distribution is for another version of the SDK."""
    named = [one for one in _requirements(entry_point) if canonicalize_name(one.name) == _SDK]
    requirements = [one for one in named if one.marker is None or one.marker.evaluate({"extra": ""})]
    if not requirements:
        return
    try:
        installed = version(_SDK)
    except PackageNotFoundError:  # a checkout on PYTHONPATH has no version
        return
    for requirement in requirements:
        if not requirement.specifier.contains(installed, prereleases=True):
            raise DriverLoadError(
                f"{source} is for {_SDK} {requirement.specifier}, and {_SDK} {installed} is installed: "
                "install a driver and an SDK that go together"
            )


def _requirements(entry_point: EntryPoint) -> Iterator[Requirement]:
    """Yield what the driver's distribution needs, without lines that are no requirements of today."""
    for line in (entry_point.dist.requires if entry_point.dist else None) or ():
        with suppress(InvalidRequirement):
            yield Requirement(line)


def _package(entry_point: EntryPoint, module: str) -> str:
    """Return the package with a module that the driver's distribution needs, as pip takes it; empty if it names none.

    The package must be called like the module.
    """
    wanted = canonicalize_name(module.partition(".")[0])
    for requirement in _requirements(entry_point):
        if canonicalize_name(requirement.name) == wanted:
            return f"{requirement.name}{requirement.specifier}"
    return ""


def _instance(target: object, source: str, settings: DriverSettings | None = None) -> object:
    """Return an instance of a class; a target that is an instance already may not expect settings."""
    if not inspect.isclass(target):
        if not has_hooks(target):
            raise DriverLoadError(f"{source} is {_described(target)}, want a class with methods dra_…")
        if settings is not None:
            raise DriverLoadError(f"{source} is an instance with a settings_class; name its class")
        return target
    arguments = {} if settings is None else {"settings": settings}
    try:
        return target(**arguments)
    except (Exception, SystemExit) as error:
        raise DriverLoadError(f"{source} failed to load: {_reason(error)}{_needs(target, arguments)}") from error


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}{raised_at(error)}"


def _instead(entry_point: EntryPoint, error: BaseException) -> str:
    """Return a hint about a module or class that does not exist: what exists, or a colon in place of a dot."""
    if ":" not in entry_point.value:
        package, dot, name = entry_point.value.rpartition(".")
        return f"; an entry point is written module:Class, here {package}:{name}" if dot else ""
    module = sys.modules.get(entry_point.module)
    if module is None:
        missing = isinstance(error, ModuleNotFoundError) and entry_point.module.startswith(error.name or "-")
        return f"; it is neither installed nor a file in {Path.cwd()}" if missing else ""
    if hasattr(module, entry_point.attr.partition(".")[0]):
        return ""
    classes = [name for name, value in vars(module).items() if inspect.isclass(value) and has_hooks(value)]
    return f"; it has {', '.join(classes)}" if classes else "; it has no class with methods dra_…"


def _needs(target: type, arguments: Mapping[str, object]) -> str:
    """Return a hint about a constructor that takes other arguments."""
    try:
        inspect.signature(target).bind(**arguments)
    except TypeError:
        if arguments:
            return "; a driver with a settings_class is made with one argument, settings"
        return "; a driver is made without arguments, so each needs a default"
    except ValueError:  # a class of an extension module has no signature
        return ""
    return ""


def _described(value: object) -> str:
    if value is None:
        return "None"
    return f"a {type(value).__name__}"
