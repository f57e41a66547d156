from __future__ import annotations

import io
import json
import sys

import pytest

from dra_sdk.cli import validate
from dra_sdk.cli.arguments import Parser

GOOD = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: gpu
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: gpu.example.com
---
apiVersion: v1
kind: Service
metadata:
  name: user
spec: {ports: [{port: 80}]}
"""
SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: node-a-gpu
spec:
  driver: gpu.example.com
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  nodeName: node-a
  devices:
  - name: gpu-0
    colour: red
    taints:
    - key: example.com/broken
      effect: None
    attributes:
      model: {string: XXXX}
"""


CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: gpu
spec:
  selectors:
  - cel:
      expression: device.driver = "gpu.example.com"
"""


@pytest.fixture
def run(capsys, tmp_path):
    """Run the command on named contents; status, lines on stdout and text on stderr."""

    def go(*arguments, **files):
        for name, content in files.items():
            path = tmp_path / name.replace("_", ".")
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        parser = Parser()
        validate.add_parser(parser.add_subparsers())
        given = [
            str(tmp_path / argument) if argument in {path.name for path in tmp_path.iterdir()} else argument
            for argument in arguments
        ]
        parsed = parser.parse_args(["validate", *given])
        status = parsed.run(parsed)
        captured = capsys.readouterr()
        return status, captured.out.replace(f"{tmp_path}/", "").splitlines(), captured.err.replace(f"{tmp_path}/", "")

    return go


def test_good_objects_pass_and_other_kinds_are_ignored(run):
    status, lines, summary = run("good.yaml", good_yaml=GOOD)
    assert (status, lines) == (0, [])
    assert (
        summary == "1 object checked for Kubernetes 1.36, as --server-version was not given; 0 problems; "
        "ignored kinds: Service\n"
    )


def test_each_problem_has_file_line_object_and_field(run):
    content = SLICE.replace("XXXX", "x" * 70)
    status, lines, summary = run("a.yaml", a_yaml=content)
    assert status == 1
    assert lines == [
        "a.yaml:11: ResourceSlice/node-a-gpu: spec.devices[0].colour: unknown field",
        "a.yaml:16: ResourceSlice/node-a-gpu: spec.devices[0].attributes[model].string: must be at most 64 bytes, has 70",  # noqa: E501
    ]
    assert "2 problems" in summary


def test_opaque_configuration_is_checked_for_the_drivers_that_are_named(run):
    parameters = "{apiVersion: shapes.example.com/v1, kind: Shape, smal: 1, parts: [{width: 1}, {width: 0}]}"
    entry = f"      config: [{{opaque: {{driver: shapes.example.com, parameters: {parameters}}}}}]\n"
    first = GOOD.partition("---")[0] + entry
    assert run("a.yaml", a_yaml=first)[:2] == (0, [])
    status, lines, summary = run("a.yaml", "--driver", "tests.tools.configuration.shapes:ShapeDriver", a_yaml=first)
    place = "a.yaml:12: ResourceClaimTemplate/gpu: spec.spec.devices.config[0].opaque.parameters"
    known = "small, ratio, on, name, mode, maybe, part, parts, numbers, sides, either"
    wrong = ["parts[1].width: must be greater than or equal to 1 (got 0)", f"smal: unknown field (known: {known})"]
    assert (status, lines) == (1, [f"{place}.{field}" for field in wrong])
    assert "2 problems" in summary
    older = first.replace("resource.k8s.io/v1\n", "resource.k8s.io/v1beta2\n")
    assert run("a.yaml", "--driver", "tests.tools.configuration.shapes:ShapeDriver", a_yaml=older)[1] == lines
    right = first.replace("smal: 1, ", "").replace("width: 0", "width: 2")
    assert run("a.yaml", "--driver", "tests.tools.configuration.shapes:ShapeDriver", a_yaml=right)[:2] == (0, [])


RULED = """
from dra_sdk import CelRule, DriverInfo, OpaqueConfig

class Spring(OpaqueConfig, api_version="springs.example.com/v1"):
    low: int = 0
    high: int = 1
    cel_rules = (CelRule("self.low <= self.high", "low is above high"), CelRule("self.lo > 1", "low"))

class SpringDriver:
    def dra_driver_info(self): return DriverInfo("springs.example.com", configs=[Spring])
    def dra_discover(self, node): return []
    def dra_prepare(self, claim): return []
