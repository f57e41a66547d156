"""The machine's files in the cache."""

from __future__ import annotations

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.lab.collected import ROOT
from tests.lab.harness import layers
from tests.lab.harness.layers import Layers, ensure_layers, key, run


@pytest.fixture
def made(monkeypatch):
    """What was made, without making it."""
    done = []
    monkeypatch.setattr(layers, "_make_base", lambda at: done.append("base"))
    monkeypatch.setattr(layers, "_make_python", lambda at, base, wanted: done.append("python"))
    return done


def names(cache):
    return sorted(path.name.partition("-")[0] for path in (cache.root / "lab").iterdir())


def test_they_are_made_once(tmp_path, made):
    cache = Cache(tmp_path)
    first = ensure_layers(cache, ROOT, Progress())
    assert ensure_layers(cache, ROOT, Progress()) == first
    assert made == ["base", "python"]
    assert names(cache) == ["base", "python"]


def test_another_recipe_takes_the_place_of_the_former_unless_that_is_in_use(tmp_path, made, monkeypatch):
    cache = Cache(tmp_path)
    former = ensure_layers(cache, ROOT, Progress())
    monkeypatch.setattr(layers, "PACKAGES", ("other",))
    with former.in_use():
        assert ensure_layers(cache, ROOT, Progress()) != former
        assert names(cache) == ["base", "base", "python", "python"]
    monkeypatch.setattr(layers, "PACKAGES", ("another",))
    ensure_layers(cache, ROOT, Progress())
    assert names(cache) == ["base", "python"]
    with pytest.raises(HarnessError, match="was removed"), former.in_use():
        pass


def test_what_could_not_be_made_whole_is_not_there(tmp_path, made, monkeypatch):
    def fail(at, base, wanted):
        (at / "half").touch()
        raise HarnessError("no network")

    monkeypatch.setattr(layers, "_make_python", fail)
    with pytest.raises(HarnessError, match="no network"):
        ensure_layers(Cache(tmp_path), ROOT, Progress())
    assert names(Cache(tmp_path)) == ["base"]


def test_it_needs_root(tmp_path, monkeypatch):
    monkeypatch.setattr(layers.os, "geteuid", lambda: 1000)
    with pytest.raises(HarnessError, match="needs root"):
        ensure_layers(Cache(tmp_path), ROOT, Progress())


def test_keys_tell_recipes_apart():
    assert key("a", "b") == key("a", "b")
    assert len({key("a", "b"), key("ab"), key("b", "a")}) == 3


def test_a_tool_that_fails_is_quoted():
    with pytest.raises(HarnessError, match="status 3:\nwhy"):
        run(["sh", "-c", "echo why >&2; exit 3"])


def test_layers_are_only_named_by_their_directories(tmp_path):
    with pytest.raises(HarnessError, match="was removed"), Layers(tmp_path / "base", tmp_path / "python").in_use():
        pass
