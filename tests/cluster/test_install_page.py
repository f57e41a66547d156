"""The commands of docs/install.md on a real cluster, in the order of the page, as a person types them.

What the page leaves to the reader is put in: registry, names, directories of this cluster. No image can be pulled here,
so Helm gets one more file of values, with busybox and this machine's Python in place of an image of the driver.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.deployed import runnable
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.helm import ensure_helm
from tests.cluster.harness.image import BUSYBOX
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.manifests import device_class
from tests.cluster.pods import cpus_of
from tests.template.pages import ROOT, blocks

PAGE: Final = ROOT / "docs/install.md"
RELEASE = NAMESPACE = "dra-sdk"
BY_HAND: Final = "by-hand"
"""The namespace in place of NAMESPACE, which has the accounts of other tests, where the page deletes it."""
STEPS: Final = "## From nothing to a pinned pod, and back\n"
BUILD: Final = "docker build -f deploy/Containerfile --build-arg BASE=python@sha256:… -t REGISTRY/dra-sdk:0.1.0 ."
"""Not run here: `test_image` builds this file by buildah."""
KNOWN: Final = "SLC-006"
"""A `should` that the CPU driver does not keep, for the names that its users know: docs/conformance-results.md."""
WRONG: Final = {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuConfig", "fullCore": True}
CLAIMS: Final = "kubectl get resourceclaims -A"
JSON = dict[str, Any]
Type = Callable[..., str]


def commands(page: Path) -> list[str]:
    """The commands of a page's blocks: lines that begin with a program, without what is said after them."""
    lines = [line for _, text in blocks(page) for line in text.splitlines()]
    typed = [line for line in lines if re.match(r"(docker|helm|kubectl|dra-sdk|rm) ", line)]
    return [re.split(r"  +#", line)[0].strip() for line in typed]


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """The section that goes from nothing to a pinned pod and back, as a page of its own."""
    page = tmp_path / "steps.md"
    page.write_text(PAGE.read_text().partition(STEPS)[2].partition("\n## ")[0])
    return page


@pytest.fixture
def others(tmp_path: Path, steps: Path) -> Path:
    """The page without that section."""
    page = tmp_path / "others.md"
    page.write_text(PAGE.read_text().replace(STEPS + steps.read_text(), ""))
    return page


