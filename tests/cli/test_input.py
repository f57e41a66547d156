"""`--from-cluster`, with the embedded API server."""

from __future__ import annotations

import pytest

from dra_sdk.cli.input import file_names, read_file
from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.cli.commands import runner
from tests.tools.scheduling.cluster.objects import claim, device_class, gpus, pod


@pytest.fixture
def cluster(socket_dir):
    with EmbeddedCluster("node-a", directory=socket_dir) as running:
        yield running


def create(cluster, plural, obj):
    metadata = {key: value for key, value in obj["metadata"].items() if key != "uid"}
    cluster.api.create(plural, obj | {"metadata": metadata})


def test_the_objects_of_a_running_cluster_are_read(cluster, capsys):
    create(cluster, "deviceclasses", device_class())
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    create(cluster, "resourceclaims", claim("c"))
    user = pod("p", claims=["c"])
    user["spec"]["containers"] = [{"name": "main", "image": "x"}]
    create(cluster, "pods", user)
    result = runner(capsys)("simulate", "--from-cluster", "--kubeconfig", cluster.kubeconfig)
    assert result.status == 0, result.err
    assert result.cells == [["p", "node-a", "c", "gpu", "gpu.example.com/node-a/gpu-0"]]
    stored = cluster.api.get("resourceclaims", "c", "default")
    assert "allocation" not in stored.get("status", {})


def test_files_are_added_to_the_running_cluster(cluster, capsys, tmp_path):
    create(cluster, "deviceclasses", device_class())
    create(cluster, "resourceslices", gpus("node-a", "gpu-0"))
    (tmp_path / "new.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: new}\n"
        "spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]}}\n"
    )
    flags = ("--from-cluster", "--kubeconfig", cluster.kubeconfig, "--server-version", "1.36")
    result = runner(capsys)("simulate", tmp_path / "new.yaml", *flags)
    assert result.status == 1
    assert "Would a new node help? No" in result.out


def test_a_cluster_that_does_not_answer_is_an_error(cluster, capsys):
    cluster.server.stop()
    result = runner(capsys)("simulate", "--from-cluster", "--kubeconfig", cluster.kubeconfig)
    assert result.status == 2
    assert result.err.startswith("dra-sdk: ")
    assert "Traceback" not in result.err


def test_a_directory_is_its_files(tmp_path):
    for name in ("b.yaml", "a.json", "notes.txt"):
        (tmp_path / name).touch()
    assert list(file_names([str(tmp_path), "-"])) == [str(tmp_path / "a.json"), str(tmp_path / "b.yaml"), "-"]
    (tmp_path / "empty").mkdir()
    assert list(file_names([str(tmp_path / "empty")])) == [str(tmp_path / "empty")]
    with pytest.raises(SettingsError, match="it is a directory without files that end in"):
        read_file(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("file", "tool", "arguments"),
    [
        ("Chart.yaml", "helm", "template"),
        ("kustomization.yaml", "kubectl", "kustomize"),
        ("Kustomization", "kustomize", "build"),
    ],
)
def test_a_chart_and_a_kustomization_are_rendered(tmp_path, monkeypatch, file, tool, arguments):
    folder, programs = tmp_path / "app", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / file).touch()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(SettingsError, match=r"app is a .* install it, or give the output of"):
        read_file(str(folder))
    program = programs / tool
    program.write_text('#!/bin/sh\necho "{kind: $1, name: $2}"\n')
    program.chmod(0o755)
    assert list(file_names([str(folder)])) == [str(folder)]
    assert [document.value for document in read_file(str(folder)).documents] == [
        {"kind": arguments, "name": str(folder)}
    ]
    program.write_text("#!/bin/sh\necho no values >&2\nexit 1\n")
    with pytest.raises(SettingsError, match="failed: no values"):
        read_file(str(folder))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("kind: {{ .Values.kind }}\n", "; it looks like a template; give the directory of its Helm chart"),
        ("labels: {a: ${B}}\n", "; it looks like a template; give it with the values of its variables"),
        ("kind: a: b\n", ""),
    ],
)
def test_a_template_has_a_hint(tmp_path, text, hint):
    (tmp_path / "a.yaml.tpl").write_text(text)
    with pytest.raises(InvalidObjectError) as caught:
        read_file(str(tmp_path / "a.yaml.tpl"))
    assert hint in str(caught.value)
    assert ("template; " in str(caught.value)) is bool(hint)
