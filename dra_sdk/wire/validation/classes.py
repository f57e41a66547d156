"""DeviceClasses and DeviceTaintRules: what administrators write. Source: resource.k8s.io validation of both."""

from __future__ import annotations

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.classes import (
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from dra_sdk.wire.validation.claims import opaque, selectors
from dra_sdk.wire.validation.devices import taint
from dra_sdk.wire.validation.metadata import cluster_metadata, conditions, new_metadata, updated_metadata
from dra_sdk.wire.validation.names import (
    dns_label,
    dns_subdomain,
    driver_name,
    extended_resource_name,
    path_segment_prefix,
    pool_name,
)
from dra_sdk.wire.validation.problems import Problems, Uncompiled
from dra_sdk.wire.validation.rules import check_list, if_set, semantically_equal


def device_class(value: DeviceClass, old: DeviceClass | None, profile: ServerProfile) -> Problems:
    """Check a DeviceClass. New limits do not apply to fields that an update does not change.

    Since 1.35 a generateName need not be a DNS subdomain. The server checks only whether it fits into a URL path, and
    only if everything else is valid.
    """
    before_1_35 = profile.minor == OLDEST
    problems = list(new_metadata(value.metadata, profile, namespaced=False, checks_generate_name=before_1_35))
    is_new = old is None or before_1_35
    problems += _class(value.spec, None, "spec", profile) if is_new else ()
    yield from problems
    if is_new and all(isinstance(problem, Uncompiled) for problem in problems):
        yield from path_segment_prefix(value.metadata.generate_name, "metadata.generateName")
    if old is not None:
        yield from updated_metadata(value.metadata, old.metadata, profile)
        yield from _class(value.spec, old.spec, "spec", profile)


def taint_rule(value: DeviceTaintRule, old: DeviceTaintRule | None, profile: ServerProfile) -> Problems:
    """Check a DeviceTaintRule, without its status: the server clears that of a new one."""
    yield from cluster_metadata(value.metadata, None if old is None else old.metadata, profile)
    yield from _rule(value.spec, None if old is None else old.spec, "spec", profile)


def taint_rule_status(value: DeviceTaintRule, old: DeviceTaintRule, profile: ServerProfile) -> Problems:
    """Check a DeviceTaintRule whose status is updated."""
    yield from updated_metadata(value.metadata, old.metadata, profile)
    yield from conditions(value.status.conditions, "status.conditions", profile)


def _class(spec: DeviceClassSpec, old: DeviceClassSpec | None, field: str, profile: ServerProfile) -> Problems:
    stored_selectors = old is not None and semantically_equal(spec.selectors, old.selectors)
    stored_config = old is not None and semantically_equal(spec.config, old.config)

    def config(value: DeviceClassConfiguration, where: str) -> Problems:
        return opaque(value.opaque, where, profile, stored=stored_config)

    yield from selectors(spec.selectors, f"{field}.selectors", profile, stored=stored_selectors)
    yield from check_list(spec.config, f"{field}.config", config, profile, at_most=profile.limits.configs)
    yield from if_set(extended_resource_name, spec.extended_resource_name, f"{field}.extendedResourceName")


def _rule(spec: DeviceTaintRuleSpec, old: DeviceTaintRuleSpec | None, field: str, profile: ServerProfile) -> Problems:
    if spec.device_selector is not None:
        before = old.device_selector if old is not None else None
        yield from _selector(spec.device_selector, before, f"{field}.deviceSelector", profile)
    keeps_effect = old is not None and old.taint.effect == spec.taint.effect and profile.minor > OLDEST
    yield from taint(spec.taint, f"{field}.taint", profile, keeps_effect=keeps_effect)


def _selector(
    value: DeviceTaintSelector, old: DeviceTaintSelector | None, field: str, profile: ServerProfile
) -> Problems:
    yield from if_set(dns_subdomain, value.device_class_name, f"{field}.deviceClassName")
    yield from if_set(driver_name, value.driver, f"{field}.driver")
    yield from if_set(pool_name, value.pool, f"{field}.pool")
    yield from if_set(dns_label, value.device, f"{field}.device")
    stored = old is not None and semantically_equal(value.selectors, old.selectors)
    yield from selectors(value.selectors, f"{field}.selectors", profile, stored=stored)
