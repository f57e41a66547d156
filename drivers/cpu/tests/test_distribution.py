"""These tests run as those of an outside author: with the SDK's wheel, and without its checkout."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import dra_sdk


def test_the_sdk_is_an_installed_wheel():
    assert Path(dra_sdk.__file__).is_relative_to(sysconfig.get_path("purelib"))
    assert not [path for path in sys.path if Path(path, "dra_sdk/node").is_dir() and "site-packages" not in path]
