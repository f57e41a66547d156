"""ResourceSlices: what the driver publishes, and that it stays published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dra_sdk.kube import paths
from dra_sdk.model import JSON
from dra_sdk.tools.conformance.allocatable import devices_with_slices, latest_generation, published_devices
from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.outcomes import expect
from dra_sdk.tools.conformance.run import Run, slice_versions
from dra_sdk.tools.conformance.timeouts import wait_until
from dra_sdk.wire.validation import validate

SLICES: Final = Level("slices", "ResourceSlices")

_API: Final = "k8s.io/api resource/v1"
_KEP: Final = "KEP-4381, ResourceSlice"
_E2E: Final = "Kubernetes test/e2e/dra, must manage ResourceSlices"
_MANAGER: Final = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go"
STANDARD_DOMAIN: Final = "resource.kubernetes.io"
STANDARD_ATTRIBUTES: Final = {"pciBusID", "pcieRoot", "numaNode"}
"""The attributes in the standard domain: k8s.io/dynamic-resource-allocation deviceattribute."""
OTHER_DRIVER: Final = "foreign.conformance.example.com"
_TYPE: Final[JSON] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}


@SLICES.must("SLC-001", "KEP-4381, Publishing node resources; KEP-5970, behaviour 2")
def publishes_devices(run: Run) -> None:
    """The driver publishes ResourceSlices with at least one device, under the name that it registered."""
    slices = run.claims.slices()
    expect(slices, f"there is no ResourceSlice with spec.driver={run.instance.info.name}")
    expect(published_devices(slices), "the ResourceSlices have no device", slices=slices)


@SLICES.must("SLC-002", f"{_API}; Kubernetes pkg/apis/resource/validation")
def publishes_valid_slices(run: Run) -> None:
    """Every ResourceSlice is valid within the limits of the API."""
    for raw_slice in run.published_slices():
        problems = [str(problem) for problem in validate({**raw_slice, **_TYPE})]
        expect(not problems, f"{raw_slice['metadata']['name']}: {'; '.join(problems)}", slice=raw_slice)


@SLICES.must("SLC-003", f"{_API} ResourcePool; {_KEP}")
def publishes_complete_pools(run: Run) -> None:
    """A pool has the number of slices that it announces, each device once, and the counters that its devices use."""
    pools: dict[str, list[JSON]] = {}
    for raw_slice in run.published_slices():
        pools.setdefault(raw_slice["spec"]["pool"]["name"], []).append(raw_slice)
    for name, pool_slices in pools.items():
        problems = list(_pool_problems(pool_slices))
        expect(not problems, f"pool {name}: {'; '.join(problems)}", slices=pool_slices)


@SLICES.must("SLC-004", f"{_API} ResourceSliceSpec.NodeName; KEP-4381, Security")
def publishes_for_its_own_node(run: Run) -> None:
    """A slice with a nodeName names the node that the driver runs on."""
    node = run.environment.node_name
    wrong = [raw_slice for raw_slice in run.published_slices() if raw_slice["spec"].get("nodeName") not in {None, node}]
    expect(not wrong, f"slices of other nodes than {node}", slices=wrong)


@SLICES.should("SLC-005", _E2E)
def slices_are_owned_by_the_node(run: Run) -> None:
    """A slice with a nodeName has that Node as its controlling owner, so that it is deleted with the Node."""
    uid = run.api.client.get(paths.node(run.environment.node_name))["metadata"]["uid"]
    for raw_slice in run.published_slices():
        if raw_slice["spec"].get("nodeName"):
            owners = raw_slice["metadata"].get("ownerReferences") or []
            right = [own for own in owners if (own["kind"], own["uid"]) == ("Node", uid) and own.get("controller")]
            reason = f"{raw_slice['metadata']['name']} is not owned by Node {run.environment.node_name}"
            expect(right, reason, ownerReferences=owners)


@SLICES.should("SLC-006", f"{_KEP}: attributes and capacity; deviceattribute, StandardDeviceAttributePrefix")
def attributes_have_the_right_domain(run: Run) -> None:
    """The driver's own attributes and capacities have no domain, and those of resource.kubernetes.io are standard."""
    driver = run.instance.info.name
    devices = [device for _, device in devices_with_slices(run.published_slices())]
    problems = sorted({problem for device in devices for problem in _name_problems(device, driver)})
    expect(not problems, "; ".join(problems))


