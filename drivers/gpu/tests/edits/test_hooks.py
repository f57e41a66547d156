"""Hooks of the container toolkit, of whatever version the node has."""

from __future__ import annotations

import pytest

from dra_sdk.testing import claim

HOOK = "/usr/bin/nvidia-cdi-hook"
OLD = ["create-symlinks", "update-ldcache"]
NEW = ["create-symlinks", "enable-cuda-compat", "update-ldcache", "disable-device-node-modification"]
NEWEST = [*NEW, "update-application-profile"]


def calls(rig):
    return [hook["args"][1] for hook in rig.driver.prepare(claim("gpu")).container().hooks["createContainer"]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x7fELF chmod create-symlinks update-ldcache", OLD),
        (b"\x7fELF chmod create-symlinks\0enable-cuda-compatupdate-ldcache", NEW[:3]),
        (b"enable-cuda-compat disable-device-node-modification", NEW),
        (b"enable-cuda-compat disable-device-node-modification update-application-profile", NEWEST),
    ],
)
def test_only_what_the_program_knows_is_asked_of_it(make_gpus, content, expected):
    """A container does not start when a hook says `No help topic`."""
    rig = make_gpus("L4")
    rig.node.path(HOOK).write_bytes(content)
    assert calls(rig) == expected


def test_a_program_that_is_replaced_is_looked_at_again(make_gpus):
    rig = make_gpus("L4", "L4")
    rig.node.path(HOOK).write_bytes(b"old")
    assert calls(rig) == OLD
    rig.node.path(HOOK).write_bytes(" ".join(NEW).encode())
    assert calls(rig) == NEW


def test_behind_a_script_of_the_toolkits_container(make_gpus):
    rig = make_gpus("L4")
    rig.node.remove(HOOK)
    place = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    rig.node.file(place, f"#!/bin/sh\nexec {place}.real\n")
    rig.node.file(f"{place}.real", " ".join(NEW))
    assert calls(rig) == NEW


def test_one_that_cannot_be_read_is_asked_for_what_all_versions_know(make_gpus):
    assert calls(make_gpus("L4", cdi_hook="/opt/hook")) == OLD


def test_a_link_on_a_mounted_host_is_followed_there(make_gpus):
    rig = make_gpus("L4")
    rig.node.path(HOOK).rename(rig.node.path("/opt-hook"))
    rig.node.link(HOOK, "/opt-hook")
    container = rig.driver.prepare(claim("gpu")).container()
    assert container.hooks["createContainer"][0]["path"] == "/opt-hook"
