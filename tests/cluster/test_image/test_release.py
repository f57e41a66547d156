"""What a release goes through: an update under load, a drain, an upgrade, its removal."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.driver_image import checkout_of, ensure_image, import_image
from tests.cluster.harness.image import BUSYBOX
from tests.cluster.harness.layout import OWN_CDI_DIRS
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import pod_with, request, template
from tests.cluster.pods import failures, started_at
from tests.cluster.test_image.load import Load
from tests.cluster.test_image.release import CLASSES, NAME, NAMESPACE, Release, driver_name
from tests.cluster.test_image.seen import both, busy, slices, specs, states, user

KINDS = (
    "daemonsets,serviceaccounts,clusterroles,clusterrolebindings,deviceclasses,configmaps,pods,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)
PREVIOUS = "64d2f7e"
"""The first revision whose image this harness can build; a repository without it has its own image instead."""
RATE = 10
"""Prepares per second while a driver is updated."""


@pytest.fixture(scope="module")
def previous(cluster: Cluster) -> str:
    """Puts an earlier image into the cluster as `previous`; of which revision it is."""
    cache, progress = Cache.from_env(), Progress()
    with TemporaryDirectory() as temporary:
        earlier = checkout_of(PREVIOUS, Path(temporary, "checkout"))
        archive = ensure_image(cache, progress) if earlier is None else ensure_image(cache, progress, earlier)
    import_image(cluster, cache, archive, "previous")
    return "this revision" if earlier is None else PREVIOUS


def told(cluster: Cluster, driver: str) -> set[tuple[str, str, str]]:
    """Returns what is published of each device: its name with each attribute and each capacity, and their values."""
    return {
        (device["name"], name, json.dumps(value.get("value", value)))
        for each in slices(cluster, driver)
        for device in each["spec"]["devices"]
        for name, value in {**device.get("attributes", {}), **device.get("capacity", {})}.items()
    }


def test_no_prepare_fails_while_a_driver_is_updated_under_load(cluster: Cluster, release: Release) -> None:
    """The driver for memory gets ten prepares per second as from a kubelet, and pods of the real one beside them."""
    name, before = driver_name("memory"), release.pod("memory")["metadata"]["uid"]
    with Load(cluster, name, CLASSES["memory"], RATE) as load:
        load.wait_calls(3 * RATE)
        release.put("two")
        created: list[str] = []

        def replaced() -> bool:
            created.append(f"real-{len(created)}")
            one = template("some", [request("memory", CLASSES["memory"], capacity={"requests": {"size": "1Mi"}})])
            cluster.apply(one, pod_with(created[-1], one))
            cluster.wait_pod(created[-1])
            pods = cluster.api.get(
                f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io%2Fname%3Ddra-memory"
            )["items"]
            return before not in {each["metadata"]["uid"] for each in pods}

        cluster.wait_until(replaced, "the old pod of the driver is gone")
        load.wait_calls(load.calls + 3 * RATE)
    release.wait_rolled_out()
    print(load.report(), *load.failed, sep="\n")
    assert load.failed == []
    assert len(load.endpoints) == 2, load.endpoints  # both pods were called
    assert load.rate >= RATE * 0.9 / busy(), load.report()
    assert failures(cluster, created) == []
    image = release.pod("memory")["spec"]["containers"][0]["image"]
    assert image.endswith(":two")


def test_a_drain_ends_pods_with_claims_and_leaves_the_driver(cluster: Cluster, release: Release) -> None:
    cluster.apply(both(), user())
    cluster.wait_pod("user")
    driver, published = release.pod("cpu")["metadata"]["uid"], slices(cluster, "dra.cpu")
    flags = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", f"--timeout={TIMEOUT:.0f}s")
    try:
        cluster.kubectl("drain", cluster.node_name, *flags)
        assert cluster.api.get("/api/v1/namespaces/default/pods/user") is None
        assert (specs(cluster), states(cluster)) == ([], {})
        assert release.pod("cpu")["metadata"]["uid"] == driver
        assert slices(cluster, "dra.cpu") == published
    finally:
        cluster.kubectl("uncordon", cluster.node_name)
    cluster.apply(user("later"))
    cluster.wait_pod("later")


def test_an_upgrade_from_the_previous_image_keeps_claims(cluster: Cluster, release: Release, previous: str) -> None:
    release.put("previous")
    release.wait_rolled_out()
    cluster.apply(both(), user())
    cluster.wait_pod("user")
    since, published = started_at(cluster, "user"), told(cluster, "dra.memory")
    held, old = states(cluster), specs(cluster)
    assert len(held) == 2
    release.put("two")
    release.wait_rolled_out()
    print(f"upgraded from {previous}")
    assert (started_at(cluster, "user"), states(cluster), specs(cluster)) == (since, held, old)
    assert published
    assert published <= told(cluster, "dra.memory"), "claims select by these"
    cluster.kubectl("delete", "pod", "user", "--wait=true")
    assert (specs(cluster), states(cluster)) == ([], {})


def test_an_uninstalled_release_leaves_nothing(cluster: Cluster, release: Release) -> None:
    cluster.apply(both(), user())
    cluster.wait_pod("user")
    cluster.kubectl("delete", "pod", "user", "--wait=true")
    release.remove()
    own = f"--selector=app.kubernetes.io/instance={NAME}"
    assert cluster.kubectl("get", KINDS, "--all-namespaces", own, "-o", "name").split() == []
    drivers = [driver_name(key) for key in OWN_CDI_DIRS]
    cluster.wait_until(lambda: slices(cluster, *drivers) == [], "the kubelet has removed the slices")
    assert (specs(cluster), states(cluster)) == ([], {})
    parents = [cluster.kubelet_dir / "plugins", cluster.kubelet_dir / "plugins_registry"]
    assert [list((parents[1] / driver).iterdir()) for driver in drivers] == [[], []]
    # The command of docs/install.md, with the image that this node has.
    left = [f"/host{parent / driver}" for parent in parents for driver in drivers]
    debug = ("debug", f"node/{cluster.node_name}", f"--image={BUSYBOX}", "--profile=sysadmin", "--", "rm", "-r", *left)
    cluster.kubectl(*debug)
    found = [parent / driver for parent in parents for driver in drivers]
    cluster.wait_until(lambda: not [each for each in found if each.exists()], "the directories are gone")
