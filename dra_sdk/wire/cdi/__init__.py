"""CDI specs: they tell a container runtime what a device changes in a container.

Source: CNCF Container Device Interface specification 1.1. This package writes specs and is cheap to import. Reading the
specs of others is `dra_sdk.wire.cdi.reading`; the simulator applies specs to containers.
"""

from dra_sdk.wire.cdi.names import (
    QualifiedName,
    kind_problem,
    parse_qualified_name,
    qualified_name,
    split_kind,
)
from dra_sdk.wire.cdi.spec import claim_spec, edits_to_json, is_empty
from dra_sdk.wire.cdi.validation import minimum_version

__all__ = [
    "QualifiedName",
    "claim_spec",
    "edits_to_json",
    "is_empty",
    "kind_problem",
    "minimum_version",
    "parse_qualified_name",
    "qualified_name",
    "split_kind",
]
