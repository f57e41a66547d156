"""The container runtime's side of NRI, as containerd has it, for testing plugins in any language.

Source: containerd/nri pkg/adaptation 0.3 to 0.12.
"""

from __future__ import annotations

from dra_sdk.tools.simulator.nri.merging import ConflictError
from dra_sdk.tools.simulator.nri.plugin_connection import PluginCall
from dra_sdk.tools.simulator.nri.runtime import NriRuntime, RefusedError

__all__ = ["ConflictError", "NriRuntime", "PluginCall", "RefusedError"]
