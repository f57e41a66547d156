from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.names import claim_base, generated_name, generated_uid, key_of, shown


def test_a_generated_name_has_five_more_characters_and_is_always_the_same():
    name = generated_name("web-gpu-", "default", "uid-1")
    assert name == generated_name("web-gpu-", "default", "uid-1")
    assert name != generated_name("web-gpu-", "default", "uid-2")
    base, suffix = name[:8], name[8:]
    assert base == "web-gpu-"
    assert len(suffix) == 5
    assert set(suffix) <= set("bcdfghjklmnpqrstvwxz2456789")


def test_a_generated_name_is_never_longer_than_63_characters():
    assert len(generated_name("x" * 200)) == 63


def test_the_base_of_a_claims_name_is_cut_from_both_names():
    assert claim_base("web", "gpu") == "web-gpu-"
    base = claim_base("p" * 60, "c" * 20)
    assert base == "p" * (60 * 57 // 82) + "-" + "c" * (20 * 57 // 82)
    assert len(base) <= 57


def test_the_default_namespace_goes_without_saying():
    assert shown(("default", "a")) == "a"
    assert shown(("", "a")) == "a"
    assert shown(("team", "a")) == "team/a"


def test_key_and_uid():
    assert key_of({"metadata": {"name": "a", "namespace": "b"}}) == ("b", "a")
    assert key_of({"metadata": {"name": "a"}}) == ("", "a")
    assert generated_uid("Pod", ("a", "b")) != generated_uid("Pod", ("a", "c"))
