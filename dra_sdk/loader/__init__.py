"""Finds, loads and calls drivers: entry points in front, pluggy behind, and typed methods above it.

Drivers are advertised under the entry-point group `dra_sdk.drivers` as `name = "package:DriverClass"`. Each has its own
plugin manager, because a manager calls the hooks of all its plugins. We do not use pluggy's loader: it silently skips a
second entry point of the same name, stops at the first failing import, and accepts misspelt hooks.
"""

from __future__ import annotations

from dra_sdk.loader.driver import Driver
from dra_sdk.loader.finding import DRIVERS, EXTENSIONS, find_driver, find_settings, iter_drivers, load_driver, origin

__all__ = ["DRIVERS", "EXTENSIONS", "Driver", "find_driver", "find_settings", "iter_drivers", "load_driver", "origin"]
