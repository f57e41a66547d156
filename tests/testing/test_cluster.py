"""The API server and the scheduler around the harness: what is allocated, what is refused, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_sdk import NodeSelection
from dra_sdk.errors import InvalidObjectError
from dra_sdk.testing import NotAllocatedError, claim, request
from tests.lamps import NAME, LampConfig
from tests.testing.lamps import Dimmable, Hot, Reporting, SwitchedLamps, Uneven

pytest_plugins = ["dra_sdk.testing.plugin"]


def test_an_expression_chooses_the_device(driver):
    chosen = request("lamp", where=f'device.attributes["{NAME}"].watt > 10')
    assert driver.prepare(claim(chosen)).names == ["lamp-1"]


def test_a_class_chooses_the_device_and_configures_it(driver):
    opaque = {"opaque": {"driver": NAME, "parameters": LampConfig(brightness=7).encode()}}
    driver.add_class("bright", f'device.attributes["{NAME}"].watt > 10', config=[opaque])
    prepared = driver.prepare(claim(request("lamp", device_class="bright")))
    assert (prepared.names, prepared.container().env) == (["lamp-1"], {"LAMP_LAMP": "7"})


def test_no_claim_gets_the_device_of_another_one(driver):
    first = driver.prepare(claim())
    assert driver.prepare(claim()).names == ["lamp-1"]
    with pytest.raises(NotAllocatedError):
        driver.prepare(claim())
    driver.unprepare(first)
    assert driver.prepare(claim()).names == ["lamp-0"]


def test_a_claim_without_devices_is_explained(driver):
    chosen = request("lamp", where=f'device.attributes["{NAME}"].watt > 100')
    with pytest.raises(NotAllocatedError, match=r"watt") as caught:
        driver.allocate(claim(chosen))
    assert "60" in str(caught.value)


def test_claims_share_capacity_until_it_is_used_up(dra_driver):
    driver = dra_driver(Dimmable)
    lit = [driver.prepare(claim(request("l", capacity={"light": "40"}))).container().env for _ in range(2)]
    assert lit == [{"LIGHT": "40"}, {"LIGHT": "40"}]
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(request("l", capacity={"light": "40"})))


def test_what_the_api_server_refuses_is_an_error(driver):
    with pytest.raises(InvalidObjectError, match="line 1, column 1: "):
        driver.allocate(claim(request("l", where="nothing")))
    with pytest.raises(InvalidObjectError, match="at most 10240 bytes"):
        driver.allocate(claim(config={"kind": "x" * 10_300}))
    with pytest.raises(InvalidObjectError, match="colour"):
        driver.allocate(claim({"name": "l", "exactly": {"colour": "red"}}))


def test_the_feature_gates_of_the_release_apply(dra_driver):
    assert "taints" in dra_driver(Hot, version="1.36").slices()[0]["spec"]["devices"][0]
    assert "taints" not in dra_driver(Hot, version="1.35").slices()[0]["spec"]["devices"][0]


def test_a_claim_that_is_already_allocated_can_be_added(driver):
    unallocated = claim("l").encoded(NAME, NAME)
    results = [{"request": "l", "driver": NAME, "pool": "node-1", "device": "lamp-1"}]
    allocated = {**unallocated, "status": {"allocation": {"devices": {"results": results}}}}
    assert driver.prepare(driver.cluster.adopt(allocated)).names == ["lamp-1"]


def test_slices_that_a_release_refuses_with_its_default_gates(dra_driver):
    driver = dra_driver(Uneven)
    with pytest.raises(AssertionError) as caught:
        driver.assert_publishable("1.36", "1.37")
    problems = [line.split(": requestPolicy")[0] for line in str(caught.value).splitlines()]
    assert problems == [f"Kubernetes {release}: device lamp-0: capacity light" for release in ("1.36", "1.37")]


def test_a_refused_slice_says_which_feature_gate_is_off(lamps, dra_driver):
    class Spread(SwitchedLamps):
        """Each lamp has nodes of its own, which 1.34 knows only with a feature gate."""

        def dra_discover(self, node):
            for device in super().dra_discover(node):
                yield replace(device, node=NodeSelection(all_nodes=True))

    with pytest.raises(AssertionError) as caught:
        dra_driver(Spread).assert_publishable("1.34")
    (problem,) = {line for line in str(caught.value).splitlines() if "must have one of" in line}
    assert problem.endswith(
        "; it drops spec.perDeviceNodeSelection, because feature gate DRAPartitionableDevices is off"
    )


def test_the_device_status_is_written_to_the_claim(lamps, dra_driver):
    prepared = dra_driver(Reporting).prepare(claim("l"))
    (status,) = prepared.claim["status"]["devices"]
    assert (status["device"], status["conditions"][0]["type"]) == ("lamp-0", "Ready")


def test_a_device_status_that_no_server_accepts_is_an_error(lamps, dra_driver):
    with pytest.raises(AssertionError, match=r"no server accepts: .*reason"):
        dra_driver(lambda: Reporting("not one word")).prepare(claim("l"))
