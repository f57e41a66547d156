"""Uevents that a test sends, in place of the kernel's.

uevents = FakeUevents()
driver = DriverHarness(partial(CpuDriver, uevents=uevents.open), node)
with driver.watching() as watch:
    node.file("/sys/devices/system/cpu/online", "0-6")
    uevents.send("offline", "/devices/system/cpu/cpu7", "cpu")
    watch.wait_changed()
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class FakeUevents:
    """A source of uevents for `dra_sdk.hardware.uevents.watch`: events wait until the driver receives them.

    unavailable: an error that `open` raises, as where the kernel has no such socket. None: it opens.
    opened: how often it was opened.
    closed: how often it was closed.
    """

    def __init__(self, unavailable: OSError | None = None) -> None:
        self.unavailable = unavailable
        self.opened = self.closed = 0
        self._messages: SimpleQueue[bytes] = SimpleQueue()

    def open(self) -> FakeUevents:
        """Open it, as the argument `source` of `watch`."""
        if self.unavailable is not None:
            raise self.unavailable
        self.opened += 1
        return self

    def send(self, action: str, devpath: str, subsystem: str, **properties: str) -> None:
        """Send an event as the kernel does; `properties` come in addition to the standard ones."""
        standard = {"ACTION": action, "DEVPATH": devpath, "SUBSYSTEM": subsystem}
        lines = [f"{action}@{devpath}", *(f"{name}={value}" for name, value in {**standard, **properties}.items())]
        self._messages.put("".join(f"{line}\0" for line in lines).encode())

    def overflow(self) -> None:
        """Let the driver know that events were lost, because it has not received them quickly enough."""
        self._messages.put(b"")

    def receive(self, seconds: float) -> bytes | None:
        """Return the next event, None if none was sent within some seconds."""
        try:
            return self._messages.get(timeout=seconds)
        except Empty:
            return None

    def close(self) -> None:
        """Close it."""
        self.closed += 1
