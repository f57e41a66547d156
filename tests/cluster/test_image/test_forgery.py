"""Code in the pod of one driver acts as another driver: it can forge neither its slices nor its CDI specs."""

from __future__ import annotations

import json

from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.test_image.release import CLASSES, Release, cdi_dir
from tests.cluster.test_image.seen import variables

ATTACK = """
import json, pathlib, ssl, sys, urllib.error, urllib.request
node, kubelet, others_cdi = sys.argv[1:]
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
import os
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
slices, dry = "/apis/resource.k8s.io/v1/resourceslices", "?dryRun=All"
def ask(method, path, content=None, kind="application/json"):
    headers = {"Authorization": "Bearer " + (account / "token").read_text(), "Content-Type": kind}
    body = None if content is None else json.dumps(content).encode()
    asked = urllib.request.Request(server + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(asked, context=trust) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
def slice(name, driver, node, pool=""):
    pool = {"name": pool or node + "/forged", "generation": 999, "resourceSliceCount": 1}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "forged"}]}}
status, listed = ask("GET", slices)
def first(driver):
    return next(each for each in listed["items"] if each["spec"]["driver"] == driver)
ours, theirs = first("dra.cpu"), first("dra.memory")
named = slices + "/" + theirs["metadata"]["name"]
theirs["spec"]["pool"]["generation"] += 1
said = { # its own ones only dry: the driver removes a slice that it has not made, and makes its own again
    "own": ask("POST", slices + dry, slice("own", "dra.cpu", node)),
    "own, changed": ask("PUT", slices + "/" + ours["metadata"]["name"] + dry, ours),
    "own, deleted": ask("DELETE", slices + "/" + ours["metadata"]["name"] + dry),
    "of another driver": ask("POST", slices, slice("forged", "dra.memory", node)),
    "of another driver, changed": ask("PUT", named, theirs),
    "of another driver, deleted": ask("DELETE", named),
    "of another node": ask("POST", slices, slice("forged", "dra.cpu", "elsewhere")),
    "in the pool of another node": ask("POST", slices, slice("forged", "dra.cpu", node, "elsewhere")),
    "of no node": ask("POST", slices, {**slice("forged", "dra.cpu", node), "spec": {
        "driver": "dra.cpu", "allNodes": True, "pool": {"name": "f", "generation": 1, "resourceSliceCount": 1}}}),
    "status": ask("PATCH", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/held/status",
                  {"status": {"devices": []}}, "application/merge-patch+json"),
    "secrets": ask("GET", "/api/v1/secrets"),
}
found = {name: [code, answer.get("message", "")] for name, (code, answer) in said.items()}
def attempt(path):
    try:
        pathlib.Path(path, "forged.json").write_text("{}")
    except OSError as error:
        return error.strerror
    return "written"
found["files"] = {path: attempt(path) for path in (
    others_cdi, f"{kubelet}/plugins/dra.memory", f"{kubelet}/plugins_registry/dra.memory",
    f"{kubelet}/plugins_registry", f"{kubelet}/plugins", "/var/run/cdi", "/etc", "/opt/dra-sdk")}
print(json.dumps(found))
"""
FORGE = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).write_text(sys.argv[2]))"


def test_one_drivers_pod_can_forge_neither_slices_nor_specs_of_another(cluster: Cluster, release: Release) -> None:
    """Code in the pod of the CPU driver, with its account and its mounts, acts as the driver for memory."""
    held = claim("held", [request("memory", CLASSES["memory"], capacity={"requests": {"size": "64Mi"}})])
    cluster.apply(held, pod_with("first", held))
    cluster.wait_pod("first")
    others = cdi_dir(cluster, "memory")
    found = release.run_inside("cpu", ATTACK, cluster.node_name, str(cluster.kubelet_dir), str(others))
    files = found.pop("files")
    assert "written" not in files.values(), files
    codes = {name: code for name, (code, _) in found.items()}
    assert [codes.pop(each) for each in ("own", "own, changed", "own, deleted")] == [201, 200, 200], found
    assert set(codes.values()) <= {403, 422}, found
    for name in ("of another driver", "of another driver, changed", "of another driver, deleted"):
        assert "driver dra.cpu may not touch ResourceSlices of driver 'dra.memory'" in found[name][1]
    assert "may not touch ResourceSlices of pool 'elsewhere'" in found["in the pool of another node"][1]
    for name, node in (("of another node", "elsewhere"), ("of no node", "")):
        assert (
            f"the driver on node '{cluster.node_name}' may not touch ResourceSlices of node '{node}'" in found[name][1]
        )

    # In its own directory it can write what it likes. What the other driver says of its devices goes before that.
    uid = cluster.api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/held")["metadata"]["uid"]
    (real,) = [each for each in others.glob("*.json") if uid in each.read_text()]
    forged = json.loads(real.read_text())
    for each in forged["devices"]:
        each["containerEdits"] = {"env": ["FORGED=yes"]}
    own = cdi_dir(cluster, "cpu") / "forged.json"
    release.run_inside("cpu", FORGE, str(own), json.dumps(forged))
    assert own.exists()
    cluster.apply(pod_with("second", held))
    cluster.wait_pod("second")
    assert "FORGED" not in variables(cluster, "second")
    assert [each for each in variables(cluster, "second") if each.startswith("DRA_MEMS_")]
    own.unlink()
