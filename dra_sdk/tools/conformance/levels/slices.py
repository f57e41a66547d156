"""ResourceSlices: what the driver publishes, and that it keeps it so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dra_sdk.model import JSON
from dra_sdk.tools.conformance import inventory
from dra_sdk.tools.conformance.check import Level, Need, NotApplicable, expect
from dra_sdk.tools.conformance.instance import Waiting
from dra_sdk.tools.conformance.levels.restart import identities
from dra_sdk.tools.conformance.run import Run
from dra_sdk.wire.validation import validate

LEVEL = Level("slices", "ResourceSlices")
API = "k8s.io/api resource/v1"
KEP = "KEP-4381, ResourceSlice"
E2E = "Kubernetes test/e2e/dra, must manage ResourceSlices"
STANDARD = {"pciBusID", "pcieRoot", "numaNode"}
"""The attributes that resource.kubernetes.io has: k8s.io/dynamic-resource-allocation deviceattribute."""
RESERVED = "resource.kubernetes.io"
FOREIGN = "foreign.conformance.example.com"


@LEVEL.must("SLC-001", "KEP-4381, Publishing node resources; KEP-5970, behaviour 2")
def publishes_its_devices(run: Run) -> None:
    """The driver publishes ResourceSlices with at least one device, under the name that it registered with."""
    slices = run.claims.slices()
    expect(slices, f"there is no ResourceSlice with spec.driver={run.driver.info.name}")
    expect(inventory.published(slices), "the ResourceSlices have no device", slices=slices)


@LEVEL.must("SLC-002", f"{API}; Kubernetes pkg/apis/resource/validation")
def publishes_valid_slices(run: Run) -> None:
    """Every ResourceSlice keeps to the limits of the API."""
    for each in _slices(run):
        problems = [str(problem) for problem in validate({**each, **_type()})]
        expect(not problems, f"{each['metadata']['name']}: {'; '.join(problems)}", slice=each)


@LEVEL.must("SLC-003", f"{API} ResourcePool; {KEP}")
def publishes_whole_pools(run: Run) -> None:
    """A pool has as many slices of its latest generation as it says, each device once, and the counters it uses."""
    pools: dict[str, list[JSON]] = {}
    for each in _slices(run):
        pools.setdefault(each["spec"]["pool"]["name"], []).append(each)
    for name, found in pools.items():
        problems = list(pool_problems(found))
        expect(not problems, f"pool {name}: {'; '.join(problems)}", slices=found)


@LEVEL.must("SLC-004", f"{API} ResourceSliceSpec.NodeName; KEP-4381, Security")
def speaks_for_its_own_node(run: Run) -> None:
    """A slice that belongs to a node belongs to the node that the driver runs on."""
    strange = [each for each in _slices(run) if each["spec"].get("nodeName") not in {None, run.site.node}]
    expect(not strange, f"slices of other nodes than {run.site.node}", slices=strange)


@LEVEL.should("SLC-005", E2E)
def is_cleaned_up_with_its_node(run: Run) -> None:
    """A slice of a node has that Node as its controlling owner, so that it goes with it."""
    uid = run.api.node(run.site.node)["metadata"]["uid"]
    for each in _slices(run):
        if each["spec"].get("nodeName"):
            owners = each["metadata"].get("ownerReferences") or []
            right = [own for own in owners if (own["kind"], own["uid"]) == ("Node", uid) and own.get("controller")]
            expect(right, f"{each['metadata']['name']}: not owned by Node {run.site.node}", ownerReferences=owners)


@LEVEL.should("SLC-006", f"{KEP}: attributes and capacity; deviceattribute, StandardDeviceAttributePrefix")
def names_attributes_by_their_domain(run: Run) -> None:
    """A driver's own attributes and capacities have no domain, and names of resource.kubernetes.io are not made up."""
    driver = run.driver.info.name
    problems = sorted({problem for _, device in inventory.devices(_slices(run)) for problem in _names(device, driver)})
    expect(not problems, "; ".join(problems))


