from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.commands import runner

BETA = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: a}
spec: {devices: {requests: [{name: g, deviceClassName: gpu}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {mode: "0644"}}
"""
REQUESTS = [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(BETA)
    return runner(capsys)


def test_objects_of_v1beta1_are_written_as_v1(run):
    result = run("convert", "a.yaml")
    claim, config = yaml.safe_load_all(result.out)
    assert (result.status, result.err) == (0, "1 of 2 objects converted\n")
    assert (claim["apiVersion"], claim["spec"]["devices"]["requests"]) == ("resource.k8s.io/v1", REQUESTS)
    assert config["data"] == {"mode": "0644"}


def test_as_json(run):
    (claim, _) = json.loads(run("convert", "a.yaml", "-o", "json").out)["items"]
    assert claim["spec"]["devices"]["requests"] == REQUESTS


def test_an_alpha_version_is_refused(run, tmp_path):
    (tmp_path / "a.yaml").write_text("apiVersion: resource.k8s.io/v1alpha2\nkind: ResourceClass\nmetadata: {name: a}\n")
    result = run("convert", "a.yaml")
    assert (result.status, result.out) == (2, "")
    assert "a.yaml:1: ResourceClass/a: apiVersion: resource.k8s.io/v1alpha2 cannot be read" in result.err


def test_a_list_of_objects_at_the_top_is_refused(run, tmp_path):
    (tmp_path / "a.yaml").write_text(f"- {BETA.partition('---')[0].strip()}".replace("\n", "\n  "))
    result = run("convert", "a.yaml")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("dra-sdk: a.yaml:1: object: must be an object, is [{'apiVersion'")
    assert result.err == f"dra-sdk: {run('validate', 'a.yaml').out}"


def test_what_was_converted_is_valid(run, tmp_path):
    converted = run("convert", "a.yaml").out
    before = run("validate", "a.yaml")
    assert before.status == 0
    assert "note: a.yaml: 1 object of resource.k8s.io/v1beta1 is read as v1" in before.err
    (tmp_path / "b.yaml").write_text(converted)
    assert (
        run("validate", "b.yaml").err
        == "1 object checked for Kubernetes 1.36, as --server-version was not given; 0 problems; "
        "ignored kinds: ConfigMap\n"
    )
