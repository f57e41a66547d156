"""The chart, rendered without Helm: what is made by each switch, and that Helm would make the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk.errors import SettingsError
from dra_sdk.loader import load_driver
from dra_sdk.node.runtime import omissions
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.node.runtime.settings import SETTINGS
from dra_sdk.tools.manifests import CHART, Chart, Values, merge_values, values_schema
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.embedded import settings_for
from tests.tools.manifests.helm import find_helm, helm_objects
from tests.tools.manifests.schema import settings
from tests.tools.manifests.switches import ALL, LAMPS, SWITCHES

JSON = dict[str, Any]
ROOT = Path(__file__).parents[3]
DRIVERS = ("cpu", "memory", "gpu", "gpu-amd", "device-plugin")
PLUGINS = "/var/lib/dra-device-plugins"
NRI = {"/var/run/nri", "/sys/fs/cgroup"}
SHARED = {
    "cpu": {*NRI, "/var/lib/kubelet/cpu_manager_state"},
    "memory": NRI,
    "gpu": {"/"},
    "device-plugin": {"/dev", "/sys", "/proc/sys/kernel/random/boot_id", PLUGINS},
}
"""What a driver's pod sees of the host, apart from its own directories and those of CDI."""
METRIC = re.compile(r"dra_sdk_[a-z_]+")


def rendered(*values: JSON) -> dict[tuple[str, str], JSON]:
    objects = [manifest.object for manifest in Chart().render(*values)]
    by_name = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    assert len(by_name) == len(objects), "two objects of one kind have the same name"
    return by_name


def on(key: str, **fields: Any) -> JSON:
    return {"drivers": {key: {"enabled": True, **fields}}}


def pod(key: str, **fields: Any) -> JSON:
    return dict(rendered(on(key, **fields))["DaemonSet", f"dra-{key}"]["spec"]["template"]["spec"])


def container(key: str, **fields: Any) -> JSON:
    (only,) = pod(key, **fields)["containers"]
    return dict(only)


