"""How long to wait for what is sure to come."""

from __future__ import annotations

PATIENCE = 180.0
"""Seconds. Where all goes well nothing waits so long: it is only when a test gives up. A machine that is busy takes ten
times as long as an idle one for everything, and the kubelet tries some things again after 60 or 90 seconds."""
