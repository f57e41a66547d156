from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from dra_sdk import cel

EXPENSIVE = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"


def test_compiled_once():
    assert cel.compile("1 == 1") is cel.compile("1 == 1")
    assert cel.compile("1 == 1") is not cel.compile("1 == 1", cel.Features(list_type_attributes=False))


def test_length_is_limited_in_bytes():
    assert cel.compile("true".ljust(cel.MAX_LENGTH)).max_cost == 0
    with pytest.raises(cel.CelTooLongError, match="has 10241 bytes, at most 10240 are allowed"):
        cel.compile("true".ljust(cel.MAX_LENGTH + 1))
    with pytest.raises(cel.CelTooLongError):
        cel.compile("'" + "é" * 5200 + "' != ''")


def test_estimate_above_the_limit():
    selector = cel.compile(EXPENSIVE)
    with pytest.raises(cel.CelTooCostlyError, match="too complex: costs up to 8016012, the limit is 1000000"):
        selector.check_cost()
    cel.compile("device.driver == 'a'").check_cost()
    with pytest.raises(cel.CelTooCostlyError):
        cel.compile("device.driver == 'a'").check_cost(limit=1)


def test_an_expensive_evaluation_is_stopped(view: cel.DeviceView):
    with pytest.raises(cel.CelCostError, match="actual cost limit exceeded"):
        cel.compile(EXPENSIVE).matches(view)
    with pytest.raises(cel.CelCostError):
        cel.compile("device.driver == 'a' || true").evaluate(view, limit=2)
    assert cel.compile("device.driver == 'a' || true").evaluate(view, limit=3) == (True, 3)


def test_nothing_absorbs_the_limit(view: cel.DeviceView):
    with pytest.raises(cel.CelCostError):
        cel.compile(f"{EXPENSIVE} || true").matches(view)


def test_one_selector_in_many_threads(view: cel.DeviceView):
    selector = cel.compile("cel.bind(n, device.attributes['gpu.example.com'].ports, n.map(x, x * 2).sum() == 12)")
    wanted = selector.evaluate(view)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: selector.evaluate(view), range(400)))
    assert wanted.match
    assert set(found) == {wanted}


def test_a_pattern_loads_its_library_and_nothing_else_does():
    code = (
        "import sys; from dra_sdk import cel; cel.compile('device.driver == \"a\"'); before = 're2' in sys.modules; "
        "cel.compile('device.driver.matches(\"a\")'); print(before, 're2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    assert done.stderr == ""