@pytest.mark.parametrize("name", SWITCHES)
def test_helm_makes_the_same_objects(name: str, tmp_path: Path) -> None:
    helm = find_helm()
    if helm is None:
        pytest.skip("there is no helm: `make helm` builds it")
    values = SWITCHES[name]
    assert rendered(values) == helm_objects(helm, values, tmp_path, "--no-hooks")


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    helm = find_helm()
    if helm is None:
        pytest.skip("there is no helm: `make helm` builds it")
    done = subprocess.run([helm, "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_every_value_has_a_switch_that_changes_it() -> None:
    """So the comparison with Helm misses no `if` of a template."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    changed = {path for values in SWITCHES.values() for path in fields(values)}
    assert {path for path in fields(defaults) if path[0] not in {"drivers", "defaults"}} <= changed
    entries = [entry for values in SWITCHES.values() for entry in values.get("drivers", {}).values()]
    assert {field for entry in entries for field in entry} >= set(defaults["defaults"])


def fields(values: JSON) -> set[tuple[str, ...]]:
    """The values at the top, and those in maps at the top."""
    paths: set[tuple[str, ...]] = set()
    for key, value in values.items():
        paths |= {(key, inner) for inner in value} if isinstance(value, dict) else {(key,)}
    return paths


def test_the_schema_is_that_of_the_classes_and_the_drivers() -> None:
    """`python -m tests.tools.manifests.schema` writes it."""
    assert json.loads((CHART / "files/settings.json").read_text()) == settings()
    assert json.loads((CHART / "values.schema.json").read_text()) == values_schema()


MISSPELT = [
    (
        {"env": {"DRA_CPU_RESERVD_CPUS": "0"}},
        "env.DRA_CPU_RESERVD_CPUS is no setting of the driver; did you mean DRA_CPU_",
    ),
    (
        {"env": {"DRA_SDK_LOGLEVEL": "info"}},
        "env.DRA_SDK_LOGLEVEL is no setting of the driver; did you mean DRA_SDK_LOG_",
    ),
    ({"env": {"DRA_CPU_NODE_ALLOCATABLE": "maybe"}}, "DRA_CPU_NODE_ALLOCATABLE must be true or false (got 'maybe')"),
    ({"resources": {"limit": {"memory": "1Gi"}}}, "resources.limit is none that the chart has"),
]


@pytest.mark.parametrize(("fields", "problem"), MISSPELT)
def test_a_misspelt_setting_of_a_driver_is_refused_by_helm_as_well(fields: JSON, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=re.escape(problem)):
        Chart().render(on("cpu", **fields))
    helm = find_helm()
    if helm is None:
        pytest.skip("there is no helm: `make helm` builds it")
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(on("cpu", **fields)))
    done = subprocess.run([helm, "template", CHART, "-f", values], capture_output=True, text=True, check=False)
    assert done.returncode
    assert "values don't meet the specifications of the schema" in done.stderr


def test_variables_of_other_programs_are_let_through() -> None:
    env = {
        "HTTPS_PROXY": "x",
        "OTEL_SDK_DISABLED": "true",
        "DRA_SDK_LOG_LEVEL": "debug",
        "DRA_CPU_NODE_ALLOCATABLE": "",
    }
    assert {"name": "HTTPS_PROXY", "value": "x"} in container("cpu", env=env)["env"]
    assert container("lamps", driverName="lamps.example.com", env={"DRA_LAMPS": "any"})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"drivers": {"cpu": {"enabld": True}}}, "value drivers.cpu.enabld is none that the chart has"),
        ({"drivers": {"lamps": {}}}, "value drivers.lamps.driverName must be given"),
        ({"drivers": {"cpu": {"env": {"A": 1}}}}, "value drivers.cpu.env.A must be a valid string"),
        (
            {"drivers": {"cpu": {"hostRoot": "write"}}},
            "value drivers.cpu.hostRoot must be 'none', 'ReadOnly' or 'ReadWrite'",
        ),
        ({"drivers": {"cpu": {"nodeSelector": None}}}, "value drivers.cpu.nodeSelector must be an object"),
        ({"drivers": {"cpu": {"httpPort": 0}}}, "value drivers.cpu.httpPort must be greater than or equal to 1"),
        ({"kubeletDir": "here"}, "value kubeletDir"),
        ({"cdi": "/x"}, "value cdi"),
    ],
)
def test_a_wrong_value_is_named(values: JSON, problem: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(problem)):
        Chart().render(values)


def test_null_removes_a_value_and_maps_are_merged_by_key() -> None:
    below = {"a": {"b": 1, "c": 2}, "d": [1, 2]}
    assert merge_values(below, {"a": {"b": None, "e": 3}, "d": [3]}) == {"a": {"c": 2, "e": 3}, "d": [3]}
    assert below == {"a": {"b": 1, "c": 2}, "d": [1, 2]}


# -- what drivers get


@pytest.mark.parametrize("key", DRIVERS)
def test_a_driver_of_the_chart_is_the_installed_one(key: str) -> None:
    info, objects = load_driver(key).info, rendered(on(key))
    classes = [obj for (kind, _), obj in objects.items() if kind == "DeviceClass"]
    assert info.name in {device_class["metadata"]["name"] for device_class in classes}
    for device_class in classes:
        assert f'device.driver == "{info.name}"' in device_class["spec"]["selectors"][0]["cel"]["expression"]
    made = container(key)
    assert made["args"] == ["run", key]
    settings = {setting.env for setting in SETTINGS} | {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
    documented = "".join(page.read_text() for page in (ROOT / "drivers").glob("*/*.md"))
    for variable in (entry["name"] for entry in made["env"]):
        assert variable in settings or f"`{variable}`" in documented, variable


@pytest.mark.parametrize("key", DRIVERS)
def test_a_pod_sees_the_directories_of_its_own_driver_only(key: str) -> None:
    name, spec = load_driver(key).info.name, pod(key, env={"DRA_GPU_MPS": "false"} if key == "gpu" else {})
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    shared = {"/var/run/cdi"} | SHARED.get(key, set())
    own = {f"/var/lib/kubelet/plugins_registry/{name}", f"/var/lib/kubelet/plugins/{name}"}
    assert set(volumes.values()) == shared | own
    mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert "host" not in volumes or mounts["/host"]["readOnly"]
    assert {mount["name"] for mount in mounts.values()} == {volume["name"] for volume in spec["volumes"]}


def test_another_directory_of_the_kubelet_moves_everything() -> None:
    every = {key: {"enabled": True} for key in yaml.safe_load((CHART / "values.yaml").read_text())["drivers"]}
    manifests = Chart().render({**ALL, "drivers": every, "kubeletDir": "/data/kubelet"})
    assert [manifest.source for manifest in manifests if "/var/lib/kubelet" in manifest.text] == []
    (cpu,) = [manifest for manifest in manifests if "name: dra-cpu\n" in manifest.text and "hostPath" in manifest.text]
    assert 'hostPath: {path: "/data/kubelet/cpu_manager_state", type: File}' in cpu.text


@pytest.mark.parametrize("key", DRIVERS)
def test_what_a_pod_only_reads_it_cannot_write_to_below_either(key: str) -> None:
    """A read-only mount leaves those below it writable: for root, `/sys/fs/cgroup` below `/sys`."""
    mounts = [mount for mount in container(key)["volumeMounts"] if mount["name"].startswith("host-")]
    assert {mount.get("recursiveReadOnly") for mount in mounts if mount.get("readOnly")} <= {"IfPossible"}
    assert all(
        mount["mountPath"].startswith("/host/") for mount in mounts if key == "device-plugin" and "readOnly" in mount
    )


def test_a_driver_with_a_cdi_directory_of_its_own_sees_no_other() -> None:
    spec = pod("cpu", cdiDir="/var/run/cdi-drivers/cpu")
    paths = {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert {path for path in paths if "cdi" in path} == {"/var/run/cdi-drivers/cpu"}
    (made,) = spec["containers"]
    assert {"name": "DRA_SDK_CDI_DIR", "value": "/var/run/cdi-drivers/cpu"} in made["env"]


@pytest.mark.parametrize("key", DRIVERS)
def test_every_pod_is_confined_and_replaced_without_a_gap(key: str) -> None:
    daemon_set = rendered(on(key))["DaemonSet", f"dra-{key}"]["spec"]
    assert daemon_set["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    spec = daemon_set["template"]["spec"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["enableServiceLinks"] is False
    (made,) = spec["containers"]
    assert "memory" in made["resources"]["limits"]
    assert made["securityContext"]["readOnlyRootFilesystem"]
    start = made["startupProbe"]
    assert start["httpGet"] == made["livenessProbe"]["httpGet"]  # which waits for it
    assert start["periodSeconds"] * start["failureThreshold"] == 300
    sources = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in made["env"]
        if "valueFrom" in variable
    }
    assert sources == {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"}


PRIVILEGED = [
    ("cpu", {}, False),
    ("gpu", {}, True),
    ("gpu", {"DRA_GPU_MPS": "false"}, False),
    ("gpu", {"DRA_GPU_MPS": "false", "DRA_GPU_DYNAMIC_MIG": "true"}, True),
    ("gpu", {"DRA_GPU_MPS": "false", "DRA_GPU_PASSTHROUGH": "true"}, True),
    ("gpu", {"DRA_GPU_MPS": None}, True),
    ("gpu-amd", {}, False),
    ("gpu-amd", {"DRA_AMD_PASSTHROUGH": "true"}, True),
    ("gpu-amd", {"DRA_AMD_PARTITIONING": "true"}, True),
]


@pytest.mark.parametrize(("key", "env", "privileged"), PRIVILEGED)
def test_a_pod_is_privileged_only_for_the_features_that_need_it(key: str, env: JSON, privileged: bool) -> None:
    context = container(key, env=env)["securityContext"]
    assert context.get("privileged", False) is privileged
    if not privileged:
        added = {"add": ["SYS_CHROOT"]} if key == "gpu" else {}
        assert context["capabilities"] == {"drop": ["ALL"], **added}
        assert context["allowPrivilegeEscalation"] is False
        assert "hostPID" not in pod(key, env=env)


def test_on_the_hosts_network_the_old_pod_goes_first() -> None:
    daemon_set = rendered(on("cpu", hostNetwork=True, httpPort=9090))["DaemonSet", "dra-cpu"]["spec"]
    assert daemon_set["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    (made,) = daemon_set["template"]["spec"]["containers"]
    assert made["ports"] == [{"name": "http", "containerPort": 9090}]
    assert {"name": "DRA_SDK_HTTP_ADDRESS", "value": ":9090"} in made["env"]


def test_each_driver_has_an_account_that_only_its_own_policy_is_about() -> None:
    objects = rendered(on("cpu"), on("gpu"))
    for key, driver in (("cpu", "dra.cpu"), ("gpu", "gpu.nvidia.com")):
        assert objects["DaemonSet", f"dra-{key}"]["spec"]["template"]["spec"]["serviceAccountName"] == f"dra-{key}"
        assert ("ServiceAccount", f"dra-{key}") in objects
        policy = objects["ValidatingAdmissionPolicy", f"dra-{key}"]["spec"]
        (condition,) = policy["matchConditions"]
        assert condition["expression"] == f'request.userInfo.username == "system:serviceaccount:dra-sdk:dra-{key}"'
        assert f'variables.slice.spec.driver == "{driver}"' in {
            validation["expression"] for validation in policy["validations"]
        }
        assert objects["ValidatingAdmissionPolicyBinding", f"dra-{key}"]["spec"]["validationActions"] == ["Deny"]


def test_only_a_driver_that_tells_the_status_of_devices_may_write_it() -> None:
    objects = rendered(on("cpu", deviceStatus=True), on("gpu"))
    granted = {
        key: {resource for rule in objects["ClusterRole", f"dra-{key}"]["rules"] for resource in rule["resources"]}
        for key in ("cpu", "gpu")
    }
    assert granted["cpu"] - granted["gpu"] == {"resourceclaims/status", "resourceclaims/driver"}
    (rule,) = [
        rule for rule in objects["ClusterRole", "dra-cpu"]["rules"] if "resourceclaims/driver" in rule["resources"]
    ]
    assert rule["resourceNames"] == ["dra.cpu"]


@pytest.mark.parametrize("key", ["cpu", "nic", "gpu", "gpu-amd"])
def test_on_openshift_an_account_may_make_its_own_pod_and_no_wider_one(key: str) -> None:
    objects = rendered(on(key), {"openShift": True})
    constraints = objects["SecurityContextConstraints", f"dra-sdk-{key}"]
    assert constraints["users"] == [f"system:serviceaccount:dra-sdk:dra-{key}"]
    spec = objects["DaemonSet", f"dra-{key}"]["spec"]["template"]["spec"]
    context = spec["containers"][0]["securityContext"]
    privileged = context.get("privileged", False)
    assert constraints["allowPrivilegedContainer"] is privileged
    assert constraints["allowPrivilegeEscalation"] is context.get("allowPrivilegeEscalation", privileged)
    assert constraints["allowHostPID"] is spec.get("hostPID", False)
    assert constraints["allowHostNetwork"] is constraints["allowHostPorts"] is spec.get("hostNetwork", False)
    if not privileged:
        assert constraints["allowedCapabilities"] == context["capabilities"].get("add", [])
    kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert kinds <= set(constraints["volumes"])


def test_objects_come_in_an_order_in_which_they_can_be_applied() -> None:
    kinds = [manifest.object["kind"] for manifest in Chart().render(ALL)]
    assert kinds[0] == "Namespace"
    assert kinds.index("ServiceAccount") < kinds.index("DaemonSet")
    assert kinds.index("ValidatingAdmissionPolicyBinding") < kinds.index("DaemonSet")


# -- what Helm alone makes


def guard(values: JSON, folder: Path) -> dict[tuple[str, str], JSON]:
    """The hooks of a release, by kind and name."""
    helm = find_helm()
    if helm is None:
        pytest.skip("there is no helm: `make helm` builds it")
    objects = helm_objects(helm, values, folder)
    return {key: objects[key] for key in objects.keys() - rendered(values).keys()}


def test_before_an_uninstall_each_driver_is_asked_for_its_claims(tmp_path: Path) -> None:
    lamps = {**LAMPS, "image": {"repository": "r.example.com/lamps", "tag": "2"}, "command": ["lamps"]}
    drivers = {"cpu": {"enabled": True}, "lamps": lamps, "gpu": {"enabled": True, "daemonSet": False}}
    hooks = guard({"drivers": drivers}, tmp_path)
    assert {kind for kind, _ in hooks} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert {obj["metadata"]["annotations"]["helm.sh/hook"] for obj in hooks.values()} == {"pre-delete"}
    rules = hooks["ClusterRole", "dra-sdk-claims-held"]["rules"]
    assert rules == [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["list"]}]
    spec = hooks["Job", "dra-sdk-claims-held"]["spec"]["template"]["spec"]
    asked = [(made["name"], made["image"], made.get("command"), made["args"]) for made in spec["containers"]]
    assert asked == [
        ("cpu", "registry.example.com/dra-sdk:0.1.0", None, ["claims", "dra.cpu"]),
        ("lamps", "r.example.com/lamps:2", ["lamps"], ["claims", "lamps.example.com"]),
    ]
    assert "volumes" not in spec
    daemon_set = rendered({"drivers": drivers})["DaemonSet", "dra-cpu"]["spec"]["selector"]["matchLabels"]
    assert (
        not daemon_set.items() <= hooks["Job", "dra-sdk-claims-held"]["spec"]["template"]["metadata"]["labels"].items()
    )


def test_daemon_sets_name_their_driver_for_the_guard_of_upgrades() -> None:
    objects = rendered({"drivers": {"cpu": {"enabled": True}, "lamps": LAMPS}})
    named = {
        name: obj["metadata"]["annotations"]["dra-sdk/driver"]
        for (kind, name), obj in objects.items()
        if kind == "DaemonSet"
    }
    assert named == {"dra-cpu": "dra.cpu", "dra-lamps": "lamps.example.com"}


@pytest.mark.parametrize("values", [{**on("cpu"), "uninstallGuard": {"create": False}}, on("cpu", daemonSet=False), {}])
def test_there_is_no_guard_where_it_is_switched_off_or_has_no_pods_to_guard(values: JSON, tmp_path: Path) -> None:
    assert guard(values, tmp_path) == {}


def test_the_guards_pod_runs_where_values_say_so(tmp_path: Path) -> None:
    hooks = guard(
        {**on("cpu"), "openShift": True, "uninstallGuard": {"tolerations": [{"operator": "Exists"}]}}, tmp_path
    )
    spec = hooks["Job", "dra-sdk-claims-held"]["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert "runAsUser" not in spec["securityContext"]


# -- monitoring


@pytest.fixture
def metrics() -> set[str]:
    """The names under which Prometheus stores the metrics of a driver that has prepared a claim."""
    with EmbeddedCluster() as cluster, DriverProcess(load_driver("cpu"), settings_for(cluster)) as process:
        cluster.kubelet.wait_for_driver("dra.cpu")
        cluster.wait_slices("dra.cpu")
        cluster.create_class("cpus")
        cluster.create_claim("one", {"cpu": "cpus"})
        cluster.create_pod("user", ["one"])
        cluster.schedule()
        cluster.run_pod("user")
        text = process.metrics.text().decode()
    # A gauge without a value now is known from its type; that of what is left out appears with the first value only.
    return {omissions.METRIC} | set(re.findall(r"^(?:# TYPE )?(dra_sdk_\w+)(?:\{| gauge| [0-9])", text, re.MULTILINE))


def monitoring() -> dict[tuple[str, str], JSON]:
    return rendered({"monitoring": {"podMonitor": True, "alerts": True, "dashboard": True}}, on("cpu"))


def test_alerts_and_dashboard_ask_for_metrics_that_exist(metrics: set[str]) -> None:
    objects = monitoring()
    rules = objects["PrometheusRule", "dra-sdk-drivers"]["spec"]["groups"][0]["rules"]
    dashboard = json.loads(objects["ConfigMap", "dra-sdk-dashboard"]["data"]["dra-drivers.json"])
    queries = [rule["expr"] for rule in rules]
    queries += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    asked = {name for query in queries for name in METRIC.findall(query)}
    assert asked <= metrics
    created = {metric for metric in metrics if metric.endswith("_created")}
    of_histograms = {metric for metric in metrics if metric.endswith("_sum") or metric == "dra_sdk_hook_seconds_count"}
    assert metrics - asked == created | of_histograms, "a metric that no panel shows"


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads(monitoring()["ConfigMap", "dra-sdk-dashboard"]["data"]["dra-drivers.json"])
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_metrics_are_read_and_addresses_are_reached_only_where_values_say_so() -> None:
    def policy(**fields: Any) -> JSON:
        return dict(
            rendered(on("cpu"), {"networkPolicy": {"create": True, **fields}})["NetworkPolicy", "dra-sdk-drivers"][
                "spec"
            ]
        )

    closed = policy()
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in closed  # nobody
    dns, server = closed["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    kube_system = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["kube-system"]}
    assert dns["to"][0] == {"namespaceSelector": {"matchExpressions": [kube_system]}}
    assert [port["port"] for port in server["ports"]] == [443, 6443]
    assert "to" not in server  # as the values say: any address
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    opened = policy(scrapedFrom=monitoring, apiServer=["10.0.0.5/32"])
    assert [rule["from"] for rule in opened["ingress"]] == [[{"namespaceSelector": monitoring}]]
    assert opened["egress"][1]["to"] == [{"ipBlock": {"cidr": "10.0.0.5/32"}}]


def test_monitors_and_policies_select_the_pods_of_the_drivers() -> None:
    objects = rendered({"monitoring": {"podMonitor": True}, "networkPolicy": {"create": True}}, on("cpu"))
    template = objects["DaemonSet", "dra-cpu"]["spec"]["template"]
    selectors = (
        objects["PodMonitor", "dra-sdk-drivers"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy", "dra-sdk-drivers"]["spec"]["podSelector"]["matchLabels"],
    )
    for labels in selectors:
        assert labels.items() <= template["metadata"]["labels"].items()
    (port,) = template["spec"]["containers"][0]["ports"]
    assert objects["PodMonitor", "dra-sdk-drivers"]["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]


def test_values_has_a_field_for_every_default() -> None:
    known = {field.alias or name for name, field in Values.model_fields.items()}
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())) == known - {"global"}


def test_the_chart_needs_nothing_that_the_package_does_not_bring(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "chart")
    assert [manifest.text for manifest in Chart(tmp_path / "chart").render(ALL)] == [
        manifest.text for manifest in Chart().render(ALL)
    ]
