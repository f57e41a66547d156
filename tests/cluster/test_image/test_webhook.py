"""The webhook for configuration as pods of the image: the API server asks it by its Service."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dra_sdk.tools.manifests import Chart
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.driver_image import REPOSITORY
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.pki import Authority
from tests.cluster.harness.waiting import TIMEOUT
from tests.cluster.test_config_policy import COLLECTIONS, made, refusal
from tests.cluster.test_image.release import PYTHON
from tests.tools.config_policies import entry

JSON = dict[str, Any]
NAMESPACE, NAME = "of-webhook", "hooked"
SERVICE = f"{NAME}-webhook"
DEPLOYMENT = f"deployment/{SERVICE}"
RIGHT = entry({"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuConfig", "placement": "spread"}, "dra.cpu")
WRONG = entry(
    {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuConfig", "fullCores": True, "placement": "spread"}, "dra.cpu"
)
"""Each field is right; that both are not is a check in the code of the class."""
SAID = "placement spread"
WHO = """
import json, os, pathlib
token = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
print(json.dumps([os.getuid(), token.exists(), os.access("/", os.W_OK)]))
"""


def values(authority: bytes) -> JSON:
    """Returns the values of a release with the webhook alone: it must answer, or claims are refused."""
    return {
        "namespace": {"create": True},
        "image": {"repository": REPOSITORY, "tag": "one", "pullPolicy": "Never"},
        "deviceClasses": {"create": False},
        "drivers": {"cpu": {"enabled": True, "daemonSet": False}},
        "webhook": {"create": True, "failurePolicy": "Fail", "caBundle": base64.b64encode(authority).decode()},
    }


@pytest.fixture
def webhook(cluster: Cluster, images: None) -> Iterator[None]:
    """The webhook, once the server asks it."""
    authority = Authority(Layout.of(cluster.name).pki)
    authority.issue(SERVICE, SERVICE, hosts=[f"{SERVICE}.{NAMESPACE}.svc"])
    objects = Chart().render(values(authority.certificate("ca").read_bytes()), release=NAME, namespace=NAMESPACE)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    files = (f"--cert={authority.certificate(SERVICE)}", f"--key={authority.key(SERVICE)}")
    cluster.kubectl("create", "secret", "tls", SERVICE, f"--namespace={NAMESPACE}", *files)
    cluster.apply(*(each.text for each in objects))
    rolled_out(cluster)
    cluster.wait_until(lambda: SAID in refusal(cluster, made("ResourceClaim", [WRONG])), "the server asks the webhook")
    yield
    texts = "".join(f"---\n{each.text}\n" for each in objects)
    cluster.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", input=texts)
    cluster.wait_until(lambda: not refusal(cluster, made("ResourceClaim", [WRONG])), "the server asks it no more")


def rolled_out(cluster: Cluster) -> None:
    cluster.kubectl("rollout", "status", DEPLOYMENT, f"--namespace={NAMESPACE}", f"--timeout={TIMEOUT:.0f}s")


@pytest.mark.usefixtures("webhook")
def test_wrong_configuration_is_refused_by_pods_without_rights(cluster: Cluster) -> None:
    for kind in COLLECTIONS:
        said = refusal(cluster, made(kind, [RIGHT, WRONG]))
        assert "denied the request" in said
        assert "config[1].opaque.parameters" in said
        assert refusal(cluster, made(kind, [RIGHT])) == ""
        assert refusal(cluster, made(kind, [entry({"any": "thing"}, "other.example.com")])) == ""
    who = cluster.kubectl("exec", f"--namespace={NAMESPACE}", DEPLOYMENT, "--", PYTHON, "-c", WHO)
    assert json.loads(who) == [65532, False, False]


@pytest.mark.usefixtures("webhook")
def test_no_claim_is_refused_because_the_webhook_is_updated(cluster: Cluster) -> None:
    """Four clients make claims without a pause, which would be refused if no pod answered."""
    said: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            said.append(refusal(cluster, made("ResourceClaim", [RIGHT])))

    before = pods(cluster)
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            cluster.wait_until(lambda: said, "the first answer")
            cluster.kubectl("rollout", "restart", DEPLOYMENT, f"--namespace={NAMESPACE}")
            rolled_out(cluster)
            cluster.wait_until(lambda: not before & pods(cluster), "the former pods are gone")
        finally:
            over.set()
    for each in asking:
        each.result()
    print(f"{len(said)} claims while the webhook was updated, {len(list(filter(None, said)))} refused")
    assert set(said) == {""}


def pods(cluster: Cluster) -> set[str]:
    """The names of the webhook's pods, those that are ending included."""
    return set(cluster.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=name").split())
