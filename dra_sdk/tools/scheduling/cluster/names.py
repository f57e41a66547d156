"""Names and UIDs that an API server would make at random, made from what is known, so that a run can be repeated.

Source: apiserver, package storage/names (five characters after the base, 63 in all); controller/resourceclaim (how
the base is cut for a pod's claim).
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Final

from dra_sdk.model import JSON

Key = tuple[str, str]
"""Namespace and name of an object."""

DEFAULT_NAMESPACE: Final = "default"
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_RANDOM: Final = 5
_LONGEST: Final = 63
_LONGEST_CLAIM_BASE: Final = 57
_UIDS: Final = uuid.UUID("8f2f7d34-6b0e-4f0e-9b60-0d6a4c1f7a55")


def key_of(obj: JSON) -> Key:
    """Namespace and name of an object; that of a cluster-scoped one is empty."""
    metadata = obj.get("metadata") or {}
    return metadata.get("namespace") or "", metadata.get("name") or ""


def shown(key: Key) -> str:
    """A namespace and name as people say it: the default namespace goes without saying."""
    namespace, name = key
    return name if namespace in {"", DEFAULT_NAMESPACE} else f"{namespace}/{name}"


def generated_name(base: str, *reasons: str) -> str:
    """`base` and five characters that depend on `base` and `reasons` alone, in at most 63 characters."""
    number = int.from_bytes(hashlib.sha256("\0".join((base, *reasons)).encode(errors="surrogatepass")).digest())
    suffix = ""
    for _ in range(_RANDOM):
        number, index = divmod(number, len(_ALPHABET))
        suffix += _ALPHABET[index]
    return base[: _LONGEST - _RANDOM] + suffix


def claim_base(pod: str, claim: str) -> str:
    """What the name of a claim that is made for a pod begins with; both names are cut alike if it would be too long."""
    base = f"{pod}-{claim}-"
    if len(base) <= _LONGEST_CLAIM_BASE:
        return base
    kept = [each[: len(each) * _LONGEST_CLAIM_BASE // len(base)] for each in (pod, claim)]
    return "-".join(kept)


def generated_uid(kind: str, key: Key, *reasons: str) -> str:
    """A UID for an object that came without one."""
    return str(uuid.uuid5(_UIDS, "/".join((kind, *key, *reasons))))
