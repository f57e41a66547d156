"""The functions that an expression can call: cel-go's, and those of Kubernetes' CEL environment.

Source: the CEL specification; cel-go, packages common/stdlib and ext; k8s.io/apiserver, package cel/library.
"""

from __future__ import annotations

from dra_sdk.cel.library import formatting, lists, names, network, resources, standard, strings, times
from dra_sdk.cel.library.overloads import Functions, by_name


def functions(*, since_1_37: bool, includes: bool) -> Functions:
    """Return all functions; `includes` says whether the method of that name is among them."""
    declared = [
        *standard.declared(),
        *strings.declared(since_1_37=since_1_37),
        *lists.declared(since_1_37=since_1_37),
        *resources.declared(),
        *network.declared(),
        *times.declared(since_1_37=since_1_37),
        *formatting.declared(),
        *names.declared(),
    ]
    return by_name([*declared, lists.includes(since_1_37=since_1_37)] if includes else declared)
