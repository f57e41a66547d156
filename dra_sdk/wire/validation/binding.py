"""Conditions that must hold, or must not, before a pod is bound. Source: BindingConditions, KEP-5007."""

from __future__ import annotations

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation.lists import check_list
from dra_sdk.wire.validation.names import label_key
from dra_sdk.wire.validation.problems import Problems, duplicate, invalid, show


def binding_conditions(
    conditions: list[str] | None, failures: list[str] | None, field: str, profile: ServerProfile
) -> Problems:
    """Both lists of a device or an allocation result, found under `field`."""
    limit = profile.limits.binding_conditions
    lists = {f"{field}.bindingConditions": conditions or [], f"{field}.bindingFailureConditions": failures or []}
    for where, names in lists.items():
        yield from check_list(names, where, label_key, profile, at_most=limit)
        for index, name in enumerate(names):
            if name in names[:index]:
                yield duplicate(f"{where}[{index}]", name)
    (here, good), (there, bad) = lists.items()
    for index, name in enumerate(bad):
        if name in good:
            yield invalid(f"{there}[{index}]", f"{show(name)} is a binding condition too")
    if bad and not good:
        yield invalid(here, "must be set where bindingFailureConditions are")
    if good and not bad:
        yield invalid(there, "must be set where bindingConditions are")