"""


def test_the_rules_of_a_driver_are_compared_with_its_classes(run, tmp_path, monkeypatch):
    (tmp_path / "springs.py").write_text(RULED)
    monkeypatch.syspath_prepend(tmp_path)
    status, lines, summary = run("a.yaml", "--driver", "springs:SpringDriver", a_yaml=GOOD.partition("---")[0])
    rule = "springs.py:4: Spring: cel_rules"
    assert lines == [
        f"{rule}[1]: line 1, column 5: undefined field 'lo'",
        f'{rule}[0] refuses {{"low": 2}}, which the class takes: low is above high',
    ]
    assert (status, "2 problems" in summary) == (1, True)


def test_a_claim_that_only_a_rule_refuses_is_refused(run, tmp_path, monkeypatch):
    (tmp_path / "other_springs.py").write_text(RULED.replace('"self.lo > 1"', '"self.low != 7"'))
    monkeypatch.syspath_prepend(tmp_path)
    parameters = "{apiVersion: springs.example.com/v1, kind: Spring, low: 7, high: 9}"
    content = (
        GOOD.partition("---")[0]
        + f"      config: [{{opaque: {{driver: springs.example.com, parameters: {parameters}}}}}]\n"
    )
    status, lines, _ = run("a.yaml", "--driver", "other_springs:SpringDriver", a_yaml=content)
    place = "a.yaml:12: ResourceClaimTemplate/gpu: spec.spec.devices.config[0].opaque.parameters"
    assert (status, lines[-1]) == (1, f"{place}: Spring.cel_rules[1] refuses it: low")


def test_what_only_a_class_refuses_is_a_note(run, capsys):
    status, lines, summary = run("a.yaml", "--driver", "tests.tools.configuration.shapes:OddDriver", a_yaml=GOOD)
    assert (status, lines) == (0, [])
    assert "note: Odd refuses " in summary
    assert "(and 1 more)" in summary


def test_a_check_that_fails_itself_is_a_warning(run):
    parameters = "{apiVersion: odd.example.com/v1, kind: Odd, low: 1}"
    entry = f"      config: [{{opaque: {{driver: odd.example.com, parameters: {parameters}}}}}]\n"
    content = GOOD.partition("---")[0] + entry
    status, (line,), _ = run("a.yaml", "--driver", "tests.tools.configuration.shapes:OddDriver", a_yaml=content)
    assert status == 0
    assert "warning: spec.spec.devices.config[0].opaque.parameters: not checked, because driver odd.example.com" in line
    assert "failed: RuntimeError: a defect" in line


def test_an_older_server_has_other_limits_and_drops_fields(run):
    arguments = ("--server-version", "1.34", "a.yaml")
    content = SLICE.replace("    colour: red\n", "")
    taints = "ResourceSlice/node-a-gpu: {}spec.devices[0].taints"
    wrong = "[0].effect: must be one of NoExecute, NoSchedule, is 'None'"
    status, lines, summary = run(*arguments, a_yaml=content)
    assert lines == [
        f"a.yaml:11: {taints.format('warning: ')}: dropped by the server, whose feature gate DRADeviceTaints is off",
        f"a.yaml:13: {taints.format('warning: ')}{wrong}",
    ]
    assert (status, "0 problems" in summary) == (0, True), "the server drops the field before it looks"
    status, lines, _ = run("--feature-gates", "DRADeviceTaints=true", *arguments)
    assert (status, lines) == (1, [f"a.yaml:13: {taints.format('')}{wrong}"])


def test_a_problem_that_only_a_dropped_field_causes_is_a_problem(run):
    content = SLICE.replace("{string: XXXX}", "{ints: [1]}").replace("effect: None", "effect: NoExecute")
    status, lines, summary = run("a.yaml", a_yaml=content)
    named = "ResourceSlice/node-a-gpu: {}spec.devices[0].{}"
    gate = "dropped by the server, whose feature gate DRAListTypeAttributes is off"
    assert lines == [
        f"a.yaml:11: {named.format('', 'colour')}: unknown field",
        f"a.yaml:16: {named.format('', 'attributes[model]')}: must have exactly one value, has none",
        f"a.yaml:16: {named.format('warning: ', 'attributes[model].ints')}: {gate}",
    ]
    assert (status, "2 problems" in summary) == (1, True)


CARD = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: counters}
spec:
  driver: card.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 2}
  sharedCounters:
  - name: card0
    counters: {units: {value: "2"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: devices}
spec:
  driver: card.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 2}
  devices:
  - name: card0
    consumesCounters: [{counterSet: card0, counters: {units: {value: "2"}}}]
  - name: half0
    consumesCounters: [{counterSet: card0, counters: {units: {value: "1"}}}]
"""


@pytest.mark.parametrize(
    ("version", "warnings"),
    [
        (
            "1.35",
            [
                (
                    "card.yaml:15: ResourceSlice/devices: warning: spec.devices: half0 of pool node-1 cannot be had "
                    "beside card0; Kubernetes 1.35 drops the counters that say so, because its feature gate "
                    "DRAPartitionableDevices is off, so claims may get them"
                )
            ],
        ),
        ("1.36", []),
    ],
)
def test_devices_that_exclude_each_other_on_a_server_that_drops_counters(run, version: str, warnings: list[str]):
    status, lines, _ = run("card.yaml", "--server-version", version, card_yaml=CARD)
    assert status == 0
    assert [line for line in lines if "cannot be had" in line] == warnings


