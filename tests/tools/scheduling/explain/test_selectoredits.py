from __future__ import annotations

from dra_sdk.tools.scheduling.explain.requests import Looker
from dra_sdk.tools.scheduling.explain.selectoredits import of_selectors
from dra_sdk.tools.scheduling.explain.setting import Setting
from dra_sdk.tools.scheduling.explain.trials import Proposal, Size
from tests.tools.scheduling.explain.situations import A100, BIG
from tests.tools.scheduling.explain.test_setting import setting
from tests.tools.scheduling.worlds import GPU, NIC, claim, exactly

H100 = 'device.attributes["gpu.nvidia.com"].productName == "H100"'


def proposals(*selectors: str, cls: str = GPU, name: str = "memory") -> tuple[Setting, list[Proposal]]:
    made = setting(name).changed(claims=(claim("c", exactly("gpu", cls, *selectors)),))
    (request,) = made.plan.requests
    looker, node = Looker(made), made.nodes[0]
    devices = [each for each in made.inventory.view(node).candidates if each.id.driver == GPU]
    looked = looker.look(made.plan, request, node)
    return made, list(of_selectors(made, looked, list(looker.selectors(request)), devices, [node]))


def test_another_constant_or_no_clause():
    made, found = proposals(f"{A100} && {BIG}")
    assert [each.text for each in found] == [
        "request gpu, selector 0: 40Gi instead of 80Gi",
        f"request gpu, selector 0: leave out {BIG}",
    ]
    assert found[0].after == f"{A100} && {BIG}".replace("80Gi", "40Gi")
    assert found[1].after == f"{A100} && true"
    assert found[0].parts == found[1].parts
    assert all(each.apply(made).attempt(made.nodes[0]).fits for each in found)


def test_two_clauses_of_two_selectors():
    made, found = proposals(BIG, H100)
    assert [each.text for each in found] == [
        f"request gpu, selector 0: leave out {BIG}; request gpu, selector 1: leave out {H100}"
    ]
    assert found[0].size is Size.CLAUSE
    assert found[0].apply(made).attempt(made.nodes[0]).fits


def test_two_clauses_of_one_selector():
    made, found = proposals(f"{BIG} && {H100}")
    assert found[0].text == f"request gpu, selector 0: leave out {BIG} and {H100}"
    assert found[0].after == "true && true"
    assert found[0].apply(made).attempt(made.nodes[0]).fits


def test_a_change_to_the_class_concerns_everybody():
    made, found = proposals(cls=NIC)
    assert {each.size for each in found} == {Size.CLASS}
    assert found[0].object == "DeviceClass nic.example.com"
    assert found[0].text == "class nic.example.com, selector 0: gpu.nvidia.com instead of nic.example.com"
    assert found[0].apply(made).attempt(made.nodes[0]).fits
    assert not made.attempt(made.nodes[1]).fits, "the class itself is as it was"


def test_an_attribute_that_is_not_there():
    _, found = proposals('device.attributes["x.example.com"].fast && true')
    guard = 'has(device.attributes["x.example.com"].fast)'
    assert found[0].after == f'({guard} && device.attributes["x.example.com"].fast) && true'
    assert found[1].text.endswith('leave out device.attributes["x.example.com"].fast')


def test_what_is_no_expression_has_no_clauses():
    assert proposals("device.nothing")[1] == []
