"""Overlays: what an operator adds to the devices that any driver discovers, and which of them are published.

The operator knows what the driver does not, such as the rack, the rail, or that a machine is under repair. A file of
rules says what to add:

```yaml
apiVersion: dra-sdk.dev/v1alpha1
kind: DeviceOverlay
rules:
  - match: device.attributes["gpu.example.com"].index < 4   # CEL, as in a DeviceClass; default: every device
    nodes: ["gpu-*"]                                         # patterns of node names; default: every node
    attributes: {topology.example.com/rail: 1, topology.example.com/rack: r7}
    taints: [{key: site.example.com/maintenance, value: "yes", effect: NoSchedule}]
  - match: device.attributes["gpu.example.com"].index == 7
    publish: false
```

`publish: false` leaves devices out, and `publish: true` in a later rule takes some of them back: the last rule that
selects a device and says `publish` counts. A claim that has a device keeps it.

A rule changes what a device already has only with `override: true`. An attribute is a bool, an int, a string, a list of
one of these, `{version: 1.2.3}` or `{versions: [1.2.3]}`. The format is our own; it adds DeviceAttributes and
DeviceTaints of resource.k8s.io/v1.
"""

from __future__ import annotations

from dra_sdk.node.overlay.apply import Overlaid, Overlay, OverlayRule
from dra_sdk.node.overlay.file import OverlayError, load

__all__ = ["Overlaid", "Overlay", "OverlayError", "OverlayRule", "load"]
