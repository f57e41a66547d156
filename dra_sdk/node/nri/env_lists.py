"""Variables that the claims of a container fill together, joined for the container (`ContainerEdits.env_lists`).

By CDI alone the last device wins. A runtime has applied CDI before it asks plugins, so the container's environment has
the variable already: what other drivers have put into it stays.
"""

from __future__ import annotations

from dra_sdk.model.container import Container
from dra_sdk.model.edits import EnvList, joined_env_lists


def joined_variables(container: Container) -> dict[str, str]:
    """Return the variables that differ from what the container has: values of other drivers first, then this driver's.

    Those of this driver are in the order of the container's claims, then of their allocation. HookError if two claims
    disagree about a separator.
    """
    lists = joined_env_lists(device.env_lists for claim in container.claims for device in claim.devices)
    env = dict(container.env) if lists else {}
    joined = {name: _joined(env.get(name, ""), filled) for name, filled in lists.items()}
    return {name: value for name, value in joined.items() if value != env.get(name)}


def _joined(present: str, own: EnvList) -> str:
    others = [value for value in present.split(own.separator) if value and value not in own.values]
    return str(EnvList([*others, *own.values], own.separator))
