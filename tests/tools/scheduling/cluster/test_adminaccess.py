from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.adminaccess import LABEL, asks_for_admin_access, assumption, refusal
from tests.tools.scheduling.cluster.objects import claim, obj, request, template


def test_who_asks_for_it():
    assert asks_for_admin_access(claim("a", request(), request("b", adminAccess=True)))
    assert asks_for_admin_access(template("a", request(adminAccess=True)))
    assert not asks_for_admin_access(claim("a"))
    assert not asks_for_admin_access(claim("a", {"name": "r", "firstAvailable": [{"name": "x"}]}))
    assert not asks_for_admin_access(obj("ResourceClaim", "a", {}))


def test_which_namespaces_grant_it():
    assert refusal(obj("Namespace", "a", labels={LABEL: "true"})) == ""
    assert refusal(obj("Namespace", "a", labels={LABEL: "false"})).endswith("; a has none")
    assert refusal(obj("Namespace", "a")).startswith(
        f"admin access is only granted in namespaces with the label {LABEL}"
    )
    assert assumption("a").endswith("; namespace a is not given, and assumed to have it")
