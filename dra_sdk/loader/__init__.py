"""Finds, loads and calls drivers. A driver has an entry point and its own pluggy manager.

Drivers are advertised under the entry-point group `dra_sdk.drivers` as `name = "package:DriverClass"`. We do
not use pluggy's loader: it silently skips a second entry point of the same name, stops at the first failing import,
accepts misspelt hooks, and calls the hooks of all plugins of a manager.
"""

from __future__ import annotations

from dra_sdk.loader.driver import Driver
from dra_sdk.loader.finding import DRIVERS, EXTENSIONS, find_driver, iter_drivers, load_driver, origin

__all__ = ["DRIVERS", "EXTENSIONS", "Driver", "find_driver", "iter_drivers", "load_driver", "origin"]
