"""Finding, loading and calling a driver: entry points in front, one pluggy manager per driver behind.

Drivers are advertised under the entry-point group `dra_sdk.drivers` as `name = "package:DriverClass"`. Our own loader
stands in for pluggy's, because there a second entry point of the same name is skipped in silence, one failing
import stops the rest, a misspelt hook registers fine, and with two drivers in one manager the wrong one answers.
"""

from __future__ import annotations

from dra_sdk.loader.driver import Driver
from dra_sdk.loader.finding import DRIVERS, EXTENSIONS, find_driver, iter_drivers, load_driver, origin

__all__ = ["DRIVERS", "EXTENSIONS", "Driver", "find_driver", "iter_drivers", "load_driver", "origin"]
