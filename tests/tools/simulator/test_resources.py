from __future__ import annotations

import pytest

from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.resources import CATALOG
from dra_sdk.tools.simulator.server import ApiServer
from tests.tools.simulator.conftest import SLICES, Http


class TestDiscovery:
    @pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
    def test_health(self, http: Http, path: str) -> None:
        assert http("GET", path) == (200, "ok")

    def test_version(self, http: Http) -> None:
        code, version = http("GET", "/version")
        assert (code, version["major"], version["minor"]) == (200, "1", "36")

    def test_groups_and_resources(self, http: Http) -> None:
        assert http("GET", "/api")[1]["versions"] == ["v1"]
        (group,) = http("GET", "/apis")[1]["groups"]
        assert (group["name"], group["preferredVersion"]["groupVersion"]) == ("resource.k8s.io", "resource.k8s.io/v1")
        assert http("GET", "/apis/resource.k8s.io")[1] == group
        resources = http("GET", "/apis/resource.k8s.io/v1")[1]
        by_name = {entry["name"]: entry for entry in resources["resources"]}
        assert set(by_name) == {
            "deviceclasses",
            "devicetaintrules",
            "devicetaintrules/status",
            "resourceclaims",
            "resourceclaims/status",
            "resourceclaimtemplates",
            "resourceslices",
        }
        assert (by_name["resourceclaims"]["namespaced"], by_name["resourceslices"]["namespaced"]) == (True, False)
        assert http("GET", "/apis/none.example.com")[0] == http("GET", "/apis/none.example.com/v1")[0] == 404

    def test_a_server_without_the_api_group(self) -> None:
        plurals = [kind.plural for kind in CATALOG if kind.group == "resource.k8s.io"]
        with ApiServer(ObjectStore(CATALOG.without(*plurals))) as server:
            http = Http(server)
            assert http("GET", SLICES)[0] == 404
            assert http("GET", "/apis")[1]["groups"] == []
