"""Asking our own sockets what the kubelet asks, so that "healthy" means "the kubelet would get an answer"."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import grpc

from dra_sdk.errors import DraError
from dra_sdk.node.kubelet.plugin import VERSIONS
from dra_sdk.node.kubelet.registration import SERVICE
from dra_sdk.node.kubelet.sockets import SocketPaths
from dra_sdk.wire.proto import dra_v1_pb2, pluginregistration_v1_pb2

TIMEOUT = 1.0  # seconds; the kubelet gives GetInfo no more


def probe(paths: SocketPaths, *, registration: bool = True, service: bool = True) -> None:
    """Call GetInfo and an empty prepare over the real sockets; DraError names the socket that does not answer."""
    if registration:
        info = pluginregistration_v1_pb2.PluginInfo
        _call(paths.registration, f"/{SERVICE}/GetInfo", pluginregistration_v1_pb2.InfoRequest(), info)
    if not service:
        return
    method = f"/{VERSIONS['v1.DRAPlugin'][0]}/NodePrepareResources"
    request = dra_v1_pb2.NodePrepareResourcesRequest()
    _call(paths.service, method, request, dra_v1_pb2.NodePrepareResourcesResponse)


def _call(socket: Path, method: str, request: object, response: type) -> None:
    with closing(grpc.insecure_channel(f"unix:{socket}")) as channel:
        call = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,  # type: ignore[attr-defined]
            response_deserializer=response.FromString,  # type: ignore[attr-defined]
        )
        try:
            call(request, timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise DraError(f"{socket} does not answer {method}: {error.details()}") from error
