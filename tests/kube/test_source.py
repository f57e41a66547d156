from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.source import find_source
from tests.kube.scripted import kubeconfig


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def written(path: Path, server: str = "http://one:1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(kubeconfig(server))
    return path


def test_nothing_at_all_names_what_was_tried(tmp_path):
    with pytest.raises(SettingsError) as caught:
        KubeClient.connect()
    for tried in ("no kubeconfig was given", "$KUBECONFIG", "KUBERNETES_SERVICE_HOST", f"{tmp_path}/home/.kube/config"):
        assert tried in str(caught.value)


def test_the_argument_wins_then_the_environment_then_the_pod_then_home(tmp_path, monkeypatch):
    home = written(tmp_path / "home/.kube/config")
    assert find_source(None).files == (home,)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_source(None).files == ()
    assert str(find_source(None)) == "the pod's service account"
    named = written(tmp_path / "env")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{named}")
    assert find_source(None).files == (named,)
    given = written(tmp_path / "given")
    assert find_source(given).files == (given,)


def test_a_named_file_that_is_missing(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match=rf"kubeconfig {tmp_path}/no cannot be read: No such file"):
        KubeClient.connect(tmp_path / "no")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/nope")
    with pytest.raises(SettingsError, match=rf"\$KUBECONFIG {tmp_path}/nope cannot be read"):
        KubeClient.connect()
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        KubeClient.connect(tmp_path)
