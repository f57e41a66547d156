"""The kubelet's `cpuManagerPolicy`, wherever it was set. While it is `static`, the kubelet gives CPUs away itself.

The kubelet takes it from its flags, then from the drop-in files of `--config-dir`, the last one first, then from its
configuration. What it runs with is in its state file. A process counts as the kubelet if its program has that name and
its `--root-dir` is the node's, and if it runs as root and in no PID namespace below that of the host, so that no
container can pass for it.

Sources: kubelet `--cpu-manager-policy`, `--config`, `--config-dir` (KEP-3983: files that end with `.conf`, in the order
of their paths) and `--root-dir`; proc_pid_cmdline(5), `NSpid` and `Uid` in proc_pid_status(5).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dra_sdk import HardwareError, PermanentError
from dra_sdk.hardware import Host, is_regular_file, numbered_paths, read_if_exists, read_large_text
from dra_sdk.hardware.host_paths import files_below, follow

_POLICY: Final = re.compile(r"""(?:^|[{,])\s*["']?cpuManagerPolicy["']?\s*:\s*["']?(\w+)""", re.MULTILINE)
_CONFIGS: Final = ("config.yaml", "config.json", "kubelet-config.yaml", "config")
_DROP_IN: Final = ".conf"
_STATE: Final = "cpu_manager_state"
_FLAG: Final = "cpu-manager-policy"
_ROOT_DIR: Final = "/var/lib/kubelet"  # without the flag


class StaticPolicyError(PermanentError):
    """The kubelet gives exclusive CPUs to containers itself, so two parties would give the same CPUs away."""


def refuse_static_policy(host: Host, kubelet_dir: str) -> None:
    """StaticPolicyError if the kubelet with this directory has the `cpuManagerPolicy` `static`.

    The first place that names a policy counts.
    """
    directory = kubelet_dir.rstrip("/")
    for where, policy in _policies(host, directory):
        if policy == "static":
            raise StaticPolicyError(
                f"the kubelet has cpuManagerPolicy static ({where}): it gives exclusive CPUs to containers by itself, "
                f"the same ones as this driver; set the policy to none, remove {directory}/{_STATE} "
                f"and restart the kubelet"
            )
        if policy is not None:
            return


def _policies(host: Host, directory: str) -> Iterator[tuple[str, str | None]]:
    """Yield each place that may name the kubelet's policy, and the policy; the most binding place first."""
    pid, flags = _running_kubelet(host, directory)
    if _FLAG in flags:
        yield f"--{_FLAG} of process {pid}", flags[_FLAG]
    state = f"{directory}/{_STATE}"
    yield state, _policy_of_state(_local(host, state))
    for path in _configs(host, directory, flags):
        yield path, _policy_of_config(_local(host, path))


def _configs(host: Host, directory: str, flags: Mapping[str, str]) -> Iterator[str]:
    """Yield the kubelet's configuration files, the most binding first: as its flags name them, else the usual ones."""
    if drop_ins := flags.get("config-dir"):
        root = _local(host, drop_ins)
        drop_in_files = [path for path in files_below(root) if path.name.endswith(_DROP_IN) and is_regular_file(path)]
        yield from (f"{drop_ins.rstrip('/')}/{path.relative_to(root)}" for path in reversed(drop_in_files))
    if config := flags.get("config"):
        yield config
    else:
        yield from (f"{directory}/{name}" for name in _CONFIGS)


def _local(host: Host, path: str) -> Path:
    return Path(path) if host.root == Path("/") else follow(host.root, path)


# -- the process


def _running_kubelet(host: Host, directory: str) -> tuple[int, dict[str, str]]:
    """Return the PID and the flags of the kubelet; 0 and no flags if no such process is seen, as in most containers."""
    for pid, process in numbered_paths(host.proc, "").items():
        try:
            program, *words = read_large_text(process / "cmdline").split("\0")
            if Path(program).name == "kubelet" and _is_of_host(read_large_text(process / "status")):
                flags = _flags(words)
                if flags.get("root-dir", _ROOT_DIR).rstrip("/") == directory:
                    return pid, flags
        except HardwareError:
            continue  # the process has ended, or does not show itself
    return 0, {}


def _is_of_host(status: str) -> bool:
    values = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
    return len(values.get("NSpid", ["1"])) == 1 and values.get("Uid", ["0"])[0] == "0"


def _flags(words: list[str]) -> dict[str, str]:
    """Return the flags with a value, by name. The kubelet takes `--name=value` and `--name value`, and `_` for `-`."""
    flags: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            name, given, value = word.removeprefix("--").partition("=")
            flags[name.replace("_", "-")] = value if given else following
    return flags


# -- files


def _policy_of_state(path: Path) -> str | None:
    """Return the policy in a CPUManagerCheckpoint; None without one. From 1.37 on it is in the text `data` as well."""
    try:
        checkpoint = json.loads(read_if_exists(read_large_text, path) or "{}")
        inner = json.loads(checkpoint.get("data") or "{}")
    except (AttributeError, TypeError, ValueError):  # not a checkpoint
        return None
    named = [document.get("policyName") for document in (inner, checkpoint) if isinstance(document, dict)]
    return next((policy for policy in named if policy and isinstance(policy, str)), None)


def _policy_of_config(path: Path) -> str | None:
    match = _POLICY.search(read_if_exists(read_large_text, path) or "") if is_regular_file(path) else None
    return match[1] if match else None
