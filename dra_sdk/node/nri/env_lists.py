"""Variables that the claims of a container fill together, joined for the container (`ContainerEdits.env_lists`).

By CDI alone the last device wins. A runtime has applied CDI before it asks plugins, so the container's environment has
the variable already: what other drivers have put into it stays.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter

from dra_sdk.model.container import Container
from dra_sdk.model.edits import EnvList, joined_env_lists


def joined_variables(container: Container) -> dict[str, str]:
    """Return the variables that differ from what the container has: values of other drivers first, then this driver's.

    Those of this driver are in the order of the container's claims, then of their allocation. HookError if two claims
    disagree about a separator.
    """
    devices = chain.from_iterable(map(attrgetter("devices"), container.claims))
    filled = list(filter(None, map(attrgetter("env_lists"), devices)))
    if not filled:
        return {}
    lists, env = joined_env_lists(filled), dict(container.env)
    joined = {name: _joined(env.get(name, ""), own) for name, own in lists.items()}
    return {name: value for name, value in joined.items() if value != env.get(name)}


def _joined(present: str, own: EnvList) -> str:
    others = [value for value in present.split(own.separator) if value and value not in own.values]
    return str(EnvList([*others, *own.values], own.separator))
