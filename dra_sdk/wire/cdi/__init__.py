"""CDI specs: they tell a container runtime what a device changes in a container.

Source: CNCF Container Device Interface specification 1.1. This package writes specs and is cheap to import. Reading the
specs of others is `dra_sdk.wire.cdi.reading`; the simulator applies specs to containers.
"""

from dra_sdk.wire.cdi.names import (
    device_problem,
    kind_problem,
    parse_qualified_name,
    qualified_name,
    split_kind,
)
from dra_sdk.wire.cdi.spec import claim_spec, is_empty

__all__ = [
    "claim_spec",
    "device_problem",
    "is_empty",
    "kind_problem",
    "parse_qualified_name",
    "qualified_name",
    "split_kind",
]
