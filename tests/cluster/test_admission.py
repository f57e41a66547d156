"""The chart's policies on a real API server: what code with the account of a driver may write, and what not.

They need no node: an account acts on a node by a token that is bound to it.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from dra_sdk.errors import ApiError
from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON
from dra_sdk.node.slices.foreign import ForeignSlice, ForeignSlices
from dra_sdk.tools.configuration.policy import config_policy
from dra_sdk.tools.manifests import Chart
from tests.cluster.features import MINOR, VERSION
from tests.cluster.harness import pki
from tests.cluster.harness.control_plane import ControlPlane, ControlPlaneSettings, control_plane
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import poll
from tests.tools.configuration.shapes import NAME as SHAPES
from tests.tools.configuration.shapes import RIGHT, ShapeDriver, entry, shape
from tests.tools.configuration.shapes import VERSION as VERSION_OF_SHAPES

SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NAMESPACE: Final = "of-policies"
KEY, DRIVER, OTHER = "nic", "dra.net", "other.example.com"
ANOTHER: Final = "cpu"
OURS, THEIRS = "node-a", "node-b"
FIRST_WITH_GRANULAR_STATUS: Final = 36
PATHS: Final = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
}


class Plane:
    """A control plane with the release of one driver and without nodes.

    admin: the administrator.
    """

    def __init__(self, plane: ControlPlane, folder: Path, stack: ExitStack) -> None:
        self._plane, self._folder, self._stack = plane, folder, stack
        self.admin = self._connect(plane.kubeconfig("admin"))

    def install(self) -> None:
        """Installs what the chart makes for the driver without a pod; waits until the policies are in force."""
        for name in (OURS, THEIRS):
            self.admin.create(PATHS["Node"], {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        values = {
            "drivers": {key: {"enabled": True, "daemonSet": False} for key in (KEY, ANOTHER)},
            "namespace": {"create": True},
            **{switch: {"create": False} for switch in ("viewer", "deviceClasses")},
        }
        for manifest in Chart().render(values, namespace=NAMESPACE):
            self.admin.create(PATHS[manifest.object["kind"]], manifest.object)
        account = self.account(OURS)
        assert poll(
            lambda: "may not touch" in refusal(lambda: account.create(f"{SLICES}?dryRun=All", slice_of("elsewhere")))
        )

    def token(self, node: str, key: str = KEY) -> str:
        """Returns a token of the account of a driver that is bound to a node."""
        path = f"{PATHS['ServiceAccount']}/dra-{key}/token"
        bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node}}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound}
        return str(self.admin.create(path, asked)["status"]["token"])

    def account(self, node: str, key: str = KEY) -> KubeClient:
        """Returns a client with the account of a driver, as the driver's pod on a node has it."""
        user = {"token": self.token(node, key)}
        file = self._folder / f"{key}-{node}.kubeconfig"
        file.write_text(pki.kubeconfig(self._plane.server, self._plane.authority.certificate("ca"), user))
        return self._connect(file)

    def slices(self) -> list[str]:
        """Returns the names of all slices."""
        return [item["metadata"]["name"] for item in self.admin.get(SLICES)["items"]]

    def impersonated(self, collection: str, content: JSON, token: str = "") -> str:
        """Returns what the server says to the creation of an object by who acts as the account: the administrator,
        who may, or the owner of a token."""
        head = {"Content-Type": "application/json", "Impersonate-User": f"system:serviceaccount:{NAMESPACE}:dra-{KEY}"}
        if token:
            head |= {
                "Authorization": f"Bearer {token}",
                "Impersonate-Extra-authentication.kubernetes.io%2fnode-name": THEIRS,
            }
        asked = urllib.request.Request(f"{self._plane.server}{collection}", json.dumps(content).encode(), head)
        trusted = (
            ssl.create_default_context(cafile=str(self._plane.authority.certificate("ca")))
            if token
            else self._plane.api.trust
        )
        trust = urllib.request.HTTPSHandler(context=trusted)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({}), trust).open(asked) as answer:
                return str(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return str(json.loads(error.read())["message"])

    def _connect(self, kubeconfig: Path) -> KubeClient:
        client = KubeClient.connect(kubeconfig)
        self._stack.callback(client.close)
        return client


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """With the permissions for the status of claims as they are before 1.36: all of it or nothing."""
    folder = tmp_path_factory.mktemp("plane")
    gate = {"DRAResourceClaimGranularStatusAuthorization": False}
    gates = {"AllBeta": True, **(gate if MINOR >= FIRST_WITH_GRANULAR_STATUS else {})}
    settings = ControlPlaneSettings(VERSION, gates)
    with control_plane("policies", folder, settings, Progress()) as running, ExitStack() as stack:
        made = Plane(running, folder, stack)
        made.install()
        yield made


def refusal(act: Callable[[], object]) -> str:
    """Returns why the server refuses what `act` sends; empty if it does not."""
    try:
        act()
    except ApiError as error:
        return str(error)
    return ""


def slice_of(node: str, pool: str = "", driver: str = DRIVER, name: str = "forged") -> JSON:
    """Returns a slice of a node in a pool, by default that of the node."""
    identity = {"name": pool or node, "generation": 999, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": identity, "devices": [{"name": "forged"}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


# -- slices


@pytest.mark.parametrize("pool", [OURS, f"{OURS}/cards", f"{OURS}/cards/1"])
def test_a_driver_keeps_the_pools_of_its_node(plane: Plane, pool: str) -> None:
    account = plane.account(OURS)
    made = account.create(SLICES, slice_of(OURS, pool, name="own"))
    made["spec"]["pool"]["generation"] += 1
    assert account.update(f"{SLICES}/own", made)["spec"]["pool"] == made["spec"]["pool"]
    account.delete(f"{SLICES}/own")
    assert "own" not in plane.slices()


@pytest.mark.parametrize(
    ("slice_", "reason"),
    [
        (slice_of(OURS, THEIRS), f"the driver on node '{OURS}' may not touch ResourceSlices of pool '{THEIRS}'"),
        (slice_of(OURS, f"{THEIRS}/cards"), f"of pool '{THEIRS}/cards': its pools are called like the node, or begin"),
        (slice_of(OURS, f"{OURS}-2"), f"of pool '{OURS}-2'"),
        (slice_of(OURS, "cards"), "of pool 'cards'"),
        (slice_of(THEIRS), f"may not touch ResourceSlices of node '{THEIRS}'"),
        (slice_of(THEIRS, OURS), f"may not touch ResourceSlices of node '{THEIRS}'"),
        (slice_of(OURS, driver=OTHER), f"driver {DRIVER} may not touch ResourceSlices of driver '{OTHER}'"),
    ],
    ids=["pool", "pool-below", "longer-name", "own-word", "node", "node-and-own-pool", "driver"],
)
def test_a_forged_slice_is_neither_created_nor_changed_nor_deleted(plane: Plane, slice_: JSON, reason: str) -> None:
    account = plane.account(OURS)
    assert reason in refusal(lambda: account.create(SLICES, slice_))
    stored = plane.admin.create(SLICES, slice_)  # as from before the policy
    try:
        stored["spec"]["pool"]["generation"] += 1
        assert reason in refusal(lambda: account.update(f"{SLICES}/forged", stored))
        assert reason in refusal(lambda: account.delete(f"{SLICES}/forged"))
    finally:
        plane.admin.delete(f"{SLICES}/forged")


def test_a_driver_deletes_what_it_wrote_into_a_pool_of_another_name(plane: Plane) -> None:
    """It has the Node as its owner, and no driver could write it: as from before the policy, or a pool was renamed."""
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": OURS,
        "uid": plane.admin.get(f"{PATHS['Node']}/{OURS}")["metadata"]["uid"],
    }
    former = slice_of(OURS, "cards", name="former")
    former["metadata"]["ownerReferences"] = [owner]
    account, other = plane.account(OURS), plane.account(THEIRS)
    assert "of pool 'cards'" in refusal(lambda: account.create(SLICES, former))
    stored = plane.admin.create(SLICES, former)
    stored["spec"]["pool"]["generation"] += 1
    assert "of pool 'cards'" in refusal(lambda: account.update(f"{SLICES}/former", stored))
    assert f"of node '{OURS}'" in refusal(lambda: other.delete(f"{SLICES}/former"))
    assert f"of driver '{DRIVER}'" in refusal(lambda: plane.account(OURS, ANOTHER).delete(f"{SLICES}/former"))
    account.delete(f"{SLICES}/former")
    assert "former" not in plane.slices()


SPREAD: Final[list[JSON]] = [
    {"allNodes": True},
    {
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [THEIRS]}]}]
        }
    },
    {"perDeviceNodeSelection": True, "devices": [{"name": "forged", "nodeName": THEIRS}]},
]


