"""Decodes request bodies in protobuf, which Go clients send by default.

Answers need no protobuf: the same clients read JSON. Only the kinds that drivers write and DeleteOptions are decoded. A
body is the magic `k8s\\0`, then a message with the kind and the encoded object. Field numbers are those of
generated.proto in k8s.io/api resource/v1 and core/v1 and k8s.io/apimachinery, 0.36 and 0.37.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from dra_sdk.model import JSON

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
Value = int | bytes

# The fields of each message as `number name type`: [type] is a list, {type} a map, `inline` adds the type's fields.
_FIELDS: Final = {
    "ResourceSlice": "1 metadata ObjectMeta; 2 spec ResourceSliceSpec",
    "ResourceSliceSpec": "1 driver string; 2 pool ResourcePool; 3 nodeName string; 4 nodeSelector NodeSelector; "
    "5 allNodes bool; 6 devices [Device]; 7 perDeviceNodeSelection bool; 8 sharedCounters [CounterSet]; "
    "9 partitionTypeAttribute string; 10 skipNodeOperations [string]",
    "ResourcePool": "1 name string; 2 generation int; 3 resourceSliceCount int",
    "CounterSet": "1 name string; 2 counters {Counter}",
    "Counter": "1 value quantity",
    "Device": "1 name string; 2 attributes {DeviceAttribute}; 3 capacity {DeviceCapacity}; "
    "4 consumesCounters [DeviceCounterConsumption]; 5 nodeName string; 6 nodeSelector NodeSelector; 7 allNodes bool; "
    "8 taints [DeviceTaint]; 9 bindsToNode bool; 10 bindingConditions [string]; "
    "11 bindingFailureConditions [string]; 12 allowMultipleAllocations bool; "
    "13 nodeAllocatableResourceMappings {NodeAllocatableResourceMapping}; "
    "14 nodeAllocatableResources {NodeAllocatableResource}",
    "DeviceAttribute": "2 int int; 3 bool bool; 4 string text; 5 version text; 6 ints [int]; 7 bools [bool]; "
    "8 strings [string]; 9 versions [string]",
    "DeviceCapacity": "1 value quantity; 2 requestPolicy CapacityRequestPolicy",
    "CapacityRequestPolicy": "1 default quantity; 3 validValues [quantity]; 4 validRange CapacityRequestPolicyRange",
    "CapacityRequestPolicyRange": "1 min quantity; 2 max quantity; 3 step quantity",
    "DeviceCounterConsumption": "1 counterSet string; 2 counters {Counter}; 3 compatibilityGroups [string]",
    "DeviceTaint": "1 key string; 2 value string; 3 effect string; 4 timeAdded time",
    "NodeAllocatableResourceMapping": "1 capacityKey string; 2 allocationMultiplier quantity",
    "NodeAllocatableResource": "3 mapping NodeAllocatableMapping; 4 overhead NodeAllocatableOverhead",
    "NodeAllocatableMapping": "1 capacityKey string; 2 capacityMultiplier quantity; 3 deviceMultiplier quantity",
    "NodeAllocatableOverhead": "1 perPod quantity; 2 perContainer quantity",
    "ResourceClaim": "1 metadata ObjectMeta; 2 spec ResourceClaimSpec; 3 status ResourceClaimStatus",
    "ResourceClaimSpec": "1 devices DeviceClaim",
    "DeviceClaim": "1 requests [DeviceRequest]; 2 constraints [DeviceConstraint]; 3 config [DeviceClaimConfiguration]",
    "DeviceRequest": "1 name string; 2 exactly ExactDeviceRequest; 3 firstAvailable [DeviceSubRequest]",
    "ExactDeviceRequest": "1 deviceClassName string; 2 selectors [DeviceSelector]; 3 allocationMode string; "
    "4 count count; 5 adminAccess bool; 6 tolerations [DeviceToleration]; 7 capacity CapacityRequirements; "
    "8 derivedAttributes [DeviceDerivedAttribute]",
    "DeviceSubRequest": "1 name string; 2 deviceClassName string; 3 selectors [DeviceSelector]; "
    "4 allocationMode string; 5 count count; 6 tolerations [DeviceToleration]; 7 capacity CapacityRequirements; "
    "8 derivedAttributes [DeviceDerivedAttribute]",
    "DeviceDerivedAttribute": "1 name string; 2 expression string",
    "DeviceSelector": "1 cel CELDeviceSelector",
    "CELDeviceSelector": "1 expression string",
    "CapacityRequirements": "1 requests {quantity}",
    "DeviceToleration": "1 key string; 2 operator string; 3 value string; 4 effect string; 5 tolerationSeconds int",
    "DeviceConstraint": "1 requests [string]; 2 matchAttribute string; 3 distinctAttribute string",
    "DeviceClaimConfiguration": "1 requests [string]; 2 inline DeviceConfiguration",
    "DeviceConfiguration": "1 opaque OpaqueDeviceConfiguration",
    "OpaqueDeviceConfiguration": "1 driver string; 2 parameters raw",
    "ResourceClaimStatus": "1 allocation AllocationResult; 2 reservedFor [ResourceClaimConsumerReference]; "
    "4 devices [AllocatedDeviceStatus]",
    "AllocationResult": "1 devices DeviceAllocationResult; 3 nodeSelector NodeSelector; 5 allocationTimestamp time",
    "DeviceAllocationResult": "1 results [DeviceRequestAllocationResult]; 2 config [DeviceAllocationConfiguration]",
    "DeviceRequestAllocationResult": "1 request string; 2 driver string; 3 pool string; 4 device string; "
    "5 adminAccess bool; 6 tolerations [DeviceToleration]; 7 bindingConditions [string]; "
    "8 bindingFailureConditions [string]; 9 shareID string; 10 consumedCapacity {quantity}; "
    "11 skipNodeOperations [string]",
    "DeviceAllocationConfiguration": "1 source string; 2 requests [string]; 3 inline DeviceConfiguration",
    "ResourceClaimConsumerReference": "1 apiGroup string; 3 resource string; 4 name string; 5 uid string",
    "AllocatedDeviceStatus": "1 driver string; 2 pool string; 3 device string; 4 conditions [Condition]; 5 data raw; "
    "6 networkData NetworkDeviceData; 7 shareID string",
    "NetworkDeviceData": "1 interfaceName string; 2 ips [string]; 3 hardwareAddress string",
    "NodeSelector": "1 nodeSelectorTerms [NodeSelectorTerm]",
    "NodeSelectorTerm": "1 matchExpressions [NodeSelectorRequirement]; 2 matchFields [NodeSelectorRequirement]",
    "NodeSelectorRequirement": "1 key string; 2 operator string; 3 values [string]",
    "ObjectMeta": "1 name string; 2 generateName string; 3 namespace string; 5 uid string; 6 resourceVersion string; "
    "8 creationTimestamp time; 9 deletionTimestamp time; 11 labels {string}; 12 annotations {string}; "
    "13 ownerReferences [OwnerReference]; 14 finalizers [string]",
    "OwnerReference": "1 kind string; 3 name string; 4 uid string; 5 apiVersion string; 6 controller bool; "
    "7 blockOwnerDeletion bool",
    "Condition": "1 type string; 2 status string; 3 observedGeneration count; 4 lastTransitionTime time; "
    "5 reason string; 6 message string",
    "DeleteOptions": "1 gracePeriodSeconds int; 2 preconditions Preconditions; 3 orphanDependents bool; "
    "4 propagationPolicy string; 5 dryRun [string]",
    "Preconditions": "1 uid string; 2 resourceVersion string",
    "Unknown": "1 typeMeta TypeMeta; 2 raw bytes",
    "TypeMeta": "1 apiVersion string; 2 kind string",
    "Timestamp": "1 seconds int; 2 nanos int",
    "Quantity": "1 string string",
    "RawExtension": "1 raw bytes",
}


def decode(body: bytes) -> JSON:
    """Return the object in a body, as it would be in JSON; ValueError if it is malformed or of an unknown kind."""
    if not body.startswith(MAGIC):
        raise ValueError("it does not begin with k8s\\0")
    unknown = _message("Unknown", body[len(MAGIC) :])
    meta = unknown.get("typeMeta") or {}
    kind = str(meta.get("kind", ""))
    if kind not in _FIELDS:
        raise ValueError(f"kind {kind!r} is supported as JSON only")
    return {"apiVersion": meta.get("apiVersion", ""), "kind": kind, **_message(kind, unknown.get("raw", b""))}


@dataclass(frozen=True)
class _Field:
    name: str
    type: str
    repeated: bool
    mapped: bool


@cache
def _fields(message: str) -> dict[int, _Field]:
    fields = {}
    for text in _FIELDS[message].split(";"):
        number, name, kind = text.split()
        fields[int(number)] = _Field(name, kind.strip("[]{}"), kind.startswith("["), kind.startswith("{"))
    return fields


def _message(name: str, data: bytes) -> JSON:
    """Return a message's fields by name, without unknown ones and empty strings, which are encoded but mean unset.

    An empty `text` is kept: it is a pointer in Go, so it is encoded only if it is set.
    """
    fields, members = _fields(name), dict[str, Any]()
    for number, value in _parts(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.repeated:
            members.setdefault(field.name, []).extend(_values(field.type, value))
        elif field.mapped:
            key, inner = _entry(field.type, value)
            members.setdefault(field.name, {})[key] = inner
        elif field.name == "inline":
            members |= _value(field.type, value)
        elif (decoded := _value(field.type, value)) not in ("", None) or (field.type == "text" and decoded == ""):
            members[field.name] = decoded
    return members


def _entry(kind: str, data: Value) -> tuple[str, Any]:
    parts = dict(_parts(_bytes(data)))
    empty: Value = 0 if kind in _NUMBERS else b""
    return _value("text", parts.get(1, b"")), _value(kind, parts.get(2, empty))


def _values(kind: str, data: Value) -> list[Any]:
    """Return the items of one occurrence of a list: several if numbers are packed."""
    if kind in _NUMBERS and isinstance(data, bytes):
        items, offset = [], 0
        while offset < len(data):
            number, offset = _varint(data, offset)
            items.append(_value(kind, number))
        return items
    return [_value(kind, data)]


def _value(kind: str, data: Value) -> Any:
    if kind in _NUMBERS:
        return _NUMBERS[kind](_number(data))
    content = _bytes(data)
    reader = _READERS.get(kind)
    return reader(content) if reader else _message(kind, content)


def _quantity(data: bytes) -> str:
    return str(_message("Quantity", data).get("string", "0"))


def _raw(data: bytes) -> Any:
    raw = _message("RawExtension", data).get("raw")
    return json.loads(raw) if raw else None


def _time(data: bytes) -> str | None:
    seconds = _message("Timestamp", data).get("seconds")
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None


_NUMBERS: Final[dict[str, Callable[[int], Any]]] = {
    "int": int,
    "bool": bool,
    "count": lambda number: number or None,  # 0 is encoded but means unset
}
_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "string": bytes.decode,
    "text": bytes.decode,
    "bytes": bytes,
    "quantity": _quantity,
    "raw": _raw,
    "time": _time,
}


def _bytes(data: Value) -> bytes:
    if isinstance(data, bytes):
        return data
    raise ValueError("expected bytes, found a number")


def _number(data: Value) -> int:
    if isinstance(data, int):
        return data - 2**64 if data >= 2**63 else data
    raise ValueError("expected a number, found bytes")


def _parts(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield field numbers and values: numbers for wire type 0, bytes for wire type 2; there are no others here."""
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        if tag & 7 == 0:
            number, offset = _varint(data, offset)
            yield tag >> 3, number
        elif tag & 7 == 2:  # noqa: PLR2004 (length-delimited)
            size, offset = _varint(data, offset)
            if offset + size > len(data):
                raise ValueError("it ends too early")
            yield tag >> 3, data[offset : offset + size]
            offset += size
        else:
            raise ValueError(f"wire type {tag & 7} is not supported")


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    number = 0
    for count, byte in enumerate(data[offset : offset + 10]):
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 (the last one)
            return number, offset + count + 1
    raise ValueError("it ends too early")
