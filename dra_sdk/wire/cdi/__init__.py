"""CDI specs: how a container runtime is told what a device changes in a container.

Source: CNCF Container Device Interface specification 1.1. Writing is here and cheap to import; reading the specs of
others is `dra_sdk.wire.cdi.reading`, applying them to a container is the simulator's.
"""

from dra_sdk.wire.cdi.edits import edits_to_json, is_empty
from dra_sdk.wire.cdi.names import (
    QualifiedName,
    kind_problem,
    parse_qualified_name,
    qualified_name,
    spec_name,
    split_kind,
    transient_spec_name,
)
from dra_sdk.wire.cdi.spec import check_spec, claim_spec
from dra_sdk.wire.cdi.versions import minimum_version

__all__ = [
    "QualifiedName",
    "check_spec",
    "claim_spec",
    "edits_to_json",
    "is_empty",
    "kind_problem",
    "minimum_version",
    "parse_qualified_name",
    "qualified_name",
    "spec_name",
    "split_kind",
    "transient_spec_name",
]