@pytest.fixture
def type_(cluster: Cluster, tmp_path: Path) -> Iterator[Type]:
    """Types a line in the root of the repository, with Helm, kubectl and dra-sdk on PATH; returns what it prints."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(ensure_helm(Cache.from_env(), Progress()))
    (programs / "kubectl").symlink_to(cluster.kubectl_program)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(cluster.kubeconfig),
        "DRA_SDK_KUBELET_DIR": str(cluster.kubelet_dir),
        "DRA_SDK_CDI_DIR": str(cluster.cdi_dir),
        "DRA_SDK_NRI_SOCKET": str(cluster.nri_socket),
    }

    def run(line: str, statuses: tuple[int, ...] = (0,), folder: Path = ROOT) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in statuses, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    earlier = [f"clusterrole/{RELEASE}-viewer", "deviceclass/dra.cpu"]  # of other tests, with the names of this release
    run(f"kubectl delete --ignore-not-found {' '.join(earlier)}")
    yield run
    run("dra-sdk drivers --policy cpu | kubectl delete --ignore-not-found -f -")
    run("kubectl delete pods,resourceclaims,resourceclaimtemplates --all --wait=true")
    for namespace in (NAMESPACE, BY_HAND):
        run(f"helm uninstall {RELEASE} --namespace {namespace} --ignore-not-found --wait")
        run(f"kubectl delete pods --all --namespace {namespace} --wait=true")
    run("kubectl delete resourceslices --all")  # the kubelet would take 30 s, and the next test may not wait
    for directory in (cluster.kubelet_dir / "plugins_registry").iterdir():
        shutil.rmtree(directory)
    cluster.apply(device_class("dra.cpu", "dra.cpu"))


@pytest.fixture
def values(cluster: Cluster, tmp_path: Path) -> Path:
    """The file of values by which this cluster can run the driver."""
    path = tmp_path / "values.json"
    given = runnable(cluster, "cpu") | {"namespace": {"create": False}, "uninstallGuard": {"create": False}}
    path.write_text(json.dumps(given))
    return path


def test_a_node_goes_from_nothing_to_a_pinned_pod_and_back(
    cluster: Cluster, type_: Type, steps: Path, values: Path, tmp_path: Path
) -> None:
    repository, _, tag = BUSYBOX.rpartition(":")
    here = {
        "localhost/dra-sdk": repository,
        "--set image.tag=0.1.0": f"--set-string image.tag={tag} --values {values}",
        "namespace dra-sdk": f"namespace {BY_HAND}",
        "-n dra-sdk": f"-n {BY_HAND}",
        "/var/lib/kubelet": str(cluster.kubelet_dir),
        "pinned.yaml": str(tmp_path / "pinned.yaml"),
    }
    ((_, manifest),) = [block for block in blocks(steps) if block[0] == "yaml"]
    (tmp_path / "pinned.yaml").write_text(manifest.replace("busybox:1", BUSYBOX))
    said = {}
    for command in commands(steps):
        typed = reduce(lambda line, change: line.replace(*change), here.items(), command)
        said[command] = type_(typed)
        if command.startswith("kubectl exec"):
            assert {int(said[command].split()[1])} == cpus_of(cluster, "pinned"), "one CPU"
        elif command == CLAIMS:
            cluster.wait_until(lambda line=typed: "No resources found" in type_(line), "the claim is deleted, too")
    assert "dra.cpu" in said["kubectl get resourceslices"]
    assert "pinned" in said["dra-sdk top"]
    assert CLAIMS in said
    for directory in ("plugins", "plugins_registry"):
        assert not (cluster.kubelet_dir / directory / "dra.cpu").exists()
    assert (
        type_("kubectl get resourceslices -o name") == type_("kubectl get deviceclass dra.cpu --ignore-not-found") == ""
    )
    assert "NotFound" in type_(f"kubectl get namespace {BY_HAND}", (1,))


def test_every_other_command_of_the_page_does_what_it_says(
    cluster: Cluster, type_: Type, others: Path, values: Path, tmp_path: Path
) -> None:
    repository = BUSYBOX.rpartition(":")[0]
    typed = iter(commands(others))

    def next_line(**replaced: str) -> str:
        """The next command of the page, with what the reader puts in."""
        line = next(typed)
        for old, new in replaced.items():
            assert old in line, line
            line = line.replace(old, new)
        return line

    def rolled_out() -> None:
        type_(f"kubectl -n {NAMESPACE} rollout status daemonset/dra-cpu --timeout={TIMEOUT:.0f}s")

    assert next_line() == BUILD
    install = next_line(**{"REGISTRY/dra-sdk": repository})
    type_(f"{install} --values {values} --wait --timeout={TIMEOUT:.0f}s")
    rolled_out()

    objects = type_(next_line(**{"REGISTRY/dra-sdk": repository}))
    kinds = set(re.findall(r"^kind: (\w+)$", objects, re.MULTILINE))
    assert {"Namespace", "ServiceAccount", "ClusterRole", "DaemonSet", "DeviceClass"} <= kinds

    upgrade = next_line(**{"…": f"{RELEASE} deploy/chart --namespace {NAMESPACE} --reuse-values"})
    upgrade = upgrade.replace("/var/run/cdi-drivers/cpu", own := str(cluster.cdi_dir.parent / "cdi-drivers/cpu"))
    type_(f"{upgrade} --wait --timeout={TIMEOUT:.0f}s")
    rolled_out()
    pod = json.loads(type_(f"kubectl -n {NAMESPACE} get daemonset dra-cpu -o json"))["spec"]["template"]["spec"]
    assert own in {each.get("hostPath", {}).get("path") for each in pod["volumes"]}

    type_(next_line(NODE=cluster.node_name), folder=tmp_path)
    info = user_of(type_, (tmp_path / "token").read_text())
    assert info["username"] == f"system:serviceaccount:{NAMESPACE}:dra-cpu"
    assert info["extra"]["authentication.kubernetes.io/node-name"] == [cluster.node_name]

    assert "dra.cpu" in type_(next_line())
    pods = next_line()
    cluster.wait_until(lambda: re.search(r"dra-cpu-\w+ +1/1 +Running", type_(pods)), "the driver's pod to be ready")
    assert "cpudevnuma000" in type_(next_line())
    registry = {"/var/lib/kubelet": str(cluster.kubelet_dir), "DRIVER": "dra.cpu", "…": str(cluster.kubeconfig)}
    said = type_(f"{next_line(**registry)} --node-name {cluster.node_name} --cdi-dir {own}")
    assert "the driver conforms" in said
    assert set(re.findall(r"^  (\S+) +(?:failed|FAILED) ", said, re.MULTILINE)) <= {KNOWN}, said
    type_(next_line(), (0, 1))  # this machine may lack what other drivers need

    in_pod = next_line(**{"dra-sdk doctor": f"{sys.executable} -m dra_sdk.cli.main doctor"})
    assert "0 missing" in type_(in_pod)

    type_(f"{next_line()} | kubectl apply -f -")
    cluster.wait_until(lambda: "fullCore" in refused(type_), "the policy to refuse a field that is misspelt")

    assert "no claim has devices of dra.cpu" in type_(next_line(DRIVER="dra.cpu"))
    assert list(typed) == []


def user_of(type_: Type, token: str) -> JSON:
    """What the API server knows of whoever has this token."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    found: JSON = json.loads(type_(f"echo '{json.dumps(review)}' | kubectl create -o json -f -"))["status"]["user"]
    return found


def refused(type_: Type) -> str:
    """What the API server says of a claim with wrong configuration; empty if it takes it."""
    entry = {"opaque": {"driver": "dra.cpu", "parameters": WRONG}}
    spec = {"devices": {"requests": [{"name": "cpu", "exactly": {"deviceClassName": "dra.cpu"}}], "config": [entry]}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "wrong"}, "spec": spec}
    said = type_(f"echo '{json.dumps(claim)}' | kubectl create --dry-run=server -f -", (0, 1))
    return "" if "created" in said else said