@SLICES.must("SLC-007", f"{_MANAGER}: a starting kubelet deletes them", Need.DISRUPTION)
def restores_deleted_slices(run: Run) -> None:
    """ResourceSlices that the kubelet deletes are published again while the driver runs."""
    before = published_devices(run.settled_slices())
    for raw_slice in run.api.slices(run.driver.name):
        run.api.delete(paths.resource_slice(raw_slice["metadata"]["name"]))

    def missing() -> list[tuple[str, str]]:
        return sorted(before ^ published_devices(run.api.slices(run.driver.name)))

    wait_until(lambda: not missing(), run.timeouts.slices, 0.1)
    expect(not missing(), f"not all devices are back after {run.timeouts.slices:g} s", different=missing())


@SLICES.must("SLC-008", f"{_E2E}; KEP-4381, Compromised node: updates cost scheduling")
def does_not_write_unchanged_slices(run: Run) -> None:
    """ResourceSlices are not written while nothing changes."""
    before = slice_versions(run.published_slices())
    reason = "the slices changed although nothing happened"
    run.expect_unchanged_slices(run.driver.name, before, reason, run.timeouts.quiet)


@SLICES.must("SLC-009", "KEP-4381, Compromised kubelet plugin: there is no separation by driver", Need.DISRUPTION)
def leaves_slices_of_other_drivers(run: Run) -> None:
    """Slices of other drivers on the same node stay as they are."""
    run.settled_slices()
    foreign = run.api.client.create(paths.resource_slices(), _foreign_slice(run.environment.node_name))
    try:
        reason = "the slice of another driver was changed"
        run.expect_unchanged_slices(OTHER_DRIVER, slice_versions([foreign]), reason, run.timeouts.quiet)
    finally:
        run.api.delete(paths.resource_slice(foreign["metadata"]["name"]))


def _pool_problems(slices: list[JSON]) -> Iterator[str]:
    """Yield what prevents the scheduler from using a pool."""
    latest = latest_generation(slices)
    announced = latest[0]["spec"]["pool"]["resourceSliceCount"]
    if len(latest) != announced:
        yield f"{len(latest)} slice(s) of the latest generation, resourceSliceCount is {announced}"
    names = Counter(device["name"] for _, device in devices_with_slices(latest))
    yield from (f"device {name} is in the pool {count} times" for name, count in names.items() if count > 1)
    defined = {
        (counter_set["name"], name)
        for one in latest
        for counter_set in one["spec"].get("sharedCounters") or ()
        for name in counter_set["counters"]
    }
    for _, device in devices_with_slices(latest):
        for use in device.get("consumesCounters") or ():
            yield from (
                f"device {device['name']} consumes counter {use['counterSet']}/{name}, which does not exist"
                for name in use["counters"]
                if (use["counterSet"], name) not in defined
            )


def _name_problems(device: JSON, driver: str) -> Iterator[str]:
    for name in [*(device.get("attributes") or ()), *(device.get("capacity") or ())]:
        domain, _, rest = name.rpartition("/")
        if domain == driver:
            yield f"{name} must be {rest}: without a domain it is the driver's own"
        if domain == STANDARD_DOMAIN and rest not in STANDARD_ATTRIBUTES:
            yield f"{name} is not an attribute of {STANDARD_DOMAIN}"


def _foreign_slice(node_name: str) -> JSON:
    pool = {"name": f"conformance-{node_name}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": OTHER_DRIVER, "nodeName": node_name, "pool": pool, "devices": [{"name": "foreign"}]}
    return {**_TYPE, "metadata": {"generateName": "dra-conformance-"}, "spec": spec}
