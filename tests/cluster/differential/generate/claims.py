"""Random classes and claims: requests, alternatives, constraints, configuration, tolerations, capacity."""

from __future__ import annotations

from typing import Final

from tests.cluster.differential.case import ADMIN, CASE, JSON, PLAIN
from tests.cluster.differential.generate.devices import ROOT, TAINT_KEYS
from tests.cluster.differential.generate.draw import Draw
from tests.cluster.differential.generate.expressions import derivation, selector

_ATTRIBUTES: Final = ("model", "numa", "version", "version", "tags")


def classes(draw: Draw, drivers: list[str]) -> list[JSON]:
    """Returns one or two classes for each driver."""
    return [_class(draw, driver, number) for driver in drivers for number in range(draw.number(1, 2))]


def claim(draw: Draw, name: str, known: list[JSON]) -> JSON:
    """Returns a claim for some of the classes."""
    namespace = ADMIN if draw.has("admin", 0.8) else PLAIN
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec(draw, known),
    }


def spec(draw: Draw, known: list[JSON]) -> JSON:
    """Returns the specification of a claim."""
    requests = [_request(draw, f"r{number}", known) for number in range(draw.one(1, 1, 1, 1, 2, 2, 3))]
    devices: JSON = {"requests": requests}
    names = [name for each in requests for name in _names(each)]
    if draw.has("constraints", 0.8):
        devices["constraints"] = [_constraint(draw, names, known) for _ in range(draw.one(1, 1, 2))]
    if draw.has("derived"):
        _derive(draw, devices, known)
    if draw.has("config", 0.7):
        devices["config"] = [_claim_config(draw, names, known) for _ in range(draw.number(1, 2))]
    return {"devices": devices}


def driver_of(device_class: JSON) -> str:
    """Returns the driver of the devices of a class."""
    driver: str = device_class["metadata"]["annotations"]["driver"]
    return driver


def toleration(draw: Draw) -> JSON:
    """Returns a toleration for some of the taints."""
    made: JSON = {}
    if draw.chance(0.85):
        made["key"] = draw.one(*TAINT_KEYS)
        if draw.chance(0.5):
            made["value"] = draw.one("yes", "no")
        else:
            made["operator"] = "Exists"
    else:
        made["operator"] = "Exists"
    if draw.chance(0.5):
        made["effect"] = draw.one("NoSchedule", "NoExecute")
        if made["effect"] == "NoExecute" and draw.chance(0.3):
            made["tolerationSeconds"] = 60
    return made


def _class(draw: Draw, driver: str, number: int) -> JSON:
    expressions = [] if draw.has("no-driver-check") else [f'device.driver == "{driver}"']
    if number or draw.chance(0.2):
        expressions.append(selector(draw, driver))
    content: JSON = {"selectors": [{"cel": {"expression": text}} for text in expressions]}
    if draw.has("extended", 0.7):
        content["extendedResourceName"] = f"example.com/{CASE}-{driver.partition('.')[0]}-{number}"
    if draw.has("config"):
        content["config"] = [_opaque(driver, f"class{part}") for part in range(draw.number(1, 2))]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": f"{CASE}-{driver.partition('.')[0]}-{number}", "annotations": {"driver": driver}},
        "spec": {key: value for key, value in content.items() if value},
    }


def _request(draw: Draw, name: str, known: list[JSON]) -> JSON:
    if draw.has("alternatives", 0.6):
        choices = [_devices(draw, known, exactly=False) for _ in range(draw.number(1, 3))]
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **each} for i, each in enumerate(choices)]}
    return {"name": name, "exactly": _devices(draw, known, exactly=True)}


def _devices(draw: Draw, known: list[JSON], *, exactly: bool) -> JSON:
    chosen = draw.one(*known)
    made: JSON = {"deviceClassName": chosen["metadata"]["name"]}
    if draw.has("missing-class", 0.5):
        made["deviceClassName"] = f"{CASE}-absent"
    if draw.chance(0.38):
        expressions = [selector(draw, driver_of(chosen)) for _ in range(draw.one(1, 1, 2))]
        made["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    if draw.has("all", 0.4):
        made["allocationMode"] = "All"
    elif draw.chance(0.35):
        made["count"] = draw.one(1, 1, 2, 2, 3)
        if draw.chance(0.5):
            made["allocationMode"] = "ExactCount"
    if draw.has("shares", 0.6):
        made["capacity"] = {"requests": _amounts(draw, driver_of(chosen))}
    if draw.has("taints", 0.6) or draw.has("rules", 0.5):
        made["tolerations"] = [toleration(draw) for _ in range(draw.number(1, 2))]
    if exactly and draw.has("admin", 0.6):
        made["adminAccess"] = draw.chance(0.85)
    return made


def _amounts(draw: Draw, driver: str) -> JSON:
    possible = {
        "memory": draw.one("1Gi", "1500Mi", "2Gi", "3Gi", "8Gi", "8Gi", "20Gi", "100Gi"),
        "cores": draw.one("1", "1", "1500m", "1250m", "2", "3"),
        "tokens": draw.one("1k", "1500", "2Ki", "3000"),
    }
    if draw.chance(0.08):
        possible |= draw.one({"memory": "10Pi"}, {"cores": "1000500u"}, {"tokens": "9E"})
    if draw.chance(0.05):
        possible["absent"] = "1"
    domain = f"{driver}/" if draw.chance(0.1) else ""
    return {domain + key: possible[key] for key in draw.some(list(possible))}


def _names(request: JSON) -> list[str]:
    name = request["name"]
    return [name, *(f"{name}/{each['name']}" for each in request.get("firstAvailable", []))]


def _constraint(draw: Draw, names: list[str], known: list[JSON]) -> JSON:
    driver = driver_of(draw.one(*known))
    attribute = ROOT if draw.chance(0.3) else f"{driver}/{draw.one(*_ATTRIBUTES, 'numa', 'model', 'numa', 'model')}"
    made: JSON = {draw.one("matchAttribute", "matchAttribute", "distinctAttribute"): attribute}
    if draw.chance(0.6):
        made["requests"] = draw.some(names)
    return made


def _derive(draw: Draw, devices: JSON, known: list[JSON]) -> None:
    """Returns a constraint on an attribute that some requests derive."""
    derived = [each for request in devices["requests"] for each in _ways(request) if draw.chance(0.85)]
    name = f"{driver_of(draw.one(*known))}/{draw.one('made-up', 'model', 'numa')}"
    for each in derived:
        chosen = next(one for one in known if one["metadata"]["name"] == each["deviceClassName"])
        each["derivedAttributes"] = [{"name": name, "expression": derivation(draw, driver_of(chosen))}]
    made: JSON = {draw.one("matchAttribute", "matchAttribute", "distinctAttribute"): name}
    if draw.chance(0.15):
        made["requests"] = draw.some([each["name"] for each in devices["requests"]])
    devices.setdefault("constraints", []).append(made)


def _ways(request: JSON) -> list[JSON]:
    """Returns the request itself or its alternatives, of classes that exist."""
    ways = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
    return [each for each in ways if each["deviceClassName"] != f"{CASE}-absent"]


def _claim_config(draw: Draw, names: list[str], known: list[JSON]) -> JSON:
    made = _opaque(driver_of(draw.one(*known)), draw.one("one", "two"))
    if draw.chance(0.6):
        made["requests"] = draw.some(names)
    return made


def _opaque(driver: str, value: str) -> JSON:
    parameters = {"apiVersion": "example.com/v1", "kind": "Config", "value": value}
    return {"opaque": {"driver": driver, "parameters": parameters}}
