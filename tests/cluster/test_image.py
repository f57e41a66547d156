"""Drivers as pods of the chart, of the image that deploy/Containerfile builds: installed, attacked, updated, drained,
through a reboot of their node, and removed. Nothing in their pods is of this machine's Python or of the checkout.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster import power
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.driver_image import checkout_of, ensure_image, import_image
from tests.cluster.harness.image import BUSYBOX
from tests.cluster.harness.layout import OWN_CDI_DIRS
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.load import Load
from tests.cluster.manifests import JSON, claim, pod_with, request, template
from tests.cluster.pods import allocated, cpus_of, failures, logs, nudge, read_pod, started_at
from tests.cluster.release import CLASSES, NAME, NAMESPACE, Release, cdi_dir, driver_name

KINDS = (
    "daemonsets,serviceaccounts,clusterroles,clusterrolebindings,deviceclasses,configmaps,pods,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)
LIMIT = 60.0
"""Seconds from the installation to the first pod with a claim, where as many CPUs are free as the machine has."""
PREVIOUS = "64d2f7e"
"""The first revision whose image this harness can build; a repository without it has its own image instead."""
RATE = 10
"""Prepares per second while a driver is updated."""


@pytest.fixture(scope="module")
def images(cluster: Cluster) -> None:
    """Puts the image into the cluster, under two tags."""
    cache = Cache.from_env()
    import_image(cluster, cache, ensure_image(cache, Progress()), "one", "two")


@pytest.fixture(scope="module")
def previous(cluster: Cluster) -> str:
    """Puts an earlier image into the cluster as `previous`; of which revision it is."""
    cache, progress = Cache.from_env(), Progress()
    with TemporaryDirectory() as temporary:
        earlier = checkout_of(PREVIOUS, Path(temporary, "checkout"))
        archive = ensure_image(cache, progress) if earlier is None else ensure_image(cache, progress, earlier)
    import_image(cluster, cache, archive, "previous")
    return "this revision" if earlier is None else PREVIOUS


@pytest.fixture(scope="module")
def installed(cluster: Cluster, images: None) -> Iterator[Release]:
    made = Release(cluster)
    yield made
    made.remove()


@pytest.fixture
def users(cluster: Cluster) -> Iterator[None]:
    """Pods and claims of a test end with it."""
    yield
    cluster.kubectl("delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--wait=true")


@pytest.fixture
def release(installed: Release, users: None) -> Release:
    """The release, which is installed before a test and stays for the next."""
    installed.put("one")
    installed.wait_rolled_out()
    return installed


def both() -> JSON:
    """Returns the template of claims for one CPU and some memory."""
    cpu = request("cpu", CLASSES["cpu"], capacity={"requests": {"dra.cpu/cpu": "1"}})
    return template("both", [cpu, request("memory", CLASSES["memory"], capacity={"requests": {"size": "64Mi"}})])


def user(name: str = "user", policy: str = "Never") -> JSON:
    found = pod_with(name, both())
    found["spec"]["restartPolicy"] = policy
    return found


def specs(cluster: Cluster) -> list[Path]:
    """Returns the CDI specs of both drivers."""
    return sorted(path for key in OWN_CDI_DIRS for path in cdi_dir(cluster, key).glob("*.json"))


def states(cluster: Cluster) -> dict[str, bytes]:
    """Returns the state files of claims that the drivers hold, by path."""
    found = (cluster.kubelet_dir / "plugins").glob("dra.*/claims*/*.json")
    return {str(path): path.read_bytes() for path in sorted(found)}


def slices(cluster: Cluster, *drivers: str) -> list[JSON]:
    found = cluster.api.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
    return [each for each in found if each["spec"]["driver"] in drivers]


def variables(cluster: Cluster, name: str) -> dict[str, str]:
    words = logs(cluster, name).partition("\n")[0].split("\0")
    return dict(each.split("=", 1) for each in words if "=" in each)


def busy() -> float:
    """Returns how much more this machine has to do than CPUs, at least 1: limits of time are longer by that."""
    return max(1.0, max(os.getloadavg()[:2]) / (os.cpu_count() or 1))


@pytest.mark.usefixtures("users")
def test_from_the_installation_to_the_first_claim(cluster: Cluster, installed: Release) -> None:
    """Both drivers are installed side by side, and a pod with a claim of both is created at once."""
    installed.remove()
    begun = time.monotonic()
    installed.put("one")
    cluster.apply(both(), user())
    cluster.wait_pod("user", timeout=TIMEOUT * 2)
    took = time.monotonic() - begun
    print(f"installation to first claim: {took:.1f} s (there is {busy():.1f} times as much to do as CPUs)")
    assert took <= LIMIT * busy()
    found = variables(cluster, "user")
    assert [each for each in found if each.startswith("DRA_CPUSET_")]
    assert [each for each in found if each.startswith("DRA_MEMS_")]
    assert len(cpus_of(cluster, "user")) == 1
    for key in OWN_CDI_DIRS:
        where = installed.run_inside(
            key, "import dra_sdk, json, sys; print(json.dumps([dra_sdk.__file__, *sys.path[1:]]))"
        )
        assert {Path(each).parts[1] for each in where} <= {"opt", "usr"}, where
        mounted = {each["hostPath"]["path"] for each in installed.pod(key)["spec"]["volumes"] if "hostPath" in each}
        assert not [each for each in mounted if Path(__file__).is_relative_to(each)], mounted
    cluster.kubectl("delete", "pod", "user", "--wait=true")
    assert (specs(cluster), states(cluster)) == ([], {})


ATTACK = """
import json, pathlib, ssl, sys, urllib.error, urllib.request
node, kubelet, others_cdi = sys.argv[1:]
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
import os
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
slices = "/apis/resource.k8s.io/v1/resourceslices"
def ask(method, path, content=None, kind="application/json"):
    headers = {"Authorization": "Bearer " + (account / "token").read_text(), "Content-Type": kind}
    body = None if content is None else json.dumps(content).encode()
    asked = urllib.request.Request(server + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(asked, context=trust) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
def slice(name, driver, node):
    pool = {"name": "forged", "generation": 1, "resourceSliceCount": 1}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "forged"}]}}