@pytest.mark.parametrize("spread", SPREAD, ids=lambda fields: next(iter(fields)))
def test_a_slice_for_several_nodes_is_refused(plane: Plane, spread: JSON) -> None:
    forged = slice_of(OURS)
    del forged["spec"]["nodeName"]
    forged["spec"] |= spread
    assert "may not touch ResourceSlices of node ''" in refusal(lambda: plane.account(OURS).create(SLICES, forged))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_forged_slice_is_refused_in_every_version_of_the_api(plane: Plane, version: str) -> None:
    forged = {**slice_of(OURS, THEIRS), "apiVersion": f"resource.k8s.io/{version}"}
    path = SLICES.replace("/v1/", f"/{version}/")
    if version == "v1beta1":
        forged["spec"]["devices"] = [{"name": "forged", "basic": {}}]
    assert f"of pool '{THEIRS}'" in refusal(lambda: plane.account(OURS).create(path, forged))


@pytest.fixture
def theirs(plane: Plane) -> Iterator[str]:
    """The path of an honest slice of the other node."""
    plane.admin.create(SLICES, slice_of(THEIRS, name="honest"))
    yield f"{SLICES}/honest"
    plane.admin.delete(f"{SLICES}/honest")


FORGED: Final = slice_of(OURS, THEIRS)
WAYS: Final[dict[str, tuple[Callable[[KubeClient], object], str]]] = {
    "dry-run": (lambda a: a.create(f"{SLICES}?dryRun=All", FORGED), f"of pool '{THEIRS}'"),
    "generate-name": (
        lambda a: a.create(SLICES, {**FORGED, "metadata": {"generateName": f"00000-{DRIVER}-{THEIRS}-"}}),
        f"of pool '{THEIRS}'",
    ),
    "update-that-creates": (lambda a: a.update(f"{SLICES}/forged", FORGED), "not found"),
    "update-of-theirs": (
        lambda a: a.update(f"{SLICES}/honest", slice_of(THEIRS, name="honest")),
        f"of node '{THEIRS}'",
    ),
    "update-to-ours": (lambda a: a.update(f"{SLICES}/honest", slice_of(OURS, name="honest")), "immutable"),
    "patch": (lambda a: a.patch(f"{SLICES}/honest", {"spec": {"devices": None}}), "cannot patch resource"),
    "apply": (lambda a: a.apply(f"{SLICES}/forged", FORGED, field_manager="x"), "cannot patch resource"),
    "status": (lambda a: a.update(f"{SLICES}/honest/status", FORGED), "cannot update resource"),
    "delete": (lambda a: a.delete(f"{SLICES}/honest"), f"of node '{THEIRS}'"),
    "delete-dry-run": (lambda a: a.delete(f"{SLICES}/honest?dryRun=All"), f"of node '{THEIRS}'"),
    "delete-collection": (lambda a: a.delete(SLICES), "cannot deletecollection"),
    "token-of-another-node": (
        lambda a: a.create(
            f"{PATHS['ServiceAccount']}/dra-{KEY}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        ),
        "cannot create resource",
    ),
    "policy": (lambda a: a.delete(f"{PATHS['ValidatingAdmissionPolicy']}/dra-{KEY}"), "cannot delete resource"),
}


@pytest.mark.parametrize("way", WAYS)
def test_there_is_no_way_around_the_policy(plane: Plane, theirs: str, way: str) -> None:
    act, reason = WAYS[way]
    before = plane.admin.get(theirs)
    account = plane.account(OURS)
    assert reason in refusal(lambda: act(account))
    assert plane.admin.get(theirs) == before
    assert plane.slices() == ["honest"]


def test_the_account_of_another_driver_touches_no_slice(plane: Plane) -> None:
    account = plane.account(OURS, ANOTHER)
    assert f"driver dra.cpu may not touch ResourceSlices of driver '{DRIVER}'" in refusal(
        lambda: account.create(SLICES, slice_of(OURS))
    )


def test_an_account_acts_as_no_other(plane: Plane) -> None:
    """Neither as the driver on the other node nor as an administrator."""
    said = plane.impersonated(SLICES, slice_of(THEIRS), token=plane.token(OURS))
    assert "cannot impersonate resource" in said


def test_who_acts_as_the_account_without_a_node_gets_the_sentence(plane: Plane) -> None:
    assert "the driver's token names no node; it must come from a pod" in plane.impersonated(SLICES, slice_of(OURS))


def test_the_driver_of_the_node_reports_a_forged_slice_in_its_pool(plane: Plane) -> None:
    plane.admin.create(SLICES, slice_of(THEIRS, OURS))
    try:
        reported: list[ForeignSlice] = []
        account = plane.account(OURS)
        looking = ForeignSlices(DRIVER, OURS, lambda: account, lambda: {OURS}, reported.append)
        assert looking.look() == 1
        assert reported == [ForeignSlice("forged", THEIRS, OURS)]
    finally:
        plane.admin.delete(f"{SLICES}/forged")


# -- configuration


def test_every_wrong_field_of_a_configuration_is_named_at_once(plane: Plane) -> None:
    """The server answers with one validation that fails, so each tells of all."""
    objects = config_policy(ShapeDriver().dra_driver_info())
    wrong = shape(small=0, on="perhaps", smal=1, colr="x", part={"width": 0, "hight": 3})

    def said(*configs: JSON) -> str:
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}], "config": list(configs)}}
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "wrong"}}
        return refusal(lambda: plane.admin.create(f"{CLAIMS}?dryRun=All", {**head, "spec": spec}))

    for item in objects:
        plane.admin.create(PATHS[item["kind"]], item)
    try:
        assert poll(lambda: said(entry(wrong)))
        assert said(entry(RIGHT[1])) == ""
        message = said(entry(wrong), entry({"apiVersion": VERSION_OF_SHAPES, "kind": "Strict"}))
        for part in (
            f"configuration of driver {SHAPES}: Shape: unknown field; known: small,",
            "Shape: small must be an integer",
            "Shape: on must be true or false",
            "Shape: part.width must be an integer",
            "Shape: part has an unknown field",
            "Strict: size is required",
            "smal",
            "colr",
            "hight",
        ):
            assert part in message
        assert "ratio must" not in message
    finally:
        for item in objects:
            plane.admin.delete(f"{PATHS[item['kind']]}/{item['metadata']['name']}")


