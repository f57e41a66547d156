"""`help()` of a public dataclass is the author's reference: it has a line for each field."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import dra_sdk
import dra_sdk.extensions
import dra_sdk.hardware
import dra_sdk.nri
import dra_sdk.settings
import dra_sdk.testing
from dra_sdk.hardware import health, polling, sharing, uevents
from dra_sdk.testing import sysfs

MODULES = (dra_sdk, dra_sdk.settings, dra_sdk.nri, dra_sdk.extensions, dra_sdk.hardware, dra_sdk.testing)
PUBLIC = [getattr(module, name) for module in MODULES for name in module.__all__]
PUBLIC += [
    value
    for module in (health, polling, sharing, sysfs, uevents)
    for name, value in vars(module).items()
    if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
]
DATACLASSES = [public for public in PUBLIC if isinstance(public, type) and dataclasses.is_dataclass(public)]
LINE = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)


@pytest.mark.parametrize("cls", DATACLASSES, ids=lambda cls: cls.__name__)
def test_the_docstring_has_a_line_for_each_field_in_their_order(cls: type) -> None:
    described = [name for match in LINE.finditer(inspect.getdoc(cls) or "") for name in match[1].split(", ")]
    assert described == [field.name for field in dataclasses.fields(cls)]


def test_there_are_public_dataclasses() -> None:
    assert len(DATACLASSES) > 25
