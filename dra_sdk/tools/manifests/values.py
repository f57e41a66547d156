"""The values of the chart: every field with its type and its meaning; `values.schema.json` is made from these classes.

The defaults are in values.yaml. A driver's entry has any of the fields of `DriverValues`; `defaults` has the others.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from dra_sdk.errors import SettingsError
from dra_sdk.model.config import broken_rule
from dra_sdk.tools.manifests import driver_settings

JSON = dict[str, Any]
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=50)]
Subdomain = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253)
]
DriverName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=63)
]
HostPath = Annotated[str, StringConstraints(pattern=r"^/[^{}]*$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z_][A-Z0-9_]*$")]
Access = Literal["ReadOnly", "ReadWrite"]
HostPathType = Literal["Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Cidr = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
Port = Annotated[int, Field(ge=1, le=65535)]


def _may_be_left_out(description: str, alias: str | None = None) -> Any:
    """Return a field without a default of its own; `model_fields_set` says whether it is there."""
    return Field(None, description=description, alias=alias)


class _ChartPart(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class Image(_ChartPart):
    """Where an image is.

    A driver's entry names only what differs from the chart's.
    """

    repository: str = _may_be_left_out("registry and name, without a tag")
    tag: str = _may_be_left_out("empty: the chart's appVersion")
    digest: Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")] = _may_be_left_out(
        "sha256:…; takes precedence over the tag"
    )
    pull_policy: PullPolicy = _may_be_left_out("as in a container")


class DeviceClassValues(_ChartPart):
    """A DeviceClass with one CEL selector."""

    name: Subdomain = Field(description="its name")
    expression: Annotated[str, Field(min_length=1)] = Field(description="the CEL expression of its selector")
    extended_resource_name: str = Field("", description="pods that ask for this extended resource get a device by DRA")


class MountValues(_ChartPart):
    """A file or directory of the host that the pod has."""

    path: Annotated[str, StringConstraints(pattern=r"^[^{}]+$")] = Field(
        description="the absolute path, or one below kubeletDir"
    )
    mount_path: Annotated[str, StringConstraints(pattern=r"^(/[^{}]*)?$")] = Field(
        "", description="where the pod has it; empty: at the same path"
    )
    access: Access = Field("ReadOnly", description="ReadOnly or ReadWrite")
    type: HostPathType = Field("Directory", description="type of a hostPath volume")


class ResourceValues(_ChartPart):
    """What a container needs and may use, as in a pod."""

    requests: dict[str, str | int | float] = _may_be_left_out("what it needs, by resource, such as `memory: 100Mi`")
    limits: dict[str, str | int | float] = _may_be_left_out("what it may use")
    claims: list[JSON] = _may_be_left_out("the pod's claims that it uses")


class DriverValues(_ChartPart):
    """What a driver needs. Every field may be left out of an entry; `defaults` has all but `driverName`."""

    enabled: bool = _may_be_left_out("whether its objects are made")
    driver_name: DriverName = _may_be_left_out("the driver's name in ResourceSlices, `DriverInfo.name`")
    run: str = _may_be_left_out("what `dra-sdk run` takes; empty: the entry's key")
    image: Image = _may_be_left_out("fields that differ from the chart's image")
    command: list[str] = _may_be_left_out("what starts `dra-sdk`; empty: the image's entry point")
    daemon_set: bool = _may_be_left_out("false: no DaemonSet, for a driver that runs without a pod")
    env: dict[Variable, str] = _may_be_left_out("settings of the process and of the driver")
    device_classes: list[DeviceClassValues] = _may_be_left_out(
        "empty: one class for all devices, with the driver's name"
    )
    device_status: bool = _may_be_left_out("the driver writes status.devices of claims")
    cdi_dir: Annotated[str, StringConstraints(pattern=r"^(/[^{}]*)?$")] = _may_be_left_out(
        "where its CDI specs are written; empty: the chart's cdiDir"
    )
    nri: bool = _may_be_left_out("the pod gets the directory of the runtime's NRI socket")
    pod_group_claims: bool = _may_be_left_out(
        "it may read pods, to know which belong to the PodGroup of a claim, and get its events"
    )
    host_root: Literal["none", "ReadOnly", "ReadWrite"] = _may_be_left_out("access to the host's root, at /host")
    host_paths: list[MountValues] = _may_be_left_out("further files and directories of the host")
    privileged: bool = _may_be_left_out("a privileged container")
    privileged_unless: dict[Variable, str] = _may_be_left_out(
        "settings with their values; privileged if `env` has another value or none for one of them"
    )
    when_privileged: DriverValues = _may_be_left_out("fields of this entry that differ in a privileged pod")
    capabilities: list[str] = _may_be_left_out("capabilities of a container that is not privileged")
    host_pid: bool = _may_be_left_out("the pod sees the host's processes", alias="hostPID")
    host_network: bool = _may_be_left_out("the pod is on the host's network; updates then have a gap")
    http_port: Port = _may_be_left_out("the port of metrics and probes")
    runtime_class_name: str = _may_be_left_out("RuntimeClass of the pod; empty: the default one")
    node_selector: dict[str, str] = _may_be_left_out("labels of the nodes that get a pod")
    affinity: JSON = _may_be_left_out("as in a pod")
    tolerations: list[JSON] = _may_be_left_out("as in a pod")
    pod_annotations: dict[str, str] = _may_be_left_out("annotations of the pod")
    pod_labels: dict[str, str] = _may_be_left_out("further labels of the pod")
    resources: ResourceValues = _may_be_left_out("as in a container")


class NamespaceValues(_ChartPart):
    """The namespace of the release."""

    create: bool = Field(description="make it, with the label that Pod Security admission asks for")


class PriorityClassValues(_ChartPart):
    """The PriorityClass of the pods."""

    create: bool = Field(description="make it")
    name: Subdomain = Field(description="its name, also where it is not made")
    value: Annotated[int, Field(ge=-2147483648, le=1000000000)] = Field(description="its value, where it is made")


class Switch(_ChartPart):
    """Objects that can be left out."""

    create: bool = Field(description="make them")


class Monitoring(_ChartPart):
    """Objects for Prometheus and Grafana."""

    pod_monitor: bool = Field(description="a PodMonitor of the Prometheus operator")
    alerts: bool = Field(description="a PrometheusRule of the Prometheus operator")
    dashboard: bool = Field(description="a ConfigMap with a dashboard, labelled grafana_dashboard")
    interval: Annotated[str, StringConstraints(pattern=r"^[0-9]+(ms|s|m)$")] = Field(description="time between scrapes")
    labels: dict[str, str] = Field(description="further labels of PodMonitor and PrometheusRule")


class NetworkPolicy(_ChartPart):
    """Who may connect to the drivers' pods, and where these may connect to."""

    create: bool = Field(description="make it")
    api_server_ports: list[Port] = Field(description="ports on which the API server listens")
    api_server: list[Cidr] = Field(description="its addresses; empty: any address on these ports")
    dns: JSON = Field(description="label selector of the namespaces in which DNS runs")
    scraped_from: JSON = Field(description="label selector of the namespaces that may read metrics; empty: none")


