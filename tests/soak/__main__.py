"""`make soak [N=50] [SEED=1] [ARGS="tests/kube …"]`: repeats the tests that could depend on luck.

The first round runs all tests of ARGS, by default all that need no cluster, and notes which of them start threads,
sockets or processes. Each further round runs those. Every round has its own random order, which follows from its seed.
Several rounds run at the same time, beside a load on all CPUs: stress-ng if it is installed, else busy loops.

Each failure is printed when its round ends, with the command that repeats the round. At the end, a list tells how often
each test failed. The exit status is 0 if no test failed. Output of rounds with a failure is kept in `build/soak`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from types import FrameType
from typing import Final

from tests.cluster.harness.progress import Progress, Step, duration

DIRECTORY: Final = Path(__file__).parents[2] / "build" / "soak"
BUSY_LOOP: Final = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(1_000_000): pass"
TEST_TIMEOUT: Final = 300.0
"""Seconds for one test. As in `make faults`: a loaded machine is slow, and only a test that hangs takes that long."""
GRACE: Final = 60.0
"""Seconds that rounds have to end after Ctrl-C."""
PAUSE: Final = 0.2  # seconds between two looks at the running rounds
DETAIL_INTERVAL: Final = 5.0  # seconds between two changes of the progress line, which needs all logs
NO_TESTS: Final = 5  # pytest's exit status when it collected none


@dataclass(frozen=True)
class Log:
    """What the log of a round says.

    tests: the tests that ended.
    concurrent: those of them with threads, sockets or processes.
    failed: the tests that failed, with the phases.
    running: the test that began and did not end; None if there is none.
    """

    tests: list[str] = field(default_factory=list)
    concurrent: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    running: str | None = None

    @classmethod
    def read(cls, path: Path) -> Log:
        """Reads the log of `tests.soak.plugin`, also while the round runs."""
        tests, concurrent, running = [], [], None
        failed: dict[str, str] = {}
        for text in path.read_text().splitlines() if path.exists() else ():
            line = json.loads(text)
            if "began" in line:
                running = line["began"]
            elif "failed" in line:
                failed[line["failed"]] = ", ".join(filter(None, (failed.get(line["failed"]), line["when"])))
            else:
                tests.append(line["ended"])
                concurrent += [line["ended"]] if line["concurrent"] else []
                running = None
        return cls(tests, concurrent, failed, running)


class Round:
    """One run of pytest in a process of its own.

    number: its number, from 1.
    seed: the seed of its order.
    command: its command line, without that for the log.
    """

    def __init__(self, number: int, seed: int, arguments: list[str], only: Path | None, directory: Path) -> None:
        self.number, self.seed = number, seed
        chosen = [f"--soak-only={only}"] if only else []
        self.command = [
            *(sys.executable, "-m", "pytest", "-p", "tests.soak.plugin", "-p", "no:cacheprovider", "-q"),
            *("-p", "random_order", "-p", "timeout"),
            *("--random-order", f"--random-order-seed={seed}", f"--timeout={TEST_TIMEOUT:g}", *chosen, *arguments),
        ]
        self._log = directory / f"round-{number}.jsonl"
        self.output = directory / f"round-{number}.txt"
        command = [*self.command, f"--soak-log={self._log}"]
        with self.output.open("wb") as file:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self._began = time.monotonic()

    @property
    def log(self) -> Log:
        """What it has logged up to now."""
        return Log.read(self._log)

    def ended(self) -> bool:
        """Returns whether pytest has ended."""
        return self._process.poll() is not None

    def interrupt(self) -> None:
        """Asks pytest to end as Ctrl-C does, so that the tests clean up."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Waits until pytest has ended; kills it if that takes too long."""
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def failures(self) -> dict[str, str]:
        """Returns what went wrong by test; a pytest that ended in another way counts for the test that ran then."""
        status, log = self._process.wait(), self.log
        if status in {0, NO_TESTS} or (status == 1 and log.failed):
            return log.failed
        return {**log.failed, log.running or "pytest": f"pytest ended with status {status}"}

    def summary(self) -> str:
        """Returns one line about the round, after its end."""
        log, failures = self.log, self.failures()
        result = f"{len(failures)} failed" if failures else "all passed"
        return f"round {self.number}: {len(log.tests)} tests, {result}, {duration(time.monotonic() - self._began)}"


