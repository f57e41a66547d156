"""What an operator knows of devices and their driver does not: the rail, the rack, that a machine is being repaired.

A file of rules adds attributes and taints to whatever a driver discovers:

```yaml
apiVersion: dra-sdk.dev/v1alpha1
kind: DeviceOverlay
rules:
  - match: device.attributes["gpu.example.com"].index < 4   # CEL, as in a DeviceClass; every device without it
    nodes: ["gpu-*"]                                         # patterns of node names; every node without it
    attributes: {topology.example.com/rail: 1, topology.example.com/rack: r7}
    taints: [{key: site.example.com/maintenance, value: "yes", effect: NoSchedule}]
```

What a device has already stays as it is unless the rule says `override: true`. An attribute is a bool, an int, a text,
a list of one of these, or `{version: 1.2.3}` or `{versions: [1.2.3]}`.
"""

from __future__ import annotations

from dra_sdk.node.overlay.apply import Overlaid, Overlay
from dra_sdk.node.overlay.errors import OverlayError
from dra_sdk.node.overlay.file import load
from dra_sdk.node.overlay.rules import Rule

__all__ = ["Overlaid", "Overlay", "OverlayError", "Rule", "load"]