# -- the status of claims


def results(*devices: tuple[str, str, str]) -> list[JSON]:
    return [{"driver": driver, "pool": pool, "device": device} for driver, pool, device in devices]


MINE, OTHERS, ELSEWHERE = (DRIVER, OURS, "eth0"), (OTHER, OURS, "lamp"), (DRIVER, THEIRS, "eth1")


@pytest.fixture
def claim(plane: Plane) -> Iterator[str]:
    """The path of an allocated claim with the status of two devices, which is not of our driver and node."""
    request = {"name": "r", "exactly": {"deviceClassName": "any", "count": 3}}
    made: JSON = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "held"}}
    plane.admin.create(CLAIMS, {**made, "spec": {"devices": {"requests": [request]}}})
    path = f"{CLAIMS}/held"
    allocated = [{"request": "r", **result} for result in results(MINE, OTHERS, ELSEWHERE)]
    status = {
        "allocation": {"devices": {"results": allocated}},
        "reservedFor": [{"resource": "pods", "name": "user", "uid": "of-user"}],
        "devices": results(OTHERS, ELSEWHERE),
    }
    plane.admin.patch(f"{path}/status", {"status": status})
    yield path
    plane.admin.patch(f"{path}/status", {"status": {"reservedFor": None, "devices": None}})
    plane.admin.delete(path)


