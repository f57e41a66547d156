"""CEL expressions about devices, evaluated as the API server and the scheduler do it.

```python
selector = compile('device.attributes["gpu.example.com"].model == "a100"')
selector.matches(DeviceView.of(device, driver="gpu.example.com"))
```
An expression goes through lexer, parser and macros, checker, and plan; `estimate` gives its worst-case cost. Source:
resource.k8s.io/v1 CELDeviceSelector; the CEL specification; cel-go.
"""

from __future__ import annotations

from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Features
from dra_sdk.cel.errors import (
    CelCompileError,
    CelCostError,
    CelError,
    CelPackageError,
    CelRuntimeError,
    CelTooCostlyError,
    CelTooLongError,
    CelUnknownFunctionError,
)
from dra_sdk.cel.expression import (
    MAX_COST,
    MAX_LENGTH,
    Evaluation,
    Selector,
    compile,  # noqa: A004 (the field's word)
    compile_derived,
)

__all__ = [
    "MAX_COST",
    "MAX_LENGTH",
    "CelCompileError",
    "CelCostError",
    "CelError",
    "CelPackageError",
    "CelRuntimeError",
    "CelTooCostlyError",
    "CelTooLongError",
    "CelUnknownFunctionError",
    "DeviceView",
    "Evaluation",
    "Features",
    "Selector",
    "compile",
    "compile_derived",
]