class UninstallGuard(_ChartPart):
    """The Job that Helm runs before it removes the release, which fails while claims have devices."""

    create: bool = Field(description="make it")
    tolerations: list[JSON] = Field(description="as in a pod")


class Viewer(_ChartPart):
    """The ClusterRole for people who look at devices."""

    create: bool = Field(description="make it")
    aggregate_to_view: bool = Field(description="add its rules to the role `view`")


class Values(_ChartPart):
    """The values of a release."""

    image: Image = Field(description="the image of all drivers")
    image_pull_secrets: list[dict[str, str]] = Field(description="as in a pod")
    kubelet_dir: HostPath = Field(description="the kubelet's root directory")
    cdi_dir: HostPath = Field(description="where CDI specs are written")
    nri_dir: HostPath = Field(description="the directory of the runtime's NRI socket")
    namespace: NamespaceValues
    priority_class: PriorityClassValues
    device_classes: Switch
    admission: Switch
    monitoring: Monitoring
    network_policy: NetworkPolicy
    open_shift: bool = Field(description="a SecurityContextConstraints for the account of each driver")
    uninstall_guard: UninstallGuard
    viewer: Viewer
    defaults: DriverValues = Field(description="what each driver has unless its own entry says otherwise")
    drivers: dict[Label, DriverValues] = Field(description="the drivers by the name that `dra-sdk run` takes")
    global_: JSON = Field({}, alias="global", description="what Helm adds for a chart within another; not used")


def read_values(values: JSON) -> Values:
    """Check the values of a release; SettingsError with one sentence for each wrong one."""
    try:
        chart_values = Values.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            *(f"value {_path(problem['loc'])} {_problem(problem)}" for problem in error.errors(include_url=False))
        ) from error
    wrong = [
        f"value drivers.{key}.driverName must be given: the name of the driver in ResourceSlices"
        for key, driver in chart_values.drivers.items()
        if "driver_name" not in driver.model_fields_set
    ]
    for key, driver in values["drivers"].items():
        wrong += driver_settings.problems(key, driver.get("env") or {})
    if wrong:
        raise SettingsError(*wrong)
    return chart_values


def values_schema() -> JSON:
    """Return the JSON Schema of the values: values.schema.json of the chart."""
    schema = Values.model_json_schema(by_alias=True)
    _tidy(schema)
    entries = schema["properties"]["drivers"]["patternProperties"]
    for pattern, entry in entries.items():
        entries[pattern] = {"allOf": [entry, {"required": ["driverName"]}]}
    schema["properties"]["drivers"]["properties"] = {
        key: {"properties": {"env": driver_settings.env_schema(variables)}}
        for key, variables in driver_settings.known_settings().items()
    }
    return {"$schema": _DIALECT, "title": "Values of the chart dra-sdk", **schema}


def _tidy(schema: Any) -> None:
    """Remove defaults, which would say null for fields that are left out, and refuse keys that match no pattern."""
    if isinstance(schema, dict):
        for key in ("default", "title"):
            if not isinstance(schema.get(key), dict):
                schema.pop(key, None)
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for subschema in schema.values():
            _tidy(subschema)
    elif isinstance(schema, list):
        for subschema in schema:
            _tidy(subschema)


def _problem(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return "is none that the chart has; values.yaml of the chart lists all"
    return broken_rule(problem)


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
