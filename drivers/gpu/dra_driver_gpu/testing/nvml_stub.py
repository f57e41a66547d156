"""A stub of `libnvidia-ml.so.1`, so that tests use the real binding through its binary interface.

    library = build_stub(tmp_path)
    golden = GoldenAnswers()
    golden.answers["nvmlDeviceGetCount_v2"] = Answer(numbers=(2,))
    with StubServer(golden) as server:
        os.environ.update(server.environment)
        nvml = RealNvml(library=library)

The library knows only the layouts of nvml.h. It sends each call to the server, also from other processes, and writes
the answer where the caller expects it. A server answers with a table, as here, or with the GPUs in memory
(`MemoryAnswers`). Without a server, each call fails as without a kernel driver.

A call is one line of text on a Unix socket, `FUNCTION<tab>TEXT<tab>NUMBERS`, and so is its answer,
`CODE<tab>TEXT<tab>NUMBERS`. A call or an answer has at most one text. Numbers come in the order of the parameters for a
call, and of the fields in `api` or `mig` for an answer; handles are numbers too.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from types import TracebackType
from typing import Final, Self, TypeAlias

from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.real.library import SONAME
from dra_sdk import SettingsError

SOCKET_VARIABLE: Final = "NVML_STUB_SOCKET"
SOURCES: Final = Path(__file__).with_name("stub")
_FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Answer:
    """What a function of NVML answers.

    numbers: its results, or the fields of its result.
    text: its text, if it has one.
    code: its return code; with a code other than SUCCESS the rest is not used.
    """

    numbers: tuple[int, ...] = ()
    text: str = ""
    code: int = ReturnCode.SUCCESS


Answers: TypeAlias = Callable[[str, str, tuple[int, ...]], Answer]
"""Answers a call: the name of the function, its text and its numbers."""


@dataclass
class GoldenAnswers:
    """A table of answers, set by a test before it calls. A function without an answer fails with UNKNOWN.

    answers: the answer of each function.
    calls: each call so far: the name of the function, then its numbers, then its text if it has one.
    """

    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[tuple[str | int, ...]] = field(default_factory=list)

    def __call__(self, function: str, text: str, numbers: tuple[int, ...]) -> Answer:
        """See `Answers`."""
        self.calls.append((function, *numbers, text) if text else (function, *numbers))
        return self.answers.get(function, Answer(code=ReturnCode.UNKNOWN))


class StubServer:
    """Serves the calls of the stub library, of any number of processes and threads, until it is closed."""

    def __init__(self, answers: Answers) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="nvml-")  # the path of a socket has at most 107 bytes
        self._path = f"{self._directory.name}/socket"
        self._server = ThreadingUnixStreamServer(self._path, _handler(answers))
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses the stub."""
        return {SOCKET_VARIABLE: self._path}

    def __enter__(self) -> Self:
        """Start serving."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving. Waits for calls in progress."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._directory.cleanup()


def build_stub(directory: Path, *, compiler: str = "gcc", without: Iterable[str] = ()) -> Path:
    """Compile the stub to `directory`/libnvidia-ml.so.1 and return its path.

    `without` names functions that the library lacks, like that of an older driver. Raises SettingsError without a
    compiler, and if it fails.
    """
    if shutil.which(compiler) is None:
        raise SettingsError(f"the NVML stub needs the C compiler {compiler}, which is not on PATH")
    library = directory / SONAME
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    renamed = [f"-D{name}={name}_absent" for name in without]
    command = [compiler, *_FLAGS, *renamed, f"-Wl,-soname,{SONAME}", "-o", str(library), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SettingsError(f"the NVML stub does not compile: {done.stderr.strip()}")
    return library


def _handler(answers: Answers) -> type[StreamRequestHandler]:
    class StubHandler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):  # the caller was killed
                line = self.rfile.readline().decode()
                if line.endswith("\n"):
                    function, text, numbers = line[:-1].split("\t")
                    answer = answers(function, text, tuple(map(int, numbers.split())))
                    self.wfile.write(f"{answer.code:d}\t{answer.text}\t{' '.join(map(str, answer.numbers))}\n".encode())

    return StubHandler
