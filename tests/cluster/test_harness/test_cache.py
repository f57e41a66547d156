"""Versions, and the folder for binaries."""

from __future__ import annotations

import io

import pytest

from tests.cluster.harness import HarnessError
from tests.cluster.harness.build import BINARIES, missing
from tests.cluster.harness.cache import Cache, Version, try_lock
from tests.cluster.harness.progress import Progress


@pytest.mark.parametrize(
    ("text", "version", "staging"),
    [
        ("1.36.3", "1.36.3", "v0.36.3"),
        ("v1.37.1", "1.37.1", "v0.37.1"),
        (" 1.38.0-rc.1\n", "1.38.0-rc.1", "v0.38.0-rc.1"),
    ],
)
def test_version_is_read_with_or_without_v(text, version, staging):
    parsed = Version.parse(text)
    assert (str(parsed), parsed.staging) == (version, staging)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("1.36", "expected 1"), ("latest", "expected 1"), ("1.33.9", "since 1.34"), ("2.0.0", "expected 1")],
)
def test_an_impossible_version_is_refused(text, reason):
    with pytest.raises(HarnessError, match=reason):
        Version.parse(text)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("DRA_SDK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.from_env().root == tmp_path / "dra-sdk"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache.from_env().root == tmp_path / ".cache" / "dra-sdk"
    monkeypatch.setenv("DRA_SDK_CACHE", str(tmp_path / "own"))
    assert Cache.from_env().kube(Version.parse("1.36.3")) == tmp_path / "own" / "kube" / "1.36.3"


def test_cache_lock_keeps_a_second_builder_out_until_released(tmp_path):
    cache = Cache(tmp_path / "cache")
    with cache.lock(Progress(io.StringIO())), (cache.root / "lock").open("a+") as second:
        assert not try_lock(second)
    with (cache.root / "lock").open("a+") as second:
        assert try_lock(second)


def test_a_binary_counts_only_when_it_can_be_executed(tmp_path):
    for name in BINARIES:
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "kubelet").chmod(0o644)
    (tmp_path / ".kubectl.partial").touch(mode=0o755)
    (tmp_path / "kubectl").unlink()
    assert missing(tmp_path) == ["kubelet", "kubectl"]
