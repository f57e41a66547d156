"""Reading CDI specs that others wrote, in YAML or JSON.

Apart from the rest of the package because a driver only writes specs, and the YAML parser takes long to import.
"""

from __future__ import annotations

from typing import Any

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.cdi.spec import check_spec
from dra_sdk.wire.documents import read_documents


def read_spec(content: bytes, source: str) -> dict[str, Any]:
    """The spec in a file's content, checked as a runtime checks it.

    Raises InvalidObjectError that names `source`: with line and column where the content is no YAML or JSON, is empty
    or holds several documents, else with a sentence per unknown field, wrong type or broken rule.
    """
    specs = [each.value for each in read_documents(content, f"CDI spec {source}") if each.value is not None]
    if len(specs) != 1:
        raise InvalidObjectError(f"CDI spec {source}", [f"must hold one document, has {len(specs) or 'none'}"])
    return check_spec(specs[0], source)
