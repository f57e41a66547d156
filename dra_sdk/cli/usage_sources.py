"""Where `top` gets slices and claims from: files, a running cluster, or the node that it runs on, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dra_sdk.cli.files import read_content, shown_name
from dra_sdk.errors import StateError
from dra_sdk.loader import load_driver
from dra_sdk.model.driver import Node
from dra_sdk.node.health.tainting import TaintPolicy, with_taints
from dra_sdk.node.health.unhealthy_store import decode as decode_unhealthy
from dra_sdk.node.prepare.checkpoint import Checkpoint
from dra_sdk.node.prepare.state_files import Unreadable, read_checkpoint, state_files
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.tools.scheduling.cluster import Source, read_snapshot
from dra_sdk.wire.documents import read_documents
from dra_sdk.wire.profile import NEWEST, ServerProfile


def of_files(names: Iterable[str]) -> list[Mapping[str, Any]]:
    """The slices and claims in files; DraError with the place of whatever an API server would not take."""
    sources = [Source(shown_name(name), read_documents(read_content(name), shown_name(name))) for name in names]
    return _of_sources(sources, f"1.{NEWEST}")


def of_cluster(kubeconfig: Path | None) -> list[Mapping[str, Any]]:
    """Those of a running cluster."""
    from dra_sdk.cli.live import read_cluster  # noqa: PLC0415 (the others need no client)

    source, version = read_cluster(kubeconfig)
    return _of_sources([source], version)


def _of_sources(sources: Sequence[Source], version: str) -> list[Mapping[str, Any]]:
    snapshot = read_snapshot(sources, ServerProfile.of(version)).snapshot
    return [*snapshot.slices, *snapshot.claims]


def of_node(driver: str, settings: Settings) -> Iterator[Mapping[str, Any]]:
    """What a driver finds on this node, with the claims that its state files hold and the taints it remembers."""
    loaded = load_driver(driver)
    name, data = loaded.info.name, settings.plugin_data(loaded.info.name)
    pools = loaded.discover(Node(settings.node_name, settings.host_root))
    if settings.taint_effect is not None:
        pools = with_taints(pools, _unhealthy(data / "unhealthy.json"), TaintPolicy(name, settings.taint_effect))
    yield from resource_slices(pools, driver=name, node_name=settings.node_name)
    for path in state_files(data):
        found = read_checkpoint(path)
        if isinstance(found, Unreadable):
            raise StateError(found.advice)
        yield _claim(name, found)


def _unhealthy(path: Path) -> dict[tuple[str, str], Any]:
    return decode_unhealthy(_read(path), str(path)) if path.exists() else {}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateError(f"cannot read state file {path}: {error.strerror}") from error


def _claim(driver: str, state: Checkpoint) -> Mapping[str, Any]:
    """The claim as far as its state file tells; which pods have it only the API server knows."""
    results = [
        {
            "driver": driver,
            "pool": each.pool,
            "device": each.name,
            "adminAccess": each.admin_access,
            "consumedCapacity": {key: str(amount) for key, amount in each.consumed_capacity.items()},
        }
        for each in state.devices
    ]
    metadata = {"namespace": state.namespace, "name": state.name, "uid": state.uid}
    return {"kind": "ResourceClaim", "metadata": metadata, "status": {"allocation": {"devices": {"results": results}}}}
