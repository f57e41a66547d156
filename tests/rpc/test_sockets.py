"""The file of a unix socket, and nobody else's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.rpc.sockets import refuse_foreign, remove_own


def test_what_is_not_a_socket_is_left_alone_with_an_error(tmp_path: Path) -> None:
    file, directory, link = tmp_path / "file", tmp_path / "directory", tmp_path / "link"
    file.write_text("precious")
    directory.mkdir()
    link.symlink_to(tmp_path / "nowhere")
    for path in (file, directory, link):
        with pytest.raises(SettingsError, match=f"{path} exists and is not a socket"):
            refuse_foreign(path)
    assert file.read_text() == "precious"
    refuse_foreign(tmp_path / "nothing")


def test_only_our_own_socket_is_removed(socket_dir: Path) -> None:
    path = socket_dir / "s"
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind(str(path))
        refuse_foreign(path)
        inode = path.stat().st_ino
        path.rename(socket_dir / "old")
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
            remove_own(path, inode)
            assert path.is_socket()
            remove_own(path, path.stat().st_ino)
            assert not path.exists()
            remove_own(path, inode)
