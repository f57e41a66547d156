{%- set kind = cookiecutter.kind -%}
{%- set settings = {"file": 'power="on"', "pci": 'power="on"', "sriov": "iommufd=False", "net": "mtu=9000", "bare": "priority=7", "accelerator": 'log_level="debug"'}[kind] -%}
{%- set wrong = {"file": '"power": "off"', "pci": '"power": "off"', "sriov": '"iommufd": "perhaps"', "net": '"mtu": 20', "bare": '"priority": 10', "accelerator": '"logLevel": "all"'}[kind] -%}
{%- set problem = {"file": "power: .*'auto' or 'on'", "pci": "power: .*'auto' or 'on'", "sriov": "iommufd: .*boolean", "net": "mtu: .*greater than or equal to 68", "bare": "priority: .*less than or equal to 9", "accelerator": "logLevel: .*'error' or 'debug'"}[kind] -%}
{%- set before, during = {"file": ("auto", "on"), "pci": ("auto", "on"), "sriov": ("accel", "vfio-pci"), "net": ("1500", "9000"), "bare": ("", ""), "accelerator": ("", "")}[kind] -%}
"""What the driver promises, on a node made of files."""

import pytest
from dra_sdk import ConfigError{% if kind != "bare" %}, HealthStatus{% endif %}
from dra_sdk.testing import DriverHarness, claim{% if kind == "accelerator" %}, request{% endif %}
from dra_sdk.testing.crashes import assert_survives_crashes

from {{ cookiecutter.__package }} import {{ cookiecutter.__class }}Config

from machine import {% if kind == "file" %}DEVICES, {% endif %}NAMES{% if kind == "accelerator" %}, fail, unplug{% elif kind != "bare" %}, changed, fail, unplug{% endif %}

CONFIGURED = claim("device", config={{ cookiecutter.__class }}Config({{ settings }}))


def test_every_release_accepts_the_slices(driver: DriverHarness) -> None:
    driver.assert_publishable()
    assert list(driver.devices) == NAMES


def test_a_container_gets_its_device(driver: DriverHarness) -> None:
    container = driver.prepare(claim("device")).container()
{%- if kind == "file" %}
    assert set(container.devices) == {f"/dev/{DEVICES[0]}"}
{%- elif kind == "pci" %}
    assert set(container.devices) == {"/dev/accel/accel0"}
{%- elif kind == "sriov" %}
    assert set(container.devices) == {"/dev/vfio/21", "/dev/vfio/vfio"}
{%- elif kind == "accelerator" %}
    assert set(container.devices) == {"/dev/accel/accel0"}
    assert container.env["ACCEL_VISIBLE_DEVICES"] == "0"
{%- elif kind == "net" %}
    assert container.net_devices == {"eth1": "eth1"}
{%- else %}
    assert container.env == {"DEVICE_SEAT": "0", "DEVICE_PRIORITY": "0"}
{%- endif %}


{% if kind == "bare" -%}
def test_the_configuration_reaches_the_container(driver: DriverHarness) -> None:
    assert driver.prepare(CONFIGURED).container().env["DEVICE_PRIORITY"] == "7"


{% elif kind == "accelerator" -%}
def test_the_configuration_reaches_the_container(driver: DriverHarness) -> None:
    assert driver.prepare(CONFIGURED).container().env["ACCEL_LOG_LEVEL"] == "debug"


def test_a_container_finds_all_cards_of_its_request(driver: DriverHarness) -> None:
    container = driver.prepare(claim(request("device", count=2))).container()
    assert container.env["ACCEL_VISIBLE_DEVICES"] == "0,1"


{% endif -%}
def test_wrong_configuration_is_refused(driver: DriverHarness) -> None:
    wrong = {**{{ cookiecutter.__class }}Config().encode(), {{ wrong }}}
    with pytest.raises(ConfigError, match=r"{{ problem }}"):
        driver.prepare(claim("device", config=wrong))


{% if kind in ("bare", "accelerator") -%}
def test_nothing_is_left_of_a_claim(driver: DriverHarness) -> None:
    driver.unprepare(driver.prepare(CONFIGURED))
    driver.assert_clean()


def test_a_kill_at_any_line_leaves_nothing_behind(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, CONFIGURED) > 0
{%- if kind == "bare" %}


# For the hooks that are comments (`from dra_sdk import HealthStatus`, and a function `unplug` in machine.py):
#
# def test_a_device_that_is_unplugged_is_no_longer_published(driver: DriverHarness) -> None:
#     with driver.watching() as watch:
#         unplug(driver.node)
#         while NAMES[0] in driver.devices:
#             watch.wait_changed()
#
#
# def test_all_devices_are_healthy(driver: DriverHarness) -> None:
#     assert {health.status for health in driver.health().values()} == {HealthStatus.HEALTHY}
{%- endif %}
{%- else -%}
def test_the_configuration_reaches_the_device_and_unprepare_undoes_it(driver: DriverHarness) -> None:
    assert changed(driver.node) == "{{ before }}"
    prepared = driver.prepare(CONFIGURED)
    assert changed(driver.node) == "{{ during }}"
    driver.unprepare(prepared)
    assert changed(driver.node) == "{{ before }}"
    driver.assert_clean()


def test_a_kill_at_any_line_leaves_nothing_behind(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, CONFIGURED) > 0
{%- endif %}
{%- if kind != "bare" %}


def test_a_claim_ends_after_its_device_was_unplugged(driver: DriverHarness) -> None:
    prepared = driver.prepare(CONFIGURED)
    unplug(driver.node)
    driver.unprepare(prepared)
    driver.assert_clean()


def test_a_device_that_is_unplugged_is_no_longer_published(driver: DriverHarness) -> None:
    assert NAMES[0] in driver.devices
    with driver.watching() as watch:
        unplug(driver.node)
        while NAMES[0] in driver.devices:
            watch.wait_changed()


def test_a_device_that_fails_becomes_unhealthy(driver: DriverHarness) -> None:
    with driver.watching_health() as health:
        health.wait(NAMES[0], HealthStatus.HEALTHY)
        fail(driver.node)
        health.wait(NAMES[0], HealthStatus.UNHEALTHY)
        assert health.devices[NAMES[1]].status is HealthStatus.HEALTHY
{%- endif %}