def test_a_dropped_field_is_no_problem(run):
    content = SLICE.replace("    colour: red\n", "").replace("effect: None", "effect: NoExecute")
    assert run("--server-version", "1.35", "a.yaml", a_yaml=content)[0] == 0
    assert run("--server-version", "1.35", "--feature-gates", "DRADeviceTaints=true", "a.yaml")[:2] == (0, [])


def test_lines_count_through_documents_and_lists(run):
    listed = """\
---
kind: List
apiVersion: v1
items:
- {kind: Service, apiVersion: v1}
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata: {name: A}
"""
    status, lines, summary = run("a.yaml", a_yaml=GOOD + listed)
    assert status == 1
    assert [line.split(":")[1] for line in lines] == ["25"]
    assert "DeviceClass/A: metadata.name: must be a DNS subdomain" in lines[0]
    assert summary.endswith("ignored kinds: Service\n")


def test_json_is_read(run):
    content = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {}}, indent="\t")
    status, lines, _ = run("a.json", a_json=content)
    assert (status, lines) == (1, ["a.json:4: DeviceClass/*: metadata.name: name or generateName must be set"])


def test_standard_input_is_read(run, monkeypatch):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"apiVersion: resource.k8s.io/v1\nkind: DeviceCls\n"))
    )
    status, lines, _ = run("-")
    assert status == 1
    assert lines[0].startswith("<stdin>:2: DeviceCls/*: kind: must be one of DeviceClass")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("kind: A\nspec: [1,\nb: }\n", "dra-sdk: a.yaml: line 3, column 4: "),
        ('{"kind": "A",\n "spec": ]', "dra-sdk: a.yaml: line 2, column 10: "),
        (b"kind: \xff", "dra-sdk: a.yaml: line 1: not UTF-8 text"),
        ("a: 1\na: 2\n", "dra-sdk: a.yaml: line 2, column 1: key 'a' is given twice"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(run, content, message):
    status, lines, errors = run("a.yaml", a_yaml=content)
    assert (status, lines) == (2, [])
    assert errors.startswith(message)
    assert "1 file not readable" in errors


def test_the_other_files_are_checked_anyway(run, tmp_path):
    (tmp_path / "empty").mkdir()
    status, lines, errors = run(str(tmp_path / "missing.yaml"), str(tmp_path / "empty"), "a.yaml", a_yaml=SLICE)
    assert status == 2
    assert len(lines) == 1
    assert "dra-sdk: cannot read missing.yaml: No such file or directory" in errors
    assert "it is a directory without files" in errors
    assert "2 files not readable" in errors


@pytest.mark.parametrize("content", ["", "---\n", "# nothing\n", "null\n"])
def test_an_empty_file_has_no_objects(run, content):
    status, lines, summary = run("a.yaml", a_yaml=content)
    assert (status, lines) == (0, [])
    assert "note: a.yaml has no object\n" in summary


@pytest.mark.parametrize("content", ["- 1\n", "text\n", "1\n"])
def test_a_value_that_is_not_an_object_is_a_problem(run, content):
    status, lines, _ = run("a.yaml", a_yaml=content)
    assert status == 1
    assert lines[0].startswith("a.yaml:1: object: must be an object, is ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--server-version", "1.33", "a"],
        ["--feature-gates", "DRADeviceTaint=true", "a"],
        ["--feature-gates", "DRADeviceTaints=yes", "a"],
        ["--feature-gates", "DRADeviceTaints", "a"],
    ],
)
def test_wrong_usage_is_status_2(run, arguments):
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    assert exit_.value.code == 2


def test_a_selector_that_does_not_compile_is_a_problem(run):
    status, lines, _ = run("class.yaml", class_yaml=CLASS)
    assert status == 1
    (line,) = lines
    assert line.startswith("class.yaml:8: DeviceClass/gpu: spec.selectors[0].cel.expression: line 1, column 15: ")


