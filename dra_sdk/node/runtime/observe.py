"""What a driver process tells about itself: the values behind `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

from dra_sdk.errors import DraError
from dra_sdk.node.kubelet.probe import probe
from dra_sdk.node.kubelet.registration import Registration
from dra_sdk.node.kubelet.sockets import SocketPaths
from dra_sdk.node.prepare.engine import Preparer
from dra_sdk.node.runtime.http import Page
from dra_sdk.node.runtime.metrics import Metrics
from dra_sdk.node.runtime.settings import Serve
from dra_sdk.node.slices.controller import SliceController


def add_gauges(metrics: Metrics, preparer: Preparer, registration: Registration, slices: SliceController) -> None:
    """Add the values that are read at each scrape."""
    add = metrics.gauge
    add("dra_sdk_claims_held", "Claims that hold devices", lambda: len(preparer.held()))
    add("dra_sdk_registered", "Whether the kubelet has registered us", registration.registered.is_set)
    add("dra_sdk_slices_synced", "Whether the API server has all that was published", lambda: slices.synced)
    add("dra_sdk_slices_created", "ResourceSlices created since the start", lambda: slices.stats.creates)
    add("dra_sdk_slices_updated", "ResourceSlices updated since the start", lambda: slices.stats.updates)
    add("dra_sdk_slices_deleted", "ResourceSlices deleted since the start", lambda: slices.stats.deletes)
    add("dra_sdk_slice_errors", "Problems with publishing since the start", lambda: slices.stats.errors)


def pages(
    metrics: Metrics, paths: SocketPaths, serve: Serve, registration: Registration, slices: SliceController
) -> dict[str, Page]:
    """The pages of the HTTP server: alive means our sockets answer, ready means registered and published.

    Where two processes share the work (`serve`), each answers for its own part.
    """

    def healthy() -> bytes:
        probe(paths, registration=serve != "service", service=serve != "registration")
        return b"ok\n"

    def ready() -> bytes:
        if serve != "service" and not registration.registered.is_set():
            raise DraError(f"not registered with the kubelet: {registration.error or 'it has not called yet'}")
        if serve != "registration" and not slices.synced:
            raise DraError("the ResourceSlices are not published yet: " + "; ".join(map(str, slices.errors.values())))
        return b"ok\n"

    return {"/metrics": metrics.text, "/healthz": healthy, "/readyz": ready}
