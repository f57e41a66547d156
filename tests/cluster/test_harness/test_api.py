"""A server that is too busy for a connection is asked again, by requests and by kubectl."""

from __future__ import annotations

import socket
import ssl
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.harness import HarnessError, pki
from tests.cluster.harness.api import Api
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import TIMEOUT

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"kind": "Pod"}'
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
ONCE_BUSY = """#!/bin/sh
echo x >>{folder}/asked
if [ $(wc -l <{folder}/asked) = 1 ]; then echo 'Unable to connect to the server: TLS handshake timeout' >&2; exit 1; fi
case "$*" in *get*) echo 'no such pod' >&2; exit 1 ;; esac
cat
"""


def serve(listener: socket.socket, authority: pki.Authority) -> None:
    """Drops the first connection before TLS, breaks off the second one within the answer, and answers the third."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate("server"), authority.key("server"))
    listener.settimeout(TIMEOUT)
    first, _ = listener.accept()
    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    first.close()
    for answer in (ANSWER[:-5], ANSWER):
        accepted, _ = listener.accept()
        with context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(10000)
            connection.sendall(answer)


def test_a_request_is_repeated(tmp_path):
    authority = pki.Authority(tmp_path / "pki")
    authority.create()
    authority.issue("server", "server", hosts=["127.0.0.1"])
    authority.issue("admin", "admin")
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve, listener, authority)
        api = Api(authority, f"https://127.0.0.1:{listener.getsockname()[1]}")
        assert api.get("/api/v1/namespaces/default/pods/lit") == {"kind": "Pod"}
        done.result()


def test_kubectl_is_repeated_and_any_other_error_is_raised_at_once(layout, make_state, tmp_path):
    program = tmp_path / "kube/1.36.3/kubectl"
    program.parent.mkdir(parents=True)
    program.write_text(ONCE_BUSY.format(folder=tmp_path))
    program.chmod(0o755)
    cluster = Cluster(layout, make_state(cache=str(tmp_path)), Progress())
    assert cluster.kubectl("apply", "-f", "-", input="made") == "made"
    with pytest.raises(HarnessError, match="kubectl get pod lit failed: no such pod"):
        cluster.kubectl("get", "pod", "lit")
    assert (tmp_path / "asked").read_text() == "x\n" * 3