@LEVEL.must(
    "SLC-007", "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go: a starting kubelet deletes them", Need.ALONE
)
def publishes_again_what_was_deleted(run: Run) -> None:
    """ResourceSlices that the kubelet deleted are published again while the driver runs."""
    before = _devices(run.settled_slices())
    for each in run.api.slices(run.subject.name):
        run.api.delete_slice(each["metadata"]["name"])
    waiting = Waiting(run.patience.slices)
    while (after := _devices(run.api.slices(run.subject.name))) != before and waiting.pause(0.1):
        pass
    expect(after == before, f"not all is back after {run.patience.slices:g} s", missing=sorted(before - after))


@LEVEL.must("SLC-008", f"{E2E}; KEP-4381, Compromised node: updates cost scheduling")
def is_quiet_when_nothing_happens(run: Run) -> None:
    """ResourceSlices are not written while nothing changes."""
    _slices(run)
    _stay(run, run.subject.name, identities(run.settled_slices()), "the slices changed though nothing happened")


@LEVEL.must("SLC-009", "KEP-4381, Compromised kubelet plugin: there is no separation by driver", Need.ALONE)
def leaves_other_drivers_slices(run: Run) -> None:
    """Slices of other drivers on the same node are left alone."""
    run.settled_slices()
    foreign = run.api.create_slice(_foreign(run.site.node))
    name = foreign["metadata"]["name"]
    try:
        _stay(run, FOREIGN, identities([foreign]), "the slice of another driver was changed")
    finally:
        run.api.delete_slice(name)


def _stay(run: Run, driver: str, before: list[JSON], why: str) -> None:
    """See for a while that a driver's slices are as before."""
    waiting = Waiting(run.patience.quiet)
    while waiting.pause(0.1):
        after = identities(run.api.slices(driver))
        expect(after == before, why, before=before, after=after)


def pool_problems(slices: list[JSON]) -> Iterator[str]:
    """What keeps the scheduler from using a pool."""
    found = inventory.latest(slices)
    wanted = found[0]["spec"]["pool"]["resourceSliceCount"]
    if len(found) != wanted:
        yield f"{len(found)} slice(s) of the latest generation, resourceSliceCount is {wanted}"
    names = Counter(device["name"] for _, device in inventory.devices(found))
    yield from (f"device {name} is there {count} times" for name, count in names.items() if count > 1)
    sets = {
        (each["name"], name)
        for one in found
        for each in one["spec"].get("sharedCounters") or ()
        for name in each["counters"]
    }
    for _, device in inventory.devices(found):
        for use in device.get("consumesCounters") or ():
            yield from (
                f"device {device['name']} consumes {use['counterSet']}/{name}, which is not there"
                for name in use["counters"]
                if (use["counterSet"], name) not in sets
            )


def _names(device: JSON, driver: str) -> Iterator[str]:
    for name in [*(device.get("attributes") or ()), *(device.get("capacity") or ())]:
        domain, _, rest = name.rpartition("/")
        if domain == driver:
            yield f"{name} is to be {rest}: without a domain it is the driver's own"
        if domain == RESERVED and rest not in STANDARD:
            yield f"{name} is no attribute of {RESERVED}"


def _slices(run: Run) -> list[JSON]:
    found = run.settled_slices()
    if not found:
        raise NotApplicable("the driver publishes no ResourceSlice")
    return found


def _devices(slices: list[JSON]) -> set[tuple[str, str]]:
    return inventory.published(slices)


def _type() -> JSON:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}


def _foreign(node: str) -> JSON:
    pool = {"name": f"conformance-{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": FOREIGN, "nodeName": node, "pool": pool, "devices": [{"name": "foreign"}]}
    return {**_type(), "metadata": {"generateName": "dra-conformance-"}, "spec": spec}