def test_fields_of_pods_and_of_pod_templates_are_checked(run):
    content = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  resourceClaim: [{name: x, resourceClaimName: x}]
  containers: [{name: c}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  template:
    spec:
      containers:
      - name: c
        resources: {claims: [{name: gpu}]}
"""
    status, lines, summary = run("a.yaml", a_yaml=content)
    assert status == 1
    assert lines == [
        "a.yaml:5: Pod/a: spec.resourceClaim: unknown field; did you mean resourceClaims?",
        "a.yaml:16: Deployment/d: spec.template.spec.containers[0].resources.claims[0].name: the pod has no claim 'gpu' in spec.resourceClaims",  # noqa: E501 (one line of output)
    ]
    assert summary.startswith("2 objects checked")


def test_a_field_of_a_request_that_is_one_level_too_high_is_told(run):
    content = GOOD.replace("        exactly:\n          deviceClassName", "        deviceClassName")
    _, lines, _ = run("a.yaml", a_yaml=content)
    assert lines[-1].endswith("requests[0].deviceClassName: unknown field; did you mean exactly.deviceClassName?")


def test_a_kind_that_may_need_devices_and_is_not_understood_is_status_2(run):
    content = "apiVersion: example.com/v1\nkind: Train\nmetadata: {name: t}\nspec: {podTemplate: {}}\n"
    status, lines, summary = run("a.yaml", a_yaml=content)
    assert status == 2
    assert lines[0].startswith("a.yaml:2: Train/t: kind: Train of example.com/v1 is not understood")
    assert summary.endswith("1 object not understood\n")
    assert run("--ignore-kind", "Train", "a.yaml", a_yaml=content)[0] == 0
    rows = "- {kind: Train, group: example.com, template: spec.podTemplate}\n"
    assert run("--workloads", "rows.yaml", "a.yaml", a_yaml=content, rows_yaml=rows)[0] == 0


def test_a_file_of_values_is_no_object(run):
    status, lines, _ = run("values.yaml", values_yaml="image: {tag: x}\n")
    assert (status, lines) == (
        1,
        ["values.yaml:1: object/*: kind: must be set; without it this is no object of Kubernetes"],
    )


def test_the_findings_as_json(run):
    status, lines, _ = run("a.yaml", "-o", "json", a_yaml=SLICE)
    assert status == 1
    assert json.loads("\n".join(lines)) == {
        "checked": 1,
        "findings": [
            {
                "file": "a.yaml",
                "line": 11,
                "object": "ResourceSlice/node-a-gpu",
                "field": "spec.devices[0].colour",
                "text": "unknown field",
                "level": "error",
            }
        ],
    }


def test_the_findings_for_code_scanning(run):
    status, lines, _ = run("missing.yaml", "a.yaml", "-o", "sarif", a_yaml=SLICE)
    assert status == 2
    sarif = json.loads("\n".join(lines))
    missing, wrong = sarif["runs"][0]["results"]
    assert missing["message"]["text"] == "cannot read missing.yaml: No such file or directory"
    assert wrong["level"] == "error"
    assert wrong["message"]["text"] == "ResourceSlice/node-a-gpu: spec.devices[0].colour: unknown field"
    place = wrong["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("a.yaml", 11)


def test_the_findings_as_a_report_of_tests(run):
    status, lines, _ = run("a.yaml", "b.yaml", "-o", "junit", a_yaml=SLICE, b_yaml=GOOD)
    assert status == 1
    assert lines[1:] == [
        '<testsuite name="dra-sdk validate" tests="2" failures="1">',
        '  <testcase classname="a.yaml" name="ResourceSlice/node-a-gpu">',
        '    <failure message="a.yaml:11: ResourceSlice/node-a-gpu: spec.devices[0].colour: unknown field"/>',
        "  </testcase>",
        '  <testcase classname="b.yaml" name="ResourceClaimTemplate/gpu"/>',
        "</testsuite>",
    ]


@pytest.mark.parametrize(
    ("kind", "version", "spec"),
    [
        ("Pod", "v1", {"containers": [{"name": "c", "image": "i"}]}),
        ("Job", "batch/v1", {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}),
        ("ResourceClaim", "resource.k8s.io/v1", {}),
    ],
)
def test_every_kind_may_have_generate_name(run, kind, version, spec):
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": None, "generateName": "x-"}, "spec": spec}
    assert run("a.json", a_json=json.dumps(made))[:2] == (0, [])
    wrong = made | {"metadata": {"generateName": "X_"}}
    status, lines, _ = run("a.json", a_json=json.dumps(wrong))
    assert status == 1
    assert "metadata.generateName: must be a DNS subdomain" in " ".join(lines)


def test_a_pod_group_needs_its_gate_and_its_version(run):
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    content = json.dumps(group)
    flags = ("--server-version", "1.37", "--feature-gates", "GenericWorkload=true")
    assert run("a.json", *flags, a_json=content)[:2] == (0, [])
    reason = "Kubernetes 1.37 has no such kind without the feature gate GenericWorkload"
    assert run("a.json", *flags[:2], a_json=content)[:2] == (1, [f"a.json:1: PodGroup/g: apiVersion: {reason}"])
    assert run("a.json", *flags, a_json=content.replace("2", "0"))[0] == 1
