"""The module that Kubernetes is built from."""

from __future__ import annotations

from tests.cluster.harness.build import BINARIES, go_mod, link_flags
from tests.cluster.harness.cache import Version

UPSTREAM = """\
// comment
module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

godebug (
\tx=1
)

require golang.org/x/net v0.1.0

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


def test_go_mod_replaces_each_sibling_by_its_release():
    lines = go_mod(Version.parse("1.37.1"), UPSTREAM).splitlines()
    assert lines[:4] == [
        "module kubebinaries",
        "go 1.26.0",
        "godebug default=go1.26",
        "require k8s.io/kubernetes v1.37.1",
    ]
    assert [line for line in lines if line.startswith("replace")] == [
        "replace k8s.io/api => k8s.io/api v0.37.1",
        "replace k8s.io/kubelet => k8s.io/kubelet v0.37.1",
    ]
    assert [line.rsplit("/", 1)[1] for line in lines if line.startswith("tool")] == list(BINARIES)


def test_link_flags_set_the_version_in_both_packages():
    flags = link_flags(Version.parse("1.37.1"))
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"-X {package}.gitVersion=v1.37.1" in flags
        assert f"-X {package}.gitMinor=37" in flags
