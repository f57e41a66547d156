"""Selecting devices by CEL expressions, as the scheduler does it (resource.k8s.io/v1 CELDeviceSelector).

```python
selector = compile('device.attributes["gpu.example.com"].model == "a100"')
selector.matches(DeviceView.of(device, driver="gpu.example.com"))
```
"""

from __future__ import annotations

from dra_sdk.cel.derived import Derived, compile_derived
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Features
from dra_sdk.cel.errors import (
    CelCompileError,
    CelCostError,
    CelError,
    CelRuntimeError,
    CelTooCostlyError,
    CelTooLongError,
)
from dra_sdk.cel.expression import MAX_COST, MAX_LENGTH
from dra_sdk.cel.selector import Outcome, Selector, compile  # noqa: A004 (the word for it)

__all__ = [
    "MAX_COST",
    "MAX_LENGTH",
    "CelCompileError",
    "CelCostError",
    "CelError",
    "CelRuntimeError",
    "CelTooCostlyError",
    "CelTooLongError",
    "Derived",
    "DeviceView",
    "Features",
    "Outcome",
    "Selector",
    "compile",
    "compile_derived",
]
