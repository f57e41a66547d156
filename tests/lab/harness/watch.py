"""Waits for the machine to end, and knows when it will not.

A kernel that notices that it hangs panics, which ends QEMU. One that does nothing at all is noticed here.
"""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_LOOK = 0.5  # seconds between two looks at the signs of life


def wait(process: subprocess.Popen[str], sign: Callable[[], Hashable], *, seconds: float, silence: float) -> str:
    """Until the process ends, `seconds` are over, or for `silence` seconds `sign` answers the same.

    Returns why it did not end well, empty where it did. A process that did not end by itself still runs then.
    """
    now = time.monotonic()
    end, last, since = now + seconds, sign(), now
    while now < end:
        try:
            status = process.wait(_LOOK)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        else:
            return f"QEMU ended with status {status}" if status else ""
        if (current := sign()) != last:
            last, since = current, now
        elif now - since > silence:
            return f"it was ended after {silence:g} s without a sign of life"
    return f"it was ended after {seconds:g} s"
