"""How much the bridge takes from plugins: what is beyond a limit is refused or left out, and harms no other plugin."""

from __future__ import annotations

from typing import Final

RESOURCES: Final = 100
"""Plugins at a time, one for each resource. Each costs two threads, one of which is gRPC's."""
LISTED: Final = 2_000
"""Devices of one plugin."""
DEVICES: Final = 5_000
"""Devices of all plugins."""
ID: Final = 256
"""Characters of a device's id."""
TEXT: Final = 64
"""Characters of the health that a plugin reports."""
NUMA_NODES: Final = 64
"""NUMA nodes of one device."""
EDITS: Final = 1_000
"""Device nodes and mounts that a container gets for one request."""
PATH: Final = 4095
"""Bytes of a path (PATH_MAX without its final NUL)."""
FILE_NAME: Final = 255
"""Bytes of a name between two slashes (NAME_MAX)."""
VARIABLE: Final = 131_071
"""Bytes of a variable, NAME=VALUE (MAX_ARG_STRLEN without its final NUL): execve refuses a longer one."""
