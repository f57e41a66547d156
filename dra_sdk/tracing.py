"""Traces: an extension that sends a span for each step of a call to an OpenTelemetry collector, by OTLP over gRPC.

```
NodePrepareResources            the kubelet's call; joined to the caller's trace by the header `traceparent`
└── prepare                     one claim
    ├── read claim              from the API server
    ├── dra_prepare             the driver's hook
    ├── write CDI spec
    └── write state file
```

It is silent, and imports nothing of OpenTelemetry, unless one of the standard variables OTEL_EXPORTER_OTLP_ENDPOINT and
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or OTEL_TRACES_EXPORTER is `console`; then it needs the packages of the extra
`tracing`. Spans are sent in the background, and are dropped if no collector takes them: tracing never fails a call.

Sources: OpenTelemetry specification, environment variables; W3C Trace Context. The kubelet of Kubernetes 1.36 and 1.37
sends no `traceparent` to DRA drivers (pkg/kubelet/cm/dra/plugin: its connection has no tracing interceptor), so there
each call begins a trace of its own. The claim's UID and the pods' names are attributes by which it is found.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.hookspecs import hookimpl
from dra_sdk.model.claim import Claim
from dra_sdk.model.driver import DriverInfo
from dra_sdk.model.step import Step

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

_PACKAGES: Final = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc"
log = logging.getLogger(__name__)
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
DISABLED: Final = "OTEL_SDK_DISABLED"
TIMEOUTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
STOP_SECONDS: Final = 3.0
"""For one attempt to send, also at the end of the process, unless the environment says otherwise (10 is usual)."""


class Tracing:
    """The extension. `exporter` replaces the one that the environment asks for, in tests."""

    def __init__(self, environment: Mapping[str, str] = os.environ, exporter: SpanExporter | None = None) -> None:
        self._environment, self._exporter = environment, exporter
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None

    @hookimpl(wrapper=True)
    def dra_driver_info(self) -> Generator[None, DriverInfo, DriverInfo]:
        """Begin to trace if that is wanted: now the driver's name is known, and no call waits."""
        info = yield
        if self._tracer is None and (self._exporter is not None or wanted(self._environment)):
            try:
                self._start(info.name)
            except (
                ModuleNotFoundError
            ) as error:  # the variables may be meant for others: some clusters set them for all
                log.warning("no traces: %s is not installed: pip install %s", error.name, _PACKAGES)
        return info

    @hookimpl(wrapper=True)
    def dra_prepare(self, claim: Claim[Any]) -> Generator[None, Any, Any]:
        """Add the pods and devices of the claim to the hook's span."""
        if self._tracer is not None:
            from opentelemetry.trace import get_current_span  # noqa: PLC0415 (only with tracing)

            span, users = get_current_span(), (claim.raw.get("status") or {}).get("reservedFor") or ()
            span.set_attribute("dra.devices", [f"{device.pool}/{device.name}" for device in claim.devices])
            span.set_attribute("dra.pods", [str(user.get("name", "")) for user in users])
        return (yield)

    def dra_step(self, step: Step) -> AbstractContextManager[object] | None:
        """Begin a span for the step, current in its thread, so that inner steps are its children."""
        if self._tracer is None:
            return None
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 (only with tracing)
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 (only with tracing)
            TraceContextTextMapPropagator,
        )

        called = bool(step.metadata)
        return self._tracer.start_as_current_span(
            step.name,
            context=TraceContextTextMapPropagator().extract(step.metadata) if called else None,
            kind=SpanKind.SERVER if called else SpanKind.INTERNAL,
            attributes={"dra.driver": step.driver, **{f"dra.{name}": text for name, text in step.attributes.items()}},
        )

    def stop(self) -> None:
        """Send what is left, and end the thread that sends. The end of the process does this, too."""
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is not None:
            provider.shutdown()

    def _start(self, driver: str) -> None:
        from importlib.metadata import version  # noqa: PLC0415 (only with tracing)

        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 (a third of a second)
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 (likewise)
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 (likewise)

        exporter = self._exporter or _exporter(self._environment)
        service = self._environment.get("OTEL_SERVICE_NAME") or driver
        self._provider = TracerProvider(resource=Resource.create({"service.name": service}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("dra_sdk", version("dra-sdk"))


def wanted(environment: Mapping[str, str]) -> bool:
    """Return whether the environment asks for traces that this module can send. Warn if it asks for others."""
    if environment.get(DISABLED, "").lower() == "true":
        return False
    exporter = environment.get(EXPORTERS, "")
    if exporter in {"none", "console"}:
        return exporter == "console"
    if not any(environment.get(name) for name in ENDPOINTS):
        return False
    if exporter not in {"", "otlp"}:
        log.warning("no traces: %s=%s; the driver knows otlp, console and none", EXPORTERS, exporter)
        return False
    protocol = next(filter(None, map(environment.get, PROTOCOLS)), "grpc")
    if protocol != "grpc":
        log.warning(
            "no traces: the driver sends OTLP over gRPC (port 4317), but %s asks for %s", PROTOCOLS[1], protocol
        )
    return protocol == "grpc"


def _exporter(environment: Mapping[str, str]) -> SpanExporter:
    if environment.get(EXPORTERS) == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter  # noqa: PLC0415 (only with tracing)

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 (imports gRPC)

    timed = any(environment.get(name) for name in TIMEOUTS)
    return OTLPSpanExporter() if timed else OTLPSpanExporter(timeout=STOP_SECONDS)