def test_a_driver_writes_the_status_of_its_own_devices(plane: Plane, claim: str) -> None:
    account, before = plane.account(OURS), plane.admin.get(claim)
    mine = [{**results(MINE)[0], "conditions": None, "networkData": {"interfaceName": "eth0"}}]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "held"}}
    account.apply(
        f"{claim}/status", {**head, "status": {"devices": [{**mine[0], "conditions": []}]}}, field_manager=DRIVER
    )
    after = plane.admin.get(claim)["status"]
    assert sorted(after["devices"], key=str) == sorted([*before["status"]["devices"], *mine], key=str)
    account.apply(f"{claim}/status", {**head, "status": {"devices": []}}, field_manager=DRIVER)
    assert plane.admin.get(claim)["status"] == before["status"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"allocation": None, "devices": None, "reservedFor": None}, "may not change the allocation of a claim"),
        ({"reservedFor": None}, "may not change for whom a claim is reserved"),
        (
            {"reservedFor": [{"resource": "pods", "name": "x", "uid": "y"}]},
            "may not change for whom a claim is reserved",
        ),
        ({"devices": None}, "may not change the status of devices of other drivers and nodes"),
        ({"devices": results(OTHERS)}, "may not change the status of devices of other drivers and nodes"),
        ({"devices": [{**results(OTHERS)[0], "data": {"a": 1}}, *results(ELSEWHERE)]}, "of other drivers and nodes"),
    ],
    ids=["allocation", "released", "reserved", "all-devices", "another-node", "another-driver"],
)
def test_a_driver_changes_nothing_else_of_a_claim(plane: Plane, claim: str, change: JSON, reason: str) -> None:
    account = plane.account(OURS)
    assert reason in refusal(lambda: account.patch(f"{claim}/status", {"status": change}))
