"""The driver in the README, tested as its author would test it."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dra_sdk.testing import request

pytest_plugins = ["dra_sdk.testing.plugin"]
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def serial(tmp_path: Path) -> Iterator[ModuleType]:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    path = tmp_path / "serial_driver.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("serial_driver", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["serial_driver"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["serial_driver"]


def test_a_port_has_its_speed(serial, dra_node, dra_driver, dra_claim):
    dra_node.device_node("/dev/ttyUSB3", major=188, minor=3)
    prepared = dra_driver(serial.SerialDriver).prepare(dra_claim("port", config=serial.SerialConfig(speed=9600)))
    assert prepared.container().env == {"PORT_SPEED": "9600"}
    assert prepared.container().devices["/dev/serial-port"]["minor"] == 3


def test_a_port_is_chosen_by_its_number(serial, dra_node, dra_driver, dra_claim):
    for minor in range(4):
        dra_node.device_node(f"/dev/ttyUSB{minor}", major=188, minor=minor)
    chosen = request("port", where='device.attributes["serial.example.com"].number == 2')
    assert dra_driver(serial.SerialDriver).prepare(dra_claim(chosen)).names == ["port-2"]