def main(arguments: list[str] | None = None) -> int:
    """Runs the rounds; returns 0 if no test failed, 1 if one did, 130 after Ctrl-C."""
    options, rest = _parse(arguments)
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    progress, failures = Progress(), Counter[str]()
    progress.note(f"seed {options.seed}: `make soak SEED={options.seed}` repeats these orders")
    with load(options.load), progress.step("soak") as step:
        try:
            _run(options, rest, progress, step, failures)
        except KeyboardInterrupt:
            progress.note("ended by a signal")
            return 130
    for test, times in failures.most_common():
        print(f"{times:4} times  {test}")
    print(f"{len(failures)} tests failed; output is in {options.output}" if failures else "no test failed")
    return 1 if failures else 0


def _parse(arguments: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    shape, cpus = argparse.RawDescriptionHelpFormatter, os.cpu_count() or 1
    parser = argparse.ArgumentParser("python -m tests.soak", description=__doc__, formatter_class=shape)
    parser.add_argument("--rounds", type=int, default=50, help="how many rounds, 50 by default")
    parser.add_argument("--seed", type=int, help="the seed of the first round; each further one adds 1")
    parser.add_argument("--jobs", type=int, default=cpus, help="how many rounds at the same time, by default one a CPU")
    parser.add_argument("--load", type=int, default=cpus, help="how many processes of load, by default one a CPU")
    parser.add_argument("--output", type=Path, default=DIRECTORY, help="the directory for output, emptied first")
    options, rest = parser.parse_known_args(arguments)
    if options.rounds < 1 or options.jobs < 1:
        parser.error("--rounds and --jobs: at least 1")
    if options.seed is None:
        options.seed = SystemRandom().randrange(1, 1_000_000)
    return options, rest


def _run(options: argparse.Namespace, rest: list[str], progress: Progress, step: Step, failures: Counter[str]) -> None:
    """Runs all rounds. `failures` gets the tests that failed, each once for a round."""
    only: Path | None = None
    waiting = list(range(1, options.rounds + 1))
    running: list[Round] = []
    next_detail = time.monotonic() + DETAIL_INTERVAL
    try:
        while waiting or running:
            jobs = 1 if only is None else options.jobs  # the first round decides what the others run
            while waiting and len(running) < jobs:
                number = waiting.pop(0)
                running.append(Round(number, options.seed + number - 1, rest, only, options.output))
            for each in [each for each in running if each.ended()]:
                running.remove(each)
                _report(each, progress, failures)
                if only is None:
                    only = _chosen(each.log, options.output, progress)
                    waiting = waiting if each.log.concurrent else []
            if time.monotonic() > next_detail:
                next_detail = time.monotonic() + DETAIL_INTERVAL
                done = options.rounds - len(waiting) - len(running)
                step.detail = ", ".join([f"{done} of {options.rounds} rounds", *(_now(each) for each in running)])
            time.sleep(PAUSE)
        step.detail = f"{options.rounds} rounds"
    finally:
        for each in running:
            each.interrupt()
        for each in running:
            each.end()


def _chosen(log: Log, directory: Path, progress: Progress) -> Path:
    """Writes down the tests for the further rounds."""
    path = directory / "concurrent.txt"
    path.write_text("".join(f"{test}\n" for test in log.concurrent))
    progress.note(f"{len(log.concurrent)} of {len(log.tests)} tests start threads, sockets or processes")
    return path


def _now(one: Round) -> str:
    log = one.log
    return f"round {one.number} at {len(log.tests)} ({log.running or 'collecting'})"


def _report(one: Round, progress: Progress, failures: Counter[str]) -> None:
    progress.note(one.summary())
    found = one.failures()
    failures.update(found.keys())
    for test, why in found.items():
        progress.note(f"  FAILED {test} ({why})")
    if found:
        progress.note(f"  output: {one.output}\n  repeat: {shlex.join(one.command)}")
    else:
        one.output.unlink()


@contextmanager
def load(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keeps this many CPUs busy, with stress-ng if it is installed. The load ends with this process in any case."""
    started: list[subprocess.Popen[bytes]] = []
    if processes and shutil.which("stress-ng") and shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "KILL", "stress-ng", "--quiet", "--cpu", str(processes)]
        started = [subprocess.Popen(command)]
    elif processes:
        command = [sys.executable, "-c", BUSY_LOOP, str(os.getpid())]
        started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield started
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait()


def _end(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT may be ignored here, and the rounds would inherit that
        signal.signal(number, _end)
    sys.exit(main())
