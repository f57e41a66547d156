from __future__ import annotations

from dra_sdk.tools.scheduling.explain.funnel import Reason
from dra_sdk.tools.scheduling.explain.selection import Selector
from tests.tools.scheduling.explain.situations import A100, BIG
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import GPU, claim, exactly

LOOP = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"


def reasons(expression: str) -> tuple[Reason, ...]:
    made = setting("memory").changed(claims=(claim("c", exactly("gpu", GPU, expression)),))
    (request,) = made.plan.requests
    selector = Selector(made, request, 2)
    assert (selector.kind, selector.number, selector.place) == ("selector", 0, "request gpu, selector 0")
    candidate = next(each for each in made.inventory.view(made.nodes[0]).candidates if each.id.driver == GPU)
    assert selector(candidate) is selector(candidate), "worked out once"
    return selector(candidate)


def test_a_device_that_passes():
    assert reasons(A100) == ()


def test_each_clause_that_fails():
    model = 'device.attributes["gpu.nvidia.com"].productName == "H100"'
    assert reasons(f"{BIG} && {A100} && {model}") == (
        Reason(f"fail {BIG}", "memory is 40Gi", (1, 1)),
        Reason(f"fail {model}", 'productName is "A100"', (1, len(BIG) + len(A100) + 9)),
    )


def test_no_answer():
    (found,) = reasons(f'{A100} &&\n device.attributes["gpu.nvidia.com"].modl == "x"')
    assert found.text == 'have no answer to device.attributes["gpu.nvidia.com"].modl == "x": no such key: modl'
    assert found.position == (2, 37)


def test_a_clause_that_costs_too_much():
    (found,) = reasons(f"{A100} && {LOOP}")
    assert found.text == f"fail {LOOP}: actual cost limit exceeded: more than 1000000"
    assert found.position == (1, len(A100) + 5)


def test_no_expression():
    (found,) = reasons("device.foo == 1")
    assert found.text == "fail, since it is no expression: line 1, column 7: undefined field 'foo'"


def test_selectors_of_the_class():
    made = setting("memory")
    (request,) = made.plan.requests
    selector = Selector(made, request, 1)
    assert (selector.kind, selector.number, selector.place) == ("class", 1, "class gpu.nvidia.com, selector 1")
