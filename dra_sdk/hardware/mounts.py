"""Mounting file systems on a node, for instance memory that the containers of a claim share.

Mounting is done in the mount namespace of this process. The host and other containers see a mount if the host's root is
mounted into the driver's container with `mountPropagation: Bidirectional`, which needs a privileged container. Paths
are those of the host. Source: mount(8); mount_namespaces(7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dra_sdk.hardware.node_access import Command, NodeAccess

_MOUNT_AND_RUN: Final = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit; shift 2; done; shift; exec "$@"'


def mount(node: NodeAccess, path: str, *, source: str, kind: str = "", options: Sequence[str] = ()) -> None:
    """Mount something at a directory; nothing to do if something is mounted there. Raises CommandError.

    source: what to mount: a device node or directory as this process finds it, or any name for a tmpfs.
    kind: the type of file system, such as `tmpfs`; empty for a bind mount or if `mount` is to find it out.
    options: options, such as `bind`, `ro` or `size=1024`.
    """
    if is_mounted(node, path):
        return
    of_kind = ["-t", kind] if kind else []
    with_options = ["-o", ",".join(options)] if options else []
    node.run(Command(["mount", *of_kind, *with_options, source, str(node.local(path))]))


def unmount(node: NodeAccess, path: str) -> None:
    """Undo `mount`; nothing to do if nothing is mounted at the directory. Raises CommandError if it is in use."""
    if is_mounted(node, path):
        node.run(Command(["umount", str(node.local(path))]))


def is_mounted(node: NodeAccess, path: str) -> bool:
    """Return whether something is mounted at this directory."""
    return node.effects.is_mount(node.local(path))


def with_mounts(command: Command, mounts: Sequence[tuple[str, str]]) -> Command:
    """Return the command in a mount namespace, where it sees the first directory of each pair at the second.

    Both are paths as this process finds them. The command needs `unshare`, `sh` and `mount` in this process's root.
    """
    if not mounts:
        return command
    pairs = [path for pair in mounts for path in pair]
    wrapper = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT_AND_RUN, "sh", *pairs, "--"]
    return replace(command, argv=[*wrapper, *command.argv])
