"""The container runtime's side of NRI, as containerd has it, for testing plugins in any language.

Source: containerd/nri pkg/adaptation 0.3 to 0.12.
"""

from __future__ import annotations

from dra_sdk.tools.simulator.nri.merging import PluginConflictError, RefusedError
from dra_sdk.tools.simulator.nri.runtime import NriRuntime

__all__ = ["NriRuntime", "PluginConflictError", "RefusedError"]
