"""Finding the library under a driver root, and loading nvidia-ml-py on it."""

from __future__ import annotations

import importlib.util

import pytest
from dra_driver_gpu.nvml.errors import LibraryNotFoundError
from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS, SONAME, find_library, inside, load


def _write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("directory", LIBRARY_DIRS)
def test_library_is_found_wherever_the_driver_puts_it(tmp_path, directory):
    library = _write(tmp_path / directory / SONAME)
    assert find_library(tmp_path) == str(library)


def test_links_are_followed_inside_the_driver_root(tmp_path):
    library = _write(tmp_path / "root/usr/lib64/libnvidia-ml.so.580.95.05")
    (tmp_path / "root/usr/lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    assert find_library(tmp_path / "root") == str(library)


def test_absolute_links_are_of_the_driver_root_and_not_of_the_host(tmp_path):
    library = _write(tmp_path / "root/opt/nvidia/libnvidia-ml.so.580.95.05")
    (tmp_path / "root/usr/lib64").mkdir(parents=True)
    (tmp_path / "root/usr/lib64/libnvidia-ml.so.1").symlink_to("/opt/nvidia/libnvidia-ml.so.580.95.05")
    assert find_library(tmp_path / "root") == str(library)


def test_linked_directories_are_followed_inside_the_driver_root(tmp_path):
    library = _write(tmp_path / "root/usr/lib64/libnvidia-ml.so.1")
    (tmp_path / "root/lib64").symlink_to("/usr/lib64")
    (tmp_path / "root/more").symlink_to("usr")
    assert inside(tmp_path / "root", tmp_path.joinpath("lib64", SONAME).relative_to(tmp_path)) == library
    assert inside(tmp_path / "root", tmp_path.joinpath("more/lib64", SONAME).relative_to(tmp_path)) == library


def test_a_link_out_of_the_driver_root_stays_inside(tmp_path):
    _write(tmp_path / "secret")
    (tmp_path / "root/usr/lib64").mkdir(parents=True)
    (tmp_path / "root/usr/lib64" / SONAME).symlink_to("../../../secret")
    with pytest.raises(LibraryNotFoundError):
        find_library(tmp_path / "root")


def test_links_in_a_circle_and_directories_are_no_library(tmp_path):
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64" / SONAME).symlink_to(SONAME)
    (tmp_path / "lib64" / SONAME).mkdir(parents=True)
    with pytest.raises(LibraryNotFoundError):
        find_library(tmp_path)


def test_a_driver_root_without_library_is_told_with_what_was_searched(tmp_path):
    with pytest.raises(
        LibraryNotFoundError, match=rf"no {SONAME} under driver root {tmp_path} \(searched usr/lib64, "
    ) as found:
        find_library(tmp_path)
    assert found.value.code == 12


def test_a_file_that_is_no_library_is_told(tmp_path):
    library = _write(tmp_path / SONAME, "not ELF")
    with pytest.raises(LibraryNotFoundError, match=f"{library} cannot be loaded"):
        load(str(library))


def test_without_nvidia_ml_py_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        LibraryNotFoundError, match=r"nvidia-ml-py is not installed; it comes with the extra dra-sdk\[gpu\]"
    ):
        load(str(tmp_path / "anything"))


def test_each_library_has_a_binding_of_its_own(stub_library, tmp_path):
    copy = tmp_path / "copy.so"
    copy.write_bytes(stub_library.read_bytes())
    assert load(str(stub_library)) is load(str(stub_library))
    assert load(str(copy)) is not load(str(stub_library))
