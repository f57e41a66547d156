"""A kubelet that gives CPUs away itself is refused, wherever its policy was set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dra_driver_cpu.kubelet_policy import StaticPolicyError, refuse_static_policy

from dra_sdk.hardware import Host

DIRECTORY = "/var/lib/kubelet"
ROOT = "Uid:\t0\t0\t0\t0\n"
STATE = f"{DIRECTORY}/cpu_manager_state"
IS_STATIC = "cpuManagerPolicy: static\n"
IS_NONE = "cpuManagerPolicy: none\n"


def write(root: Path, path: str, content: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def process(root: Path, *words: str, pid: int = 812, status: str = f"{ROOT}NSpid:\t812\n") -> None:
    write(root, f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in words))
    write(root, f"/proc/{pid}/status", status)


def refusal(root: Path, directory: str = DIRECTORY) -> str:
    with pytest.raises(StaticPolicyError) as error:
        refuse_static_policy(Host(root), directory)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cpu_manager_state", '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'),
        ("cpu_manager_state", '{"policyName":"","data":"{\\"policyName\\":\\"static\\"}","dataChecksum":1}'),
        ("config.yaml", "kind: KubeletConfiguration\ncpuManagerPolicy: static\n"),
        ("config.yaml", 'kind: KubeletConfiguration\n"cpuManagerPolicy" : "static"\n'),
        ("config.json", '{"kind":"KubeletConfiguration","cpuManagerPolicy":"static"}'),
    ],
)
def test_a_kubelet_with_the_static_policy_is_refused(tmp_path: Path, name: str, content: str) -> None:
    write(tmp_path, f"{DIRECTORY}/{name}", content)
    assert refusal(tmp_path) == (
        f"the kubelet has cpuManagerPolicy static (/var/lib/kubelet/{name}): it gives exclusive CPUs to containers by "
        "itself, the same ones as this driver; set the policy to none, remove /var/lib/kubelet/cpu_manager_state and "
        "restart the kubelet"
    )


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"cpu_manager_state": '{"policyName":"none","defaultCpuSet":"","checksum":1}'},
        {"cpu_manager_state": '{"policyName":"none"}', "config.yaml": IS_STATIC},
        {"cpu_manager_state": "{", "config.yaml": f"# {IS_STATIC}{IS_NONE}"},
        {"cpu_manager_state": "[]"},
        {"cpu_manager_state": '{"data": 1}'},
    ],
    ids=["no files", "none", "the state counts", "a comment", "no object", "no text"],
)
def test_other_policies_are_fine(tmp_path: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    refuse_static_policy(Host(tmp_path), "/")


@pytest.mark.parametrize(
    "flags",
    [
        ["--cpu-manager-policy=static"],
        ["--v=2", "--cpu-manager-policy", "static", "--node-ip=10.0.0.1"],
        ["--cpu_manager_policy=static"],
        ["--cpu-manager-policy=none", "--cpu-manager-policy=static"],
        ["--root-dir=/var/lib/kubelet/", "--cpu-manager-policy=static"],
    ],
    ids=["one word", "two words", "underscores", "the last one counts", "its directory is named"],
)
def test_a_policy_that_is_set_by_a_flag_is_refused(tmp_path: Path, flags: list[str]) -> None:
    write(tmp_path, f"{DIRECTORY}/config.yaml", IS_NONE)
    process(tmp_path, "/usr/bin/kubelet", *flags)
    assert "static (--cpu-manager-policy of process 812): it gives" in refusal(tmp_path)


def test_a_flag_counts_before_files(tmp_path: Path) -> None:
    write(tmp_path, f"{DIRECTORY}/config.yaml", IS_STATIC)
    process(tmp_path, "kubelet", "--cpu-manager-policy=none")
    refuse_static_policy(Host(tmp_path), DIRECTORY)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["kubelet", "--cpu-manager-policy=static"], f"{ROOT}NSpid:\t812\t7\n"),
        (["kubelet", "--cpu-manager-policy=static"], "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t812\n"),
        (["kubelet", "--cpu-manager-policy=static", "--root-dir=/var/lib/other"], ROOT),
        (["kubelet-wrapper", "--cpu-manager-policy=static"], ROOT),
        (["kubelet", "--cpu-manager-policy"], ROOT),
        ([], ROOT),
    ],
    ids=["in a container", "of a user", "of another node", "another program", "without a value", "of the kernel"],
)
def test_a_process_that_is_not_this_kubelet_says_nothing(tmp_path: Path, words: list[str], status: str) -> None:
    process(tmp_path, *words, status=status)
    refuse_static_policy(Host(tmp_path), DIRECTORY)


def test_a_process_that_shows_nothing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    process(tmp_path, "kubelet", "--cpu-manager-policy=static")
    assert "of process 812" in refusal(tmp_path)


def test_the_configuration_that_the_flags_name_is_read(tmp_path: Path) -> None:
    write(tmp_path, f"{DIRECTORY}/config.yaml", IS_NONE)
    write(tmp_path, "/etc/kubernetes/kubelet.conf", IS_STATIC)
    process(tmp_path, "kubelet", "--config=/etc/kubernetes/kubelet.conf")
    assert "static (/etc/kubernetes/kubelet.conf): it gives" in refusal(tmp_path)


def test_the_last_drop_in_file_counts_before_the_configuration(tmp_path: Path) -> None:
    process(tmp_path, "kubelet", "--config=/etc/k.yaml", "--config-dir=/etc/k.d")
    write(tmp_path, "/etc/k.yaml", IS_NONE)
    write(tmp_path, "/etc/k.d/10-cpus.conf", IS_STATIC)
    write(tmp_path, "/etc/k.d/20-other.conf", "maxPods: 20\n")
    write(tmp_path, "/etc/k.d/30-ignored.yaml", IS_NONE)
    assert "static (/etc/k.d/10-cpus.conf): it gives" in refusal(tmp_path)
    write(tmp_path, "/etc/k.d/site/10.conf", IS_NONE)
    refuse_static_policy(Host(tmp_path), DIRECTORY)


def test_the_state_counts_before_the_configuration_that_a_flag_names(tmp_path: Path) -> None:
    process(tmp_path, "kubelet", "--config=/etc/k.yaml", f"--root-dir={DIRECTORY}")
    write(tmp_path, "/etc/k.yaml", IS_STATIC)
    write(tmp_path, STATE, '{"policyName":"none"}')
    refuse_static_policy(Host(tmp_path), DIRECTORY)


def test_a_real_process_named_kubelet_is_seen(tmp_path: Path) -> None:
    """The kernel's own files: /proc of this machine, and a process that only has the kubelet's name and flags."""
    (tmp_path / "proc").symlink_to("/proc")
    words = ["kubelet", "-c", "print(flush=True); input()", f"--root-dir={tmp_path}", "--cpu-manager-policy=static"]
    with subprocess.Popen(
        words, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as kubelet:
        assert kubelet.stdout is not None
        kubelet.stdout.readline()  # it runs, so its words can be read
        if os.geteuid() == 0:
            assert f"--cpu-manager-policy of process {kubelet.pid}" in refusal(tmp_path, str(tmp_path))
        else:  # a user cannot pass for the kubelet
            refuse_static_policy(Host(tmp_path), str(tmp_path))
        kubelet.communicate("\n")
