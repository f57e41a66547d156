"""Random cases."""

from __future__ import annotations

from tests.cluster.differential.case import CASE, JSON, NODES, PLAIN, Case, PodPlan
from tests.cluster.differential.generate.claims import claim, classes
from tests.cluster.differential.generate.devices import taint
from tests.cluster.differential.generate.draw import Draw
from tests.cluster.differential.generate.slices import slices
from tests.cluster.differential.generate.spoil import spoil


def draw_case(seed: int | str, index: int, *, newer: bool = False) -> Case:
    """Returns case number `index` of a seed; with `newer`, some are about features of 1.37."""
    draw = Draw(seed, index, newer=newer)
    drivers = [f"gpu.{CASE}.example", *([f"nic.{CASE}.example"] if draw.has("two-drivers") else [])]
    known = classes(draw, drivers)
    objects = [*known, *slices(draw, drivers), *_rules(draw, drivers)]
    claims = [claim(draw, f"{CASE}-c{number}", known) for number in range(_number_of_claims(draw))]
    templates = [_template(draw, number, known) for number in range(1)] if draw.has("templates") else []
    pods = (*_pods(draw, claims, templates), *_extended(draw, known))
    objects += [*claims, *templates]
    if draw.has("spoilt"):
        place = draw.number(0, len(objects) - 1)
        objects[place] = spoil(draw, objects[place])
    nodes = NODES if draw.chance(0.8) else tuple(draw.some(NODES, 1))
    return Case(f"seed-{seed}-{index}", tuple(objects), pods, nodes, tuple(sorted(draw.features)))


def _number_of_claims(draw: Draw) -> int:
    """Returns how many pods; more if devices are shared, so that they fill up."""
    return draw.number(2, 6) if draw.has("shares") else draw.one(1, 1, 2, 2, 3, 4)


def _rules(draw: Draw, drivers: list[str]) -> list[JSON]:
    if not draw.has("rules"):
        return []
    return [_rule(draw, draw.one(*drivers), number) for number in range(draw.number(1, 2))]


def _rule(draw: Draw, driver: str, number: int) -> JSON:
    selector: JSON = {"driver": driver}
    if draw.chance(0.4):
        short = driver.partition(".")[0]
        selector["pool"] = f"{CASE}-n{draw.number(0, 3)}-{short}"
    if draw.chance(0.4):
        selector["device"] = f"dev-0-{draw.number(0, 2)}"
    content: JSON = {"taint": taint(draw)}
    if draw.chance(0.95):
        content["deviceSelector"] = selector
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"{CASE}-rule-{number}"},
        "spec": content,
    }


def _template(draw: Draw, number: int, known: list[JSON]) -> JSON:
    made = claim(draw, f"t{number}", known)
    metadata = {**made["metadata"], "name": f"{CASE}-t{number}"}
    return {**made, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": made["spec"]}}


def _extended(draw: Draw, known: list[JSON]) -> list[PodPlan]:
    """Returns pods that ask for devices as extended resources."""
    if not draw.has("extended"):
        return []
    return [
        PodPlan(
            f"{CASE}-x{number}",
            PLAIN,
            (),
            choice=draw.number(0, 11),
            init=tuple(_container(draw, f"init{index}", known) for index in range(draw.one(0, 0, 1, 2))),
            containers=tuple(_container(draw, f"main{index}", known) for index in range(draw.number(1, 2))),
        )
        for number in range(draw.number(1, 2))
    ]


def _container(draw: Draw, name: str, known: list[JSON]) -> JSON:
    made: JSON = {"name": name}
    if name.startswith("init") and draw.chance(0.3):
        made["restartPolicy"] = "Always"
    names = [each["spec"].get("extendedResourceName") for each in known]
    names += [f"deviceclass.resource.kubernetes.io/{each['metadata']['name']}" for each in known]
    wanted = {each: str(draw.one(1, 1, 2)) for each in draw.some([each for each in names if each], 1, 2)}
    return {**made, "resources": {"requests": wanted, "limits": wanted}}


def _pods(draw: Draw, claims: list[JSON], templates: list[JSON]) -> tuple[PodPlan, ...]:
    """Returns a pod for each claim; some pods have two claims, and some claims two pods."""
    pods: list[PodPlan] = []

    def add(namespace: str, names: list[str], used: list[str]) -> None:
        plan = PodPlan(f"{CASE}-p{len(pods)}", namespace, tuple(names), tuple(used), draw.number(0, 11))
        pods.append(plan)

    waiting = list(claims)
    while waiting:
        first = waiting.pop(0)
        namespace = first["metadata"]["namespace"]
        together = [each for each in waiting if each["metadata"]["namespace"] == namespace and draw.chance(0.3)]
        waiting = [each for each in waiting if each not in together]
        add(namespace, [each["metadata"]["name"] for each in [first, *together]], [])
    for template in templates:
        for _ in range(draw.number(1, 2)):
            add(template["metadata"]["namespace"], [], [template["metadata"]["name"]])
    if draw.has("shared-claim"):
        again = draw.one(*claims)["metadata"]
        add(again["namespace"], [again["name"]], [])
    return tuple(pods)
