"""The stub library: building it, and serving its calls."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from threading import Thread

import pytest
from dra_driver_gpu.nvml import errors
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.testing import nvml_stub
from dra_driver_gpu.testing.nvml_stub import Answer, GoldenAnswers, StubServer, build_stub

from dra_sdk import SettingsError


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def golden(monkeypatch):
    answers = GoldenAnswers({"nvmlInitWithFlags": Answer(), "nvmlDeviceGetCount_v2": Answer((2,))})
    with StubServer(answers) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield answers


@pytest.fixture
def nvml(library, golden):
    nvml = RealNvml(library=library)
    nvml.init()
    return nvml


def test_a_missing_compiler_is_reported(tmp_path):
    with pytest.raises(SettingsError, match="needs the C compiler no-such-cc, which is not on PATH"):
        build_stub(tmp_path, compiler="no-such-cc")


def test_errors_of_the_compiler_are_reported(tmp_path, monkeypatch):
    (tmp_path / "broken.c").write_text("int x = ;")
    monkeypatch.setattr(nvml_stub, "SOURCES", tmp_path)
    with pytest.raises(SettingsError, match=r"does not compile: .*broken\.c:1"):
        build_stub(tmp_path)


def test_a_call_is_recorded_and_answered_from_the_table(nvml, golden):
    assert nvml.device_count() == 2
    golden.answers["nvmlDeviceGetCount_v2"] = Answer((3,))
    assert nvml.device_count() == 3
    assert golden.calls == [("nvmlInitWithFlags", 1), *[("nvmlDeviceGetCount_v2",)] * 2]


def test_a_function_without_an_answer_fails(nvml):
    with pytest.raises(errors.NvmlError, match="nvmlSystemGetDriverVersion: unknown error"):
        nvml.driver_version()


def test_threads_call_at_the_same_time(nvml, golden):
    counts = []
    threads = [Thread(target=lambda: counts.append(nvml.device_count())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [2] * 8


def test_a_caller_that_is_killed_ends_nobody_else(nvml, capfd):
    path = os.environ[nvml_stub.SOCKET_VARIABLE]
    for sent in (b"", b"nvmlDeviceGet", b"nvmlDeviceGetCount_v2\t\t\n"):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(path)
            caller.sendall(sent)
    assert nvml.device_count() == 2
    assert capfd.readouterr().err == ""


def test_a_closed_server_leaves_nothing_and_is_a_missing_kernel_driver(library, monkeypatch):
    with StubServer(GoldenAnswers()) as server:
        [path] = server.environment.values()
        assert Path(path).is_socket()
        monkeypatch.setenv(nvml_stub.SOCKET_VARIABLE, path)
    assert not Path(path).parent.exists()
    with pytest.raises(errors.DriverNotLoadedError):
        RealNvml(library=library).init()
