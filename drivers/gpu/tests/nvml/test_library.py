"""The NVML of a node: open while it is used, closed while a GPU changes its driver."""

from __future__ import annotations

import threading

import pytest
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.library import NoDriverError, NvmlLibraries, NvmlLibrary
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu

from dra_sdk import RetriableError
from dra_sdk.testing.waiting import wait


@pytest.fixture
def nvml():
    return MemoryNvml([fake_gpu("L4")])


def test_it_is_open_while_it_is_used(nvml):
    library = NvmlLibrary(nvml)
    with library.use(), library.use() as same:
        assert same.device_count() == 1
    assert nvml.faults.calls == ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlShutdown"]


def test_a_failed_shutdown_does_not_fail_the_user(nvml, caplog):
    library = NvmlLibrary(nvml)
    nvml.fail("nvmlShutdown", ReturnCode.UNKNOWN)
    with library.use():
        pass
    assert "NVML cannot be shut down" in caplog.text
    with library.use() as again:
        assert again.device_count() == 1


def test_closing_waits_for_users_and_keeps_new_users_out(nvml):
    library, order = NvmlLibrary(nvml), []
    inside, closed = threading.Event(), threading.Event()

    def user():
        with library.use():
            inside.set()
            wait(lambda: library.close_requested)
            order.append("user")

    def late():
        closed.wait(50)
        with library.use():
            order.append("late")

    threads = [threading.Thread(target=target) for target in (user, late)]
    for thread in threads:
        thread.start()
    inside.wait(50)
    with library.closed():
        order.append("closed")
        closed.set()
        threads[1].join(0.05)
    for thread in threads:
        thread.join()
    assert order == ["user", "closed", "late"]


def test_a_user_that_does_not_leave_is_reported(nvml):
    library = NvmlLibrary(nvml)
    with library.use(), pytest.raises(RetriableError, match="NVML was still in use"), library.closed(0.05):
        pass
    assert not library.close_requested


def test_while_it_is_closed_nobody_waits_longer_than_asked(nvml):
    library = NvmlLibrary(nvml)
    with library.closed():
        for late in (library.use, library.closed):
            with (
                pytest.raises(RetriableError, match=r"closed while a GPU changes|another GPU is still changing"),
                late(0.05),
            ):
                pass


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (ReturnCode.LIBRARY_NOT_FOUND, "no NVIDIA driver is installed here.*set DRA_GPU_DRIVER_ROOT to where it is"),
        (ReturnCode.DRIVER_NOT_LOADED, "the NVIDIA kernel module is not loaded"),
    ],
)
def test_what_the_node_lacks_is_reported(nvml, code, why):
    nvml.fail("nvmlInitWithFlags", code)
    with pytest.raises(NoDriverError, match=why), NvmlLibrary(nvml).use():
        pass


def test_a_node_has_one_library(tmp_path, nvml):
    libraries = NvmlLibraries("/", lambda _root: nvml)
    assert libraries.of(tmp_path) is libraries.of(tmp_path)
    with libraries.of(tmp_path).use() as opened:
        assert opened is nvml


def test_a_file_of_a_node_stands_for_no_gpu(tmp_path):
    (tmp_path / "nvml.yaml").write_text("gpus: [{model: L4}]")
    with pytest.raises(NoDriverError), NvmlLibraries("/").of(tmp_path).use():
        pass


def test_a_node_without_driver(tmp_path):
    with pytest.raises(NoDriverError, match=f"under driver root {tmp_path}"), NvmlLibraries("/").of(tmp_path).use():
        pass
