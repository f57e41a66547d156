"""The chart's rules, compared with the audit log of a real API server: each is used, and each request is granted.

Every driver of the chart runs with its account. One after the other, the test makes occasions for all that a driver
asks of the API server: it starts, a pod uses a device, somebody changes and adds slices, and a slice is refused.

`test_rbac_audit.py` of `tests/tools/manifests` does the same in a second, without a cluster and with one driver.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from dra_driver_amd.testing import RX7900XTX, write_gpus
from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.testing import FakePlugin

from dra_sdk.tools.manifests import Chart
from tests.cluster.deployed import ROOT, chart_values
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.audit import AuditLog, Request
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.image import BUSYBOX
from tests.cluster.manifests import JSON, claim, device_class, pod_with, request
from tests.cluster.test_network import NAMES, interfaces

NAMESPACE: Final = "audited"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
REFUSED: Final = "audited.example.com/refused"
"""The label of slices that nobody may update."""
PROBE: Final = "probe.example.com"
ON_STATUS: Final = ("associated-node:patch", "resource.k8s.io", "resourceclaims/driver")
"""No request: servers since 1.36 ask for it when resourceclaims/status is patched, as test_claim_features.py proves."""
WRITES_STATUS: Final = ("patch", "resource.k8s.io", "resourceclaims/status")
VERSION: Final = "/version"
"""The only path that is no resource: whoever has an account may read it."""
REVIEW: Final = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
CAPACITY: Final = {"dra-cpu": {"dra.cpu/cpu": "1"}, "dra-memory": {"size": "1Mi"}}
"""What a pod asks of a device that several share, by the account of its driver."""
Permission = tuple[str, str, str]
"""Verb, API group, resource."""


@dataclass
class Driven:
    """A driver of the chart.

    key: its key in the values.
    settings: the variables of its environment.
    run: what `dra-sdk run` loads; empty: the key.
    """

    key: str
    settings: dict[str, str] = field(default_factory=dict)
    run: str = ""

    @property
    def driver(self) -> str:
        """Its name in the API."""
        return str(Chart().defaults["drivers"][self.key]["driverName"])

    @property
    def account(self) -> str:
        """Its service account."""
        return f"dra-{self.key}"


@dataclass
class Release:
    """The objects of the release, and what the server wrote down since they were applied.

    objects: all of them.
    log: the audit log.
    """

    objects: list[JSON]
    log: AuditLog

    def accounts(self) -> list[str]:
        """The names of its service accounts."""
        return sorted(each["metadata"]["name"] for each in self.objects if each["kind"] == "ServiceAccount")

    def granted(self, account: str) -> set[Permission]:
        """What an account may do by the roles that are bound to it."""
        bound = {
            each["roleRef"]["name"]
            for each in self.objects
            if each["kind"].endswith("RoleBinding") and any(subject["name"] == account for subject in each["subjects"])
        }
        return {
            (verb, group, resource)
            for each in self.objects
            if each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] in bound
            for rule in each["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    def requests(self, account: str) -> list[Request]:
        """The requests of an account about resources."""
        return [each for each in self._all(account) if not each.resource.startswith("/")]

    def paths(self, account: str) -> set[str]:
        """What an account has asked for that is no resource."""
        return {each.resource for each in self._all(account)} - {each.resource for each in self.requests(account)}

    def used(self, account: str) -> Counter[Permission]:
        """How often an account has made use of each of its permissions."""
        found = Counter((each.verb, each.group, each.resource) for each in self.requests(account))
        if WRITES_STATUS in found:
            found[ON_STATUS] = found[WRITES_STATUS]
        return found

    def wait_in_force(self, cluster: Cluster) -> None:
        """Waits until the API server, which learns of roles a moment after they are stored, grants them."""
        for account in filter(self.granted, self.accounts()):
            user = f"system:serviceaccount:{NAMESPACE}:{account}"
            verb, group, resource = next(each for each in self.granted(account) if each != ON_STATUS)
            name, _, subresource = resource.partition("/")
            asked = {"verb": verb, "group": group, "resource": name, "subresource": subresource}
            review = {**REVIEW, "spec": {"user": user, "resourceAttributes": asked}}
            cluster.wait_until(lambda review=review: is_allowed(cluster, review), f"the role of {account}")  # type: ignore[misc]

    def wait_used(self, cluster: Cluster, account: str, *permissions: Permission) -> None:
        """Waits until an account has made use of these permissions."""

        def done() -> bool:
            self.assert_granted(account)
            return set(permissions) <= self.used(account).keys()

        try:
            cluster.wait_until(done, f"requests of {account}")
        except HarnessError as error:
            raise AssertionError(f"{error}\n{self.table(account)}") from error

    def assert_granted(self, account: str) -> None:
        """Asserts that each request so far was granted, by the role of the account and by no other."""
        allowed = f'RBAC: allowed by ClusterRoleBinding "{account}" of ClusterRole "{account}"'
        for each in self.requests(account):
            assert not each.is_forbidden, f"{account}: {each}"
            assert each.reason.startswith(allowed), f"{account}: {each}"

    def table(self, account: str) -> str:
        """Verbs and resources of an account, with the number of requests; `-` stands for a rule that nothing uses."""
        granted, used = self.granted(account), self.used(account)
        lines = [f"{account}: {', '.join(sorted(self.paths(account))) or 'no other paths'}"]
        for verb, group, resource in sorted(granted | used.keys(), key=lambda each: (each[2], each[0])):
            which = (verb, group, resource)
            beyond = "" if which in granted else "  NOT GRANTED"
            lines.append(f"  {resource:22} {verb:22} {used[which] or '-':>5}{beyond}")
        return "\n".join(lines)

    def _all(self, account: str) -> list[Request]:
        return self.log.requests(f"system:serviceaccount:{NAMESPACE}:{account}")


def is_allowed(cluster: Cluster, review: JSON) -> bool:
    """Whether the API server would allow what a SubjectAccessReview asks."""
    found = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(found["status"]["allowed"])


def refusing() -> list[JSON]:
    """A policy that refuses updates of slices with the label, and all slices of PROBE, by which one sees its effect."""
    slices = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "resources": ["resourceslices"]}
    marked = f'request.operation == "UPDATE" && oldObject.metadata.?labels[?"{REFUSED}"].hasValue()'
    expression = f'!({marked}) && object.spec.driver != "{PROBE}"'
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "audited-refused"}}
    spec = {
        "matchConstraints": {"resourceRules": [{**slices, "operations": ["CREATE", "UPDATE"]}]},
        "validations": [{"expression": expression, "message": "refused by the test"}],
    }
    binding = {"policyName": "audited-refused", "validationActions": ["Deny"]}
    return [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    ]


def slice_of(cluster: Cluster, driver: str, name: str) -> JSON:
    """An empty slice of a driver on the node, in a pool of its own there."""
    pool = {"name": f"{cluster.node_name}/{name}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": cluster.node_name, "pool": pool, "devices": []}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def is_refused(cluster: Cluster) -> bool:
    try:
        cluster.api.create(f"{SLICES}?dryRun=All", slice_of(cluster, PROBE, "probe"))
    except HarnessError:
        return True
    return False


@pytest.fixture
def release(cluster: Cluster) -> Iterator[Release]:
    """All drivers of the chart, without pods; removed after the drivers."""
    repository, _, tag = BUSYBOX.rpartition(":")
    drivers = {key: {"enabled": True, "daemonSet": False} for key in Chart().defaults["drivers"]}
    values = chart_values(cluster, repository, tag, drivers) | {
        "deviceClasses": {"create": False},
        "viewer": {"create": False},  # for people: test_live.py
    }
    rendered = [each.object for each in Chart().render(values, release=NAMESPACE, namespace=NAMESPACE)]
    objects = [*rendered, *refusing()]
    log = AuditLog.of(cluster.logs_dir)
    cluster.apply(*(each for each in objects if each["kind"] == "Namespace"))
    try:
        cluster.apply(*objects)
        found = Release(objects, log)
        found.wait_in_force(cluster)
        yield found
    finally:
        texts = "".join(f"---\n{json.dumps(each)}\n" for each in objects)
        cluster.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", input=texts)


@contextmanager
def driven(folder: Path) -> Iterator[list[Driven]]:
    """All drivers of the chart, each with a node on which it finds a device: this machine, or a tree of files."""
    nvidia, amd = folder / "nvidia", folder / "amd"
    boot_id = nvidia / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("of-this-test\n")
    shutil.copy(ROOT / "drivers/gpu/dra_driver_gpu/fixtures/l4x4/nvml.yaml", nvidia)
    write_gpus(amd, [RX7900XTX])
    (amd / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
    shutil.copy(boot_id, amd / "proc/sys/kernel/random")
    protected = sorted({path.name for path in Path("/sys/class/net").iterdir()} - set(NAMES))
    nic = {"SOFTWARE": "veth", "PROTECT": ",".join(["veth*", *protected]), "STATE_DIR": str(folder / "nic")}
    with TemporaryDirectory(prefix="dra-") as plugins, interfaces():
        found = [
            Driven("cpu", {"DRA_CPU_SHARED_POOL": "optional"}),
            Driven("memory"),
            Driven("nic", {f"DRA_NIC_{name}": value for name, value in nic.items()}),
            Driven("gpu", {"DRA_SDK_HOST_ROOT": str(nvidia)}, "dra_driver_gpu.fixtures:FixtureDriver"),
            Driven("gpu-amd", {"DRA_SDK_HOST_ROOT": str(amd)}),
            Driven("device-plugin", {"DRA_PLUGIN_DIRECTORY": plugins}),
        ]
        with FakePlugin(Path(plugins), {"thing0": "Healthy"}, allocate=annotated) as plugin:
            plugin.follow_kubelet()
            yield found


def annotated(_ids: Sequence[str]) -> wire.AllocateResponse:
    """The answer of a device plugin with an annotation, of which the driver tells in the status of the claim."""
    answer = wire.ContainerAllocateResponse(envs={"THING": "yes"}, annotations={"vendor.com/thing": "yes"})
    return wire.AllocateResponse(container_responses=[answer])


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Driven]]:
    """They end after the drivers."""
    with driven(tmp_path) as found:
        assert {each.key for each in found} == Chart().defaults["drivers"].keys()
        yield found


@pytest.fixture
def running(
    cluster: Cluster, release: Release, nodes: list[Driven], drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> dict[str, DriverUnderTest]:
    """The drivers by their accounts, each with its slices published and a DeviceClass with the name of the account."""
    cluster.apply(*(device_class(each.account, each.driver) for each in nodes))
    flags = ("--nri-socket", str(cluster.nri_socket))
    started = {}
    for each in nodes:
        account = cluster.service_account_kubeconfig(NAMESPACE, each.account)
        with monkeypatch.context() as patched:
            for name, value in each.settings.items():
                patched.setenv(name, value)
            options = {"account": account, "program": "tests.cluster.impatient"}
            started[each.account] = drivers.launch(each.run or each.key, each.driver, *flags, **options)
    for driver in started.values():
        driver.wait(lambda driver=driver: driver.ready() and slices(driver))  # type: ignore[misc]
    return started


def slices(driver: DriverUnderTest) -> list[str]:
    """The names of the slices of a driver that have devices."""
    return [each["metadata"]["name"] for each in driver.slices() if each["spec"].get("devices")]


def spoil(cluster: Cluster, running: dict[str, DriverUnderTest], **labels: str) -> dict[str, int]:
    """Removes the devices of one slice of each driver, and adds labels; returns how many slices had devices."""
    had = {account: slices(driver) for account, driver in running.items()}
    change = {"metadata": {"labels": labels}, "spec": {"devices": None}}
    names = (found[0] for found in had.values())
    cluster.kubectl("patch", "resourceslices", *names, "--type=merge", "-p", json.dumps(change))
    return {account: len(found) for account, found in had.items()}


def use(cluster: Cluster, running: dict[str, DriverUnderTest]) -> None:
    """Creates a pod for each driver; whether its container finds the device on this machine does not matter."""
    for account in running:
        capacity = {"capacity": {"requests": CAPACITY[account]}} if account in CAPACITY else {}
        one = claim(account, [request("one", account, **capacity)])
        cluster.apply(one, pod_with(account, one))


def add_slices(cluster: Cluster, running: dict[str, DriverUnderTest]) -> None:
    """Creates a slice of each driver; waits until the driver has deleted it."""
    for account, driver in running.items():
        cluster.api.create(SLICES, slice_of(cluster, driver.name, f"foreign-{account}"))
    for account, driver in running.items():
        driver.wait(lambda account=account: cluster.api.get(f"{SLICES}/foreign-{account}") is None)  # type: ignore[misc]


def change_slices(cluster: Cluster, running: dict[str, DriverUnderTest]) -> None:
    """Changes a slice of each driver; waits until the driver has put it right."""
    had = spoil(cluster, running)
    for account, driver in running.items():
        driver.wait(lambda account=account, driver=driver: len(slices(driver)) == had[account])  # type: ignore[misc]


def test_each_rule_of_the_chart_is_used_and_each_request_is_granted(
    cluster: Cluster, release: Release, running: dict[str, DriverUnderTest], drivers: Drivers
) -> None:
    assert release.accounts() == sorted(running)
    use(cluster, running)
    add_slices(cluster, running)
    change_slices(cluster, running)
    for account in running:
        release.wait_used(cluster, account, *(each for each in release.granted(account) if each[2] != "events"))

    # The server refuses to have a slice put right. The driver tells it by an event, and counts the next time in it.
    cluster.wait_until(lambda: is_refused(cluster), "the server refuses slices")
    spoil(cluster, running, **{REFUSED: "yes"})
    for account in running:
        release.wait_used(cluster, account, *release.granted(account))

    drivers.clean()
    for account in release.accounts():
        print(release.table(account))
    for account in release.accounts():
        release.assert_granted(account)
        assert release.paths(account) <= {VERSION}
        assert release.used(account).keys() == release.granted(account), release.table(account)