status, listed = ask("GET", slices)
(theirs,) = [each for each in listed["items"] if each["spec"]["driver"] == "dra.memory"][:1]
named = slices + "/" + theirs["metadata"]["name"]
theirs["spec"]["pool"]["generation"] += 1
said = {
    "own": ask("POST", slices, slice("own", "dra.cpu", node)),
    "own, deleted": ask("DELETE", slices + "/own"),
    "of another driver": ask("POST", slices, slice("forged", "dra.memory", node)),
    "of another driver, changed": ask("PUT", named, theirs),
    "of another driver, deleted": ask("DELETE", named),
    "of another node": ask("POST", slices, slice("forged", "dra.cpu", "elsewhere")),
    "of no node": ask("POST", slices, {**slice("forged", "dra.cpu", node), "spec": {
        "driver": "dra.cpu", "allNodes": True, "pool": {"name": "f", "generation": 1, "resourceSliceCount": 1}}}),
    "status": ask("PATCH", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/held/status",
                  {"status": {"devices": []}}, "application/merge-patch+json"),
    "secrets": ask("GET", "/api/v1/secrets"),
}
found = {name: [code, answer.get("message", "")] for name, (code, answer) in said.items()}
def attempt(path):
    try:
        pathlib.Path(path, "forged.json").write_text("{}")
    except OSError as error:
        return error.strerror
    return "written"
found["files"] = {path: attempt(path) for path in (
    others_cdi, f"{kubelet}/plugins/dra.memory", f"{kubelet}/plugins_registry/dra.memory",
    f"{kubelet}/plugins_registry", f"{kubelet}/plugins", "/var/run/cdi", "/etc", "/opt/dra-sdk")}
