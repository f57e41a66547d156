"""`python -m tests.bench.picture`: how fast Chromium opens the picture of a large cluster, scrolls it and finds words.

Needs the programs chromedriver and chromium. chromedriver is asked by the WebDriver protocol on this machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from dra_sdk.tools.scheduling.picture import build_scene, render_page
from tests.bench.machine import processor
from tests.tools.scheduling.clusters import GPU, JSON, NIC, claim, cluster, exactly, mig, nics, pod, with_devices

GPUS: Final = 8
_USED: Final = ("7g-40gb-0", "3g-20gb-0", "1g-5gb-4", "2g-10gb-2")
_FLAGS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1600,1000")
_STEPS: Final = (100, 400)
"""Pixels for each frame."""
_FRAMES: Final = 200
_OPENED: Final = """
const done = arguments[0], [page] = performance.getEntriesByType("navigation");
requestAnimationFrame(() => setTimeout(() => done({
  shown: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  ready: Math.max(page.loadEventEnd, 0), elements: document.querySelectorAll("*").length})));
"""
_SCROLLED: Final = """
const [step, frames, done] = arguments, times = [];
let last = null;
scrollTo(0, 0);
const next = (now) => {
  if (last !== null) times.push(now - last);
  last = now;
  if (times.length < frames) { scrollBy(0, step); requestAnimationFrame(next); } else done(times);
};
requestAnimationFrame(() => requestAnimationFrame(next));
"""
_FOUND: Final = """
const [words, done] = arguments, field = document.getElementById("filter"), began = performance.now();
field.value = words;
field.dispatchEvent(new Event("input"));
const said = document.getElementById("found");
requestAnimationFrame(() => setTimeout(() => done([performance.now() - began, said.value])));
"""


class Browser:
    """A session of Chromium, by chromedriver."""

    def __init__(self, address: str) -> None:
        self._address = address
        wanted = {"alwaysMatch": {"goog:chromeOptions": {"args": list(_FLAGS)}}}
        self._session = f"/session/{self._send('/session', {'capabilities': wanted})['sessionId']}"
        self._ask("/timeouts", {"script": 300_000, "pageLoad": 300_000})
        # The time of the page's thread, which other work on the machine does not lengthen.
        self._command("Performance.enable", timeDomain="threadTicks")

    def open(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self._ask("/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script gives to the callback that is its last argument."""
        return self._ask("/execute/async", {"script": script, "args": list(arguments)})

    def processor_time(self) -> float:
        """Milliseconds of processor time of the page's thread so far."""
        metrics = {each["name"]: each["value"] for each in self._command("Performance.getMetrics")["metrics"]}
        return 1000 * float(metrics["TaskDuration"])

    def close(self) -> None:
        """End the session and the browser."""
        self._send(self._session, None, "DELETE")

    def _command(self, name: str, **parameters: Any) -> Any:
        return self._ask("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _ask(self, path: str, body: JSON) -> Any:
        return self._send(self._session + path, body)

    def _send(self, path: str, body: JSON | None, method: str = "POST") -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, content, method=method)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise SystemExit(f"bench: chromedriver: {path}: {error.read().decode()[:2000]}") from error


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, which ends with the block."""
    command = ["chromedriver", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
        try:
            found = Browser(f"http://127.0.0.1:{_port(driver)}")
            try:
                yield found
            finally:
                found.close()
        finally:
            driver.terminate()


def _port(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    for line in driver.stdout:
        if found := re.search(r"started successfully on port (\d+)", line):
            return found[1]
    raise SystemExit(f"bench: chromedriver ended with status {driver.wait()}")


def large_page(nodes: int) -> str:
    """Nodes with eight partitioned GPUs and eight NICs; on each, four claims hold GPUs or parts, and two have a NIC."""
    objects: list[Any] = []
    for index in range(nodes):
        node = f"node-{index:04}"
        objects += [*mig(node, GPUS), nics(node, GPUS)]
        for number, part in enumerate(_USED):
            device = (f"gpu-{number + index % 4}-mig-{part}", f"nic-{number}")
            results = [("mig", GPU, node, device[0])] + ([("nic", NIC, node, device[1])] if number < 2 else [])
            name = f"serve-{index:04}-{number}"
            wanted = claim(name, exactly("mig", GPU), namespace="ml")
            objects += [with_devices(wanted, *results, pod=name), pod(name, name, node=node, namespace="ml")]
    return render_page(build_scene(cluster(objects)))


def measure(page: Browser, address: str, rounds: int) -> Iterator[str]:
    """Rows of the table."""
    opened, spent = [], []
    for _ in range(rounds):
        page.open("about:blank")
        before = page.processor_time()
        page.open(address)
        opened.append(page.run(_OPENED))
        spent.append(page.processor_time() - before)
    yield f"{opened[0]['elements']} elements"
    yield (
        f"open: {_range([each['ready'] for each in opened])} until loaded, first text after "
        f"{_range([each['shown'] for each in opened])}; {_range(spent)} of processor time"
    )
    for step in _STEPS:
        before = page.processor_time()
        times = sorted(page.run(_SCROLLED, step, _FRAMES))
        share = (page.processor_time() - before) / _FRAMES
        yield (
            f"scroll {step} pixels a frame: p50 {median(times):.1f} ms, p95 {times[int(len(times) * 0.95)]:.1f} ms; "
            f"{share:.1f} ms of processor time a frame"
        )
    for words in ("node-0123", "serve-0999-1", "gpu-6", ""):
        before = page.processor_time()
        took, found = page.run(_FOUND, words)
        spent_here = page.processor_time() - before
        yield f"find {words!r}: {took:.0f} ms, {spent_here:.0f} ms of processor time; {found or 'everything'}"


def _range(times: Sequence[float]) -> str:
    return f"{median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 2 where a program is missing."""
    parser = argparse.ArgumentParser("python -m tests.bench.picture", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5, help="how often the page is opened (default 5)")
    chosen = parser.parse_args(arguments)
    if missing := [each for each in ("chromedriver", "chromium") if shutil.which(each) is None]:
        print(f"bench: no program {', '.join(missing)}; apt-get install chromium-driver brings both", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="dra-picture-") as folder:
        path = Path(folder) / "picture.html"
        path.write_text(large_page(chosen.nodes), encoding="utf-8")
        print(f"{processor()}\n\n{chosen.nodes} nodes, {path.stat().st_size / 1e6:.1f} MB")
        with browser() as page:
            for row in measure(page, path.as_uri(), chosen.rounds):
                print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
