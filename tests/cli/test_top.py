"""`dra-sdk top` from files, from a cluster, and on the node itself."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from dra_sdk import HeldClaim, HeldDevice, Quantity
from dra_sdk.node.health.unhealthy_store import encode as encode_unhealthy
from dra_sdk.node.prepare.checkpoint import Checkpoint, encode
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.cli.commands import EXAMPLES, runner

NODES, CASES = EXAMPLES / "nodes", EXAMPLES / "gpu-use-cases"


@pytest.fixture
def run(capsys):
    return runner(capsys)


def simulated(run, tmp_path: Path, node: str, case: str) -> Path:
    out = run("simulate", EXAMPLES / "classes.yaml", NODES / f"{node}.yaml", CASES / f"{case}.yaml", "-o", "json").out
    claims = tmp_path / "claims.json"
    claims.write_text(out)
    return claims


def test_partitions_claims_and_pods_are_shown(run, tmp_path):
    claims = simulated(run, tmp_path, "mig-dynamic", "10-dynamic-mig")
    result = run("top", claims)
    assert result.status == 0
    assert [[row[1].strip(), row[-3]] for row in result.cells] == [
        ["gpu-0", "blocked"],
        ["gpu-0-mig-3g40gb-9-4", "in use"],
        ["gpu-0-mig-3g40gb-9-0", "in use"],
        ["23 more", "23 blocked"],
        ["gpu-1", "in use"],
        ["25 more", "25 blocked"],
    ]
    assert result.cells[1][-1] == "half-1"
    assert result.err == "52 devices on 2 pieces of hardware, 2 in use; 3 claims; 0 unhealthy\n"
    assert len(run("top", "--all", NODES / "mig-dynamic.yaml").cells) == 52


def test_some_drivers_or_one_node_can_be_selected(run):
    files = (NODES / "gpu-rails.yaml", NODES / "gpu-mixed.yaml")
    gpus = run("top", "--driver", "gpu.nvidia.com", "--driver", "gpu.amd.com", *files)
    assert {row[0] for row in gpus.cells} == {"mixed-1", "rail-1"}
    assert gpus.out.count("free") == 8
    assert len(run("top", "--driver", "dra.net", *files).cells) == 4
    assert {row[0] for row in run("top", "--node", "mixed-1", *files).cells} == {"mixed-1"}


def test_an_invalid_object_is_an_error_with_its_line(run, tmp_path):
    (tmp_path / "bad.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: x}\nspec: {}\n"
    )
    result = run("top", tmp_path / "bad.yaml")
    assert (result.status, result.out) == (2, "")
    assert "bad.yaml:4: ResourceSlice/x: spec.driver" in result.err
    assert "cannot read" in run("top", tmp_path / "none.yaml").err


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan"])
def test_an_interval_is_positive(run, seconds):
    assert run("top", "--interval", seconds, NODES / "gpu-mixed.yaml").status == 2


def test_the_table_is_repeated(run, monkeypatch):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("dra_sdk.cli.top.sleep", pause)
    result = run("top", "--interval", "2.5", NODES / "gpu-mixed.yaml")
    assert pauses == [2.5] * 3
    assert result.out.count("NODE ") == 3
    assert "--interval cannot be used with it" in run("top", "--interval", "1", "-").err


def test_a_running_cluster_is_read(run):
    published = [
        raw_slice for raw_slice in yaml.safe_load_all((NODES / "gpu-mixed.yaml").read_text()) if "spec" in raw_slice
    ]
    with EmbeddedCluster() as cluster:
        for raw_slice in published:
            cluster.api.create("resourceslices", raw_slice)
        result = run("top", "--kubeconfig", cluster.kubeconfig)
    assert result.status == 0, result.err
    assert [row[1] for row in result.cells] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]


def here(tmp_path: Path) -> tuple[str, ...]:
    regular_machine(sockets=2, cores=2).write(tmp_path / "root")
    return (
        "--here",
        "dra_driver_cpu:CpuDriver",
        "--node-name",
        "n",
        "--host-root",
        tmp_path / "root",
        "--kubelet-dir",
        tmp_path,
    )


def test_this_node_is_read_without_a_cluster(run, tmp_path):
    flags, data = here(tmp_path), tmp_path / "plugins/dra.cpu"
    before = run("top", *flags)
    assert [row[-3] for row in before.cells] == ["free", "free"]
    assert f"there is no directory {data}: which claims have devices of dra.cpu is not known" in before.err
    device = HeldDevice("cpu", "n", "cpudevnuma000", "share", consumed_capacity={"dra.cpu/cpu": Quantity("2")})
    (data / "claims").mkdir(mode=0o700, parents=True)
    state = Checkpoint(HeldClaim("team", "two-cpus", "uid-1", (device,)), "boot")
    (data / "claims/uid-1.json").write_bytes(encode(state))
    unhealthy = {("n", "cpudevnuma001"): {"unhealthy": datetime(2026, 1, 2, tzinfo=UTC)}}
    (data / "unhealthy.json").write_bytes(encode_unhealthy(unhealthy))
    result = run("top", *flags)
    assert [row[-4:] for row in result.cells] == [
        ["ok", "shared by 1", "team/two-cpus", "-"],
        ["unhealthy since 2026-01-02T00:00:00Z", "tainted", "-", "-"],
    ]
    (data / "claims/.forgotten-uid-2-1.json").write_bytes(b"torn")  # what `dra-sdk state` set aside
    assert run("top", *flags) == result
    (data / "claims/uid-1.json").write_bytes(b"torn")
    torn = run("top", *flags)
    assert torn.status == 2
    assert "uid-1.json has no readable header" in torn.err
    assert "`dra-sdk state dra.cpu` shows, repairs or forgets it" in torn.err


@pytest.mark.parametrize("columns", [64, 80, 100])
def test_a_terminal_gets_no_line_that_is_too_long(run, tmp_path, monkeypatch, columns):
    claims = simulated(run, tmp_path, "mig-dynamic", "10-dynamic-mig")
    whole = run("top", "--all", claims).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    result = run("top", "--all", claims)
    assert max(map(len, result.out.splitlines())) <= columns
    assert len(result.out.splitlines()) == len(whole.splitlines())
    assert result.out.split()[:9] == ["NODE", "DEVICE", "TYPE", "WHAT", "MEMORY", "HEALTH", "STATE", "CLAIM", "PODS"]
    assert "…" in result.out
    assert "…" not in whole


def test_a_wide_terminal_gets_whole_cells(run, monkeypatch):
    whole = run("top", NODES / "gpu-mixed.yaml").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    assert run("top", NODES / "gpu-mixed.yaml").out == whole


def test_a_terminal_gets_colors_unless_they_are_unwanted(run, monkeypatch):
    whole = run("top", NODES / "gpu-mixed.yaml").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    colored = run("top", NODES / "gpu-mixed.yaml").out
    assert colored.count("\033[32mfree") == 4
    assert re.sub("\033\\[[0-9]+m", "", colored) == whole
    monkeypatch.setenv("TERM", "dumb")
    assert run("top", NODES / "gpu-mixed.yaml").out == whole


def test_devices_as_json(run, tmp_path):
    claims = simulated(run, tmp_path, "mig-dynamic", "10-dynamic-mig")
    usage = json.loads(run("top", claims, "-o", "json").out)
    held = {device["device"]: device["claims"][0]["pods"] for device in usage if device["claims"]}
    assert held == {"gpu-0-mig-3g40gb-9-4": ["half-1"], "gpu-0-mig-3g40gb-9-0": ["half-2"], "gpu-1": ["whole"]}
    assert len(usage) == 52


def test_a_namespace_and_labels_of_nodes_choose_devices(run, tmp_path):
    claims = simulated(run, tmp_path, "mig-dynamic", "10-dynamic-mig")
    held = [row[-2] for row in run("top", "-f", claims, "-n", "default").cells if row[-2] != "-"]
    assert len(held) == 3
    result = run("top", "-f", claims, "-n", "team")
    assert (result.out, result.status) == ("", 0)
    assert "no devices of claims of namespace team" in result.err
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "dyn-1", "labels": {"zone": "a"}}}
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(node))
    both = f"{claims},{tmp_path / 'node.yaml'}"
    assert run("top", "-f", both, "-l", "zone in (a, b)").cells
    assert not run("top", "-f", both, "-l", "zone!=a").cells
    assert "is not a label selector" in run("top", "-f", both, "-l", "a=b=c").err


def test_columns_that_no_device_fills_are_left_out(run):
    headings = run("top", NODES / "cpu-numa.yaml").out.splitlines()[0].split()
    assert headings == ["NODE", "DEVICE", "NUMA", "CPU", "HEALTH", "STATE", "CLAIM", "PODS"]
    assert "TYPE  WHAT" in run("top", NODES / "gpu-mixed.yaml").out


def test_claims_on_devices_of_another_node_are_told(run, tmp_path):
    printed = yaml.safe_load(simulated(run, tmp_path, "mig-dynamic", "10-dynamic-mig").read_text())
    claims = [obj for obj in printed["items"] if obj["kind"] == "ResourceClaim"]
    (tmp_path / "elsewhere.json").write_text(yaml.safe_dump_all(claims))
    result = run("top", NODES / "gpu-mixed.yaml", tmp_path / "elsewhere.json")
    assert "0 in use" in result.err
    note = "note: 3 devices of claims in no slice, such as gpu.nvidia.com/dyn-1/gpu-0-mig-3g40gb-9-4 of claim default/"
    assert note in result.err
    assert result.err.count("the slices have pools mixed-1") == 1
    assert "note:" not in run("top", NODES / "cpu-numa.yaml", tmp_path / "elsewhere.json").err, (
        "another driver's claims"
    )


def test_without_selected_devices_the_others_are_named(run, tmp_path):
    result = run("top", "--driver", "gpu.amd.com", "--driver", "gpu.nvidia.com", NODES / "cpu-numa.yaml")
    assert (result.status, result.out) == (0, "")
    assert "no devices of driver gpu.amd.com, gpu.nvidia.com; there are devices of dra.cpu" in result.err
    result = run("top", "--node", "elsewhere", NODES / "gpu-mixed.yaml", NODES / "gpu-rails.yaml")
    assert "no devices of node elsewhere; there are those of mixed-1, rail-1" in result.err
    (tmp_path / "none.yaml").write_text("")
    assert "no slices exist; is a driver running?" in run("top", tmp_path / "none.yaml").err
    result = run("top", "--driver", "gpu.amd.com", NODES / "gpu-mixed.yaml")
    assert "no devices of driver gpu.amd.com; there are devices of gpu.nvidia.com" in result.err


def test_only_relevant_settings_are_flags(run):
    said = run("top", "--help").out
    flags = set(re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE)) - {"--driver"}
    assert flags == {
        *("--here", "--node", "--all", "--interval", "--kubeconfig", "--context"),
        *("--config", "--node-name", "--kubelet-dir", "--host-root", "--unhealthy-taint"),
    }
    refused = run("top", "--drain-seconds", "1")
    assert refused.status == 2
    assert "unrecognized arguments: --drain-seconds" in refused.err


def test_sources_cannot_be_combined(run, tmp_path):
    file = NODES / "gpu-mixed.yaml"
    for arguments, said in (
        (("--here", "cpu", file), "--here and files cannot be combined: each is a source of devices"),
        ((file, "--kubeconfig", "x"), "files and --kubeconfig cannot be combined"),
        (("--node-name", "n", file), "--here NAME is needed for --node-name"),
        (("--host-root", tmp_path, "--config", "x"), "--here NAME is needed for --config, --host-root"),
        (("--here", "cpu", "--host-root", "/absent"), "--host-root /absent is not a directory"),
        (("--here", "nobody"), "unknown driver 'nobody'"),
        ((tmp_path / "none.yaml",), "none.yaml: No such file or directory"),
        (("--kubeconfig", tmp_path / "none"), "none cannot be read: No such file or directory"),
    ):
        result = run("top", *arguments)
        assert (result.status, result.out) == (2, ""), arguments
        assert said in result.err


def test_a_driver_that_finds_nothing_is_named(run, tmp_path):
    result = run("top", "--here", "tests.cli.cards:Cards", "--host-root", tmp_path, "--kubelet-dir", tmp_path)
    assert (result.status, result.out) == (0, "")
    assert result.err == "no devices of any driver; tests.cli.cards:Cards finds nothing on this node\n"