print(json.dumps(found))
"""
FORGE = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).write_text(sys.argv[2]))"


def test_one_drivers_pod_can_forge_neither_slices_nor_specs_of_another(cluster: Cluster, release: Release) -> None:
    """Code in the pod of the CPU driver, with its account and its mounts, acts as the driver for memory."""
    held = claim("held", [request("memory", CLASSES["memory"], capacity={"requests": {"size": "64Mi"}})])
    cluster.apply(held, pod_with("first", held))
    cluster.wait_pod("first")
    others = cdi_dir(cluster, "memory")
    found = release.run_inside("cpu", ATTACK, cluster.node_name, str(cluster.kubelet_dir), str(others))
    files = found.pop("files")
    assert "written" not in files.values(), files
    codes = {name: code for name, (code, _) in found.items()}
    assert (codes.pop("own"), codes.pop("own, deleted")) == (201, 200)
    assert set(codes.values()) <= {403, 422}, found
    for name in ("of another driver", "of another driver, changed", "of another driver, deleted"):
        assert "driver dra.cpu may not touch ResourceSlices of driver 'dra.memory'" in found[name][1]
    for name, node in (("of another node", "elsewhere"), ("of no node", "")):
        assert (
            f"the driver on node '{cluster.node_name}' may not touch ResourceSlices of node '{node}'" in found[name][1]
        )

    # In its own directory it can write what it likes. What the other driver says of its devices goes before that.
    (real,) = others.glob("*.json")
    forged = json.loads(real.read_text())
    for each in forged["devices"]:
        each["containerEdits"] = {"env": ["FORGED=yes"]}
    own = cdi_dir(cluster, "cpu") / "forged.json"
    release.run_inside("cpu", FORGE, str(own), json.dumps(forged))
    assert own.exists()
    cluster.apply(pod_with("second", held))
    cluster.wait_pod("second")
    assert "FORGED" not in variables(cluster, "second")
    assert [each for each in variables(cluster, "second") if each.startswith("DRA_MEMS_")]
    own.unlink()


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
    print(load.report())
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


def test_claims_are_prepared_again_after_a_reboot_of_the_node(cluster: Cluster, release: Release) -> None:
    """All processes of the node end, what is in memory is lost, and the boot has another id, as after a power cut."""
    with power.Node(cluster) as node:
        for key in OWN_CDI_DIRS:
            node.show_boot_id(NAMESPACE, f"dra-{key}")
        release.wait_rolled_out()
        cluster.apply(both(), user(policy="Always"))
        cluster.wait_pod("user")
        given, held = allocated(cluster, _claim(cluster)), states(cluster)
        old = set(specs(cluster))
        assert len(held) == len(old) == 2
        node.reboot()
        assert not [path for path in old if path.exists()]
        cluster.wait_until(lambda: _restarted(cluster), "the pod runs again")
        assert allocated(cluster, _claim(cluster)) == given
        assert set(specs(cluster)) == old
        assert len(states(cluster)) == 2
        assert not set(states(cluster).values()) & set(held.values())  # prepared again, in this boot
        assert [each for each in variables(cluster, "user") if each.startswith("DRA_CPUSET_")]
        cluster.kubectl("delete", "pod", "user", "--wait=true")
        assert (specs(cluster), states(cluster)) == ([], {})
        release.remove()  # its pods see the root that ends here


def _claim(cluster: Cluster) -> str:
    return str(read_pod(cluster, "user")["status"]["resourceClaimStatuses"][0]["resourceClaimName"])


def _restarted(cluster: Cluster) -> bool:
    nudge(cluster, "user")  # the driver may not be there yet when the kubelet asks for the first time
    (status,) = read_pod(cluster, "user")["status"]["containerStatuses"]
    return bool(status["restartCount"] and status["ready"])


def test_an_upgrade_from_the_previous_image_keeps_claims(cluster: Cluster, release: Release, previous: str) -> None:
    release.put("previous")
    release.wait_rolled_out()
    cluster.apply(both(), user())
    cluster.wait_pod("user")
    since, published = started_at(cluster, "user"), [each["spec"]["devices"] for each in slices(cluster, "dra.memory")]
    held, old = states(cluster), specs(cluster)
    assert len(held) == 2
    release.put("two")
    release.wait_rolled_out()
    print(f"upgraded from {previous}")
    assert (started_at(cluster, "user"), states(cluster), specs(cluster)) == (since, held, old)
    assert [each["spec"]["devices"] for each in slices(cluster, "dra.memory")] == published
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
