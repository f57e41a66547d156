from __future__ import annotations

import os
import socket
from pathlib import Path

from dra_sdk.tools.simulator.kubelet.watcher import sockets_in


def bind(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_only_visible_sockets_count(kubelet_dir: Path) -> None:
    for name in ("a.sock", "below/b.sock", ".hidden.sock", ".below/c.sock"):
        bind(kubelet_dir / name)
    (kubelet_dir / "file.sock").touch()
    (kubelet_dir / "gone.sock").symlink_to("nowhere")
    assert {Path(path).name for path in sockets_in(kubelet_dir)} == {"a.sock", "b.sock"}


def test_a_socket_created_anew_is_another_one(kubelet_dir: Path) -> None:
    path = kubelet_dir / "a.sock"
    bind(path)
    before = sockets_in(kubelet_dir)
    path.chmod(0o600)
    assert sockets_in(kubelet_dir) == before
    path.unlink()
    bind(path)
    os.utime(path, ns=(0, 0))
    assert sockets_in(kubelet_dir) != before


def test_no_directory_has_no_sockets(kubelet_dir: Path) -> None:
    assert sockets_in(kubelet_dir / "missing") == {}
