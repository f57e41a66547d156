"""The flags of kubectl and --watch, with the embedded API server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk.cli.main import main
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.cli.commands import Run, runner
from tests.tools.scheduling.cluster.objects import claim, device_class, gpus, pod

JSON = dict[str, Any]


@pytest.fixture
def cluster(socket_dir: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster("node-a", directory=socket_dir) as running:
        create(running, "deviceclasses", device_class())
        yield running


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def create(cluster: EmbeddedCluster, plural: str, obj: JSON, **metadata: Any) -> None:
    kept = {key: value for key, value in obj["metadata"].items() if key != "uid"}
    cluster.api.create(plural, obj | {"metadata": kept | metadata})


def create_user(cluster: EmbeddedCluster, name: str, **metadata: Any) -> None:
    create(cluster, "resourceclaims", claim(name), **{key: metadata[key] for key in metadata if key == "namespace"})
    user = pod(f"pod-{name}", claims=[name])
    user["spec"]["containers"] = [{"name": "main", "image": "x"}]
    create(cluster, "pods", user, **metadata)


def contexts(cluster: EmbeddedCluster, file: Path) -> Path:
    """A kubeconfig whose current context leads nowhere; `there` is the cluster, with the namespace `team`."""
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    there = config["contexts"][0]["context"]
    config["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}})
    config["contexts"] = [
        {"name": "away", "context": {**there, "cluster": "nowhere"}},
        {"name": "there", "context": {**there, "namespace": "team"}},
    ]
    config["current-context"] = "away"
    file.write_text(yaml.safe_dump(config))
    return file


def test_a_context_chooses_cluster_and_namespace(cluster: EmbeddedCluster, run: Run, tmp_path: Path) -> None:
    cluster.create_namespace("team")
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    create_user(cluster, "c", namespace="team")
    flags = ("--kubeconfig", contexts(cluster, tmp_path / "config"), "--context")
    result = run("explain", "--pod", "pod-c", *flags, "there")
    assert (result.status, result.err) == (0, "")
    assert "team/pod-c" in result.out
    unknown = run("explain", *flags, "their")
    assert unknown.status == 2
    assert unknown.err.endswith("there is no such context; contexts are: away, there\n")
    assert "127.0.0.1:1" in run("top", *flags, "away").err


def test_files_go_to_the_namespace_of_the_flag(cluster: EmbeddedCluster, run: Run, tmp_path: Path) -> None:
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim("mine") | {"metadata": {"name": "mine"}}))
    flags = ("--kubeconfig", cluster.kubeconfig, "-f", tmp_path / "claim.yaml")
    assert run("simulate", *flags).cells[0][2] == "mine"
    assert run("simulate", *flags, "-n", "team").cells[0][2] == "team/mine"


def test_a_namespace_and_labels_choose_what_the_answer_is_about(cluster: EmbeddedCluster, run: Run) -> None:
    cluster.create_namespace("team")
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    create_user(cluster, "a", namespace="team", labels={"app": "web"})
    create_user(cluster, "b", labels={"app": "train"})
    source = ("--kubeconfig", cluster.kubeconfig)
    assert run("simulate", *source, "-A").status == 1
    for flags in (("-n", "team"), ("-l", "app=web"), ("-l", "app notin (train)")):
        result = run("simulate", *source, *flags)
        other = run("explain", *source, "-n", "default")
        placed = result.status == 0
        assert [row[0] for row in result.cells] == ["team/pod-a"]
        assert placed or other.status == 0, "one of both has the GPU"
    assert "no pods" in run("simulate", *source, "-l", "app=none").err


@pytest.fixture
def start(cluster: EmbeddedCluster) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command that watches the cluster, as a process."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dra_sdk.cli.main", *arguments, "--kubeconfig", str(cluster.kubeconfig)]
        started.append(subprocess.Popen([*command, "--watch"], stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.timeout(200)
def test_simulate_watches_until_all_is_placed(
    cluster: EmbeddedCluster, start: Callable[..., subprocess.Popen[str]]
) -> None:
    create_user(cluster, "c")
    watching = start("simulate", "--from-cluster")
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("POD")
    assert watching.stdout.readline().startswith("pod-c  -")
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    rest = watching.communicate(timeout=2 * LONG)[0]
    assert watching.returncode == 0
    assert "What changes:\n  pod pod-c: not placed → node-a with gpu gpu.example.com/node-a/gpu-0\n" in rest


@pytest.mark.timeout(200)
def test_explain_watches_one_pod_and_prints_each_answer_once(
    cluster: EmbeddedCluster, start: Callable[..., subprocess.Popen[str]]
) -> None:
    create_user(cluster, "c")
    create_user(cluster, "other")
    watching = start("explain", "-o", "json", "--pod", "pod-c")
    assert watching.stdout is not None
    first = watching.stdout.readline()
    while not first.endswith("\n]\n"):
        first += watching.stdout.readline()
    assert json.loads(first)[0]["satisfiable"] is False
    cluster.create_node("node-c")  # another answer, since there is one node more that does not help
    create(cluster, "resourceslices", gpus("node-a", "gpu-0", "gpu-1"))
    text, at, answers = watching.communicate(timeout=2 * LONG)[0].strip(), 0, []
    assert watching.returncode == 0
    while at < len(text):
        answer, at = json.JSONDecoder().raw_decode(text, at)
        answers.append(answer)
        at += 1
    assert answers[-1][0]["satisfiable"] is True
    assert all(one != other for one, other in pairwise([json.loads(first), *answers]))


def test_watching_ends_after_its_time(cluster: EmbeddedCluster, run: Run) -> None:
    create_user(cluster, "c")
    result = run("explain", "--kubeconfig", cluster.kubeconfig, "--watch", "--timeout", "0.2")
    assert result.status == 1
    assert result.out.count("pod-c") >= 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-f", "a.yaml", "--watch"), "--watch follows a running cluster, so it needs --from-cluster"),
        (("-f", "a.yaml", "--timeout", "3"), "--timeout needs --watch"),
        ((), "there are no objects to read"),
        (("-n", "a", "-A", "-f", "a.yaml"), "not allowed with argument"),
    ],
)
def test_flags_that_need_others(run: Run, flags: tuple[str, ...], said: str) -> None:
    result = run("simulate", *flags)
    assert (result.status, result.out) == (2, "")
    assert said in result.err


def test_as_a_plugin_of_kubectl_the_cluster_is_a_source(
    cluster: EmbeddedCluster, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    create_user(cluster, "c")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    assert main(["simulate"], "kubectl dra") == 0
    assert "pod-c  node-a" in capsys.readouterr().out
    assert main(["simulate", "--no-from-cluster"], "kubectl dra") == 2
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["explain", "--help"], "kubectl dra")
    shown = capsys.readouterr().out
    assert shown.startswith("usage: kubectl dra explain")
    assert "`kubectl dra explain`: why does a claim get no devices" in shown
    assert run("simulate").status == 2, "dra-sdk asks for a source"
