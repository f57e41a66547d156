"""What a claim's status says about its devices: the interface in the pod, and the condition `Ready` with its reason.

| reason | Ready | when |
|---|---|---|
| `Prepared` | True | a device without an interface that moves is set up |
| `WaitingForSandbox` | False | the interface is prepared and not in the pod yet |
| `Attached` | True | the interface is in the pod, configured |
| `AttachFailed` | False | it is not, for the reason in the message |
| `Detached` | False | the pod's sandbox has stopped, the interface is back on the node |

Source: KEP-4817.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dra_driver_nic.prepare.attachment import Attachment
from dra_sdk import Condition, DeviceStatus, NetworkData

READY: Final = "Ready"
MOST_ADDRESSES: Final = 16
"""So many the API takes; the pod may have more."""
_MOST_DATA: Final = 8192  # characters; the API takes 10 KiB
_LONGEST: Final = 1024  # characters of a message, so that the kernel's words cannot fill a claim


def network_data(attachment: Attachment) -> NetworkData:
    """Return the interface as the pod gets it."""
    state = attachment.pod
    ips = [address.address for address in state.addresses][:MOST_ADDRESSES]
    return NetworkData(interface_name=state.name, hardware_address=state.mac or attachment.host.mac, ips=ips)


def prepared() -> DeviceStatus:
    """Describe a device that is set up without an interface in the pod."""
    return _status("Prepared", ready=True)


def waiting(attachment: Attachment) -> DeviceStatus:
    """Describe an interface that goes to the pod when its sandbox runs."""
    return _status("WaitingForSandbox", ready=False, attachment=attachment)


def attached(attachment: Attachment | None, data: Mapping[str, Any]) -> DeviceStatus:
    """Describe a device that is in the pod; None for one without an interface.

    data: what else the status reports, such as the result of plugins of CNI; too much is left out.
    """
    status = _status("Attached", ready=True, attachment=attachment)
    return replace(status, data=dict(data)) if attachment and len(json.dumps(data)) <= _MOST_DATA else status


def failed(error: Exception) -> DeviceStatus:
    """Describe a device that is not in the pod, because of an error."""
    return _status("AttachFailed", ready=False, message=str(error)[:_LONGEST])


def detached() -> DeviceStatus:
    """Describe a device that is back on the node."""
    return _status("Detached", ready=False)


def _status(reason: str, *, ready: bool, message: str = "", attachment: Attachment | None = None) -> DeviceStatus:
    condition = Condition(type=READY, status=ready, reason=reason, message=message)
    return DeviceStatus(conditions=[condition], network=network_data(attachment) if attachment is not None else None)
