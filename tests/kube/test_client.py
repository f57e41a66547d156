from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dra_sdk.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from dra_sdk.kube import paths
from dra_sdk.kube.transport import ApiTimeouts
from dra_sdk.testing.waiting import LONG, wait
from tests.kube.scripted import Answer, Asked


def echo(asked: Asked) -> Answer:
    return Answer({"method": asked.method, "path": asked.path, "query": asked.query, "body": asked.body})


def status(code: int, message: str = "no", **headers: str) -> Answer:
    return Answer({"kind": "Status", "code": code, "reason": "Said", "message": message}, code, headers)


def test_get_sends_one_plain_request(serve, connect):
    server = serve(echo)
    client = connect(server.url, {"token": "secret"})
    assert client.get(paths.node("n1"), {"a": "b c"})["query"] == {"a": "b c"}
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", "/api/v1/nodes/n1")
    assert asked.headers["Authorization"] == "Bearer secret"
    assert asked.headers["User-Agent"] == "dra-sdk"
    assert client.server == server.url


def test_hostile_names_stay_names(serve, connect):
    server = serve(echo)
    connect(server.url).get(paths.resource_claim("ns", "../../nodes?x=y#z"))
    assert server.asked[0].target == (
        "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/..%2F..%2Fnodes%3Fx%3Dy%23z"
    )


def test_connections_are_reused_by_all_threads_in_turn(serve, connect):
    server = serve(echo)
    client = connect(server.url)
    for _ in range(3):
        thread = threading.Thread(target=client.get, args=("/version",))
        thread.start()
        thread.join()
    assert len({asked.peer for asked in server.asked}) == 1


def test_writes(serve, connect):
    server = serve(echo)
    client = connect(server.url)
    assert client.create("/c", {"metadata": {"name": "a"}})["method"] == "POST"
    assert client.update("/c/a", {"x": 1})["body"] == {"x": 1}
    assert client.patch("/c/a", {"x": 2})["method"] == "PATCH"
    client.apply("/c/a", {"x": 3}, field_manager="me")
    client.delete("/c/a", uid="u", resource_version="7")
    client.delete("/c/a")
    _, _, patched, applied, deleted, plain = server.asked
    assert patched.headers["Content-Type"] == "application/merge-patch+json"
    assert applied.headers["Content-Type"] == "application/apply-patch+yaml"
    assert applied.query == {"fieldManager": "me", "force": "true"}
    assert deleted.body["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert "preconditions" not in plain.body


def test_list_reads_every_page(serve, connect):
    pages = {None: (["a", "b"], "t1"), "t1": (["c"], "t2"), "t2": (["d"], None)}

    def answer(asked: Asked) -> Answer:
        items, token = pages[asked.query.get("continue")]
        return Answer({"items": items, "metadata": {"resourceVersion": "5", **({"continue": token} if token else {})}})

    server = serve(answer)
    found = connect(server.url).list("/c", {"fieldSelector": "spec.driver=d"})
    assert found["items"] == ["a", "b", "c", "d"]
    assert found["metadata"]["resourceVersion"] == "5"
    assert all(asked.query["fieldSelector"] == "spec.driver=d" for asked in server.asked)


def test_an_empty_list_may_be_null(serve, connect):
    server = serve(lambda _: Answer({"items": None, "metadata": {"resourceVersion": "5"}}))
    assert connect(server.url).list("/c")["items"] == []


def test_errors_name_verb_object_and_reason(serve, connect):
    server = serve(lambda asked: status(409 if asked.method == "PUT" else 404, "the reason"))
    client = connect(server.url)
    with pytest.raises(NotFoundError, match=r"^get resourceclaims ns/c: the API server answered 404 Said: the reason$"):
        client.get(paths.resource_claim("ns", "c"))
    with pytest.raises(ConflictError, match=r"^update resourceslices s: "):
        client.update(paths.resource_slice("s"), {})
    with pytest.raises(NotFoundError, match=r"^create resourceslices 00000-d-…: "):
        client.create(paths.resource_slices(), {"metadata": {"generateName": "00000-d-"}})
    with pytest.raises(NotFoundError, match=r"^get nodes n: "):
        client.get(paths.node("n"))
    assert len({each.peer for each in server.asked}) == 1  # an error does not cost the connection


def test_nobody_listens(serve, connect):
    client = connect("http://127.0.0.1:9")
    with pytest.raises(
        UnreachableError, match=r"get /version: no answer from http://127.0.0.1:9: .*Connection refused"
    ):
        client.get("/version")


def test_no_answer_in_time(serve, connect):
    release = threading.Event()
    server = serve(lambda _: Answer({"waited": release.wait(LONG)}))
    client = connect(server.url, timeouts=ApiTimeouts(LONG, 0.1, 60))
    with pytest.raises(UnreachableError, match="was not complete in time"):
        client.get("/version")
    wait(lambda: server.asked)  # a busy one takes a request late
    release.set()
    assert len(server.asked) == 1  # a slow server is not asked twice


def test_a_read_survives_a_kept_connection_that_died(serve, connect):
    server = serve(lambda _: Answer(hang_up=len(server.asked) == 2))
    client = connect(server.url)
    client.get("/version")
    client.get("/version")
    assert len(server.asked) == 3


def test_a_write_is_never_sent_twice(serve, connect):
    server = serve(lambda _: Answer(hang_up=True))
    with pytest.raises(UnreachableError):
        connect(server.url).create("/c", {})
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"", b"[" * 200_000])
def test_an_answer_that_is_no_object(serve, connect, body: bytes):
    server = serve(lambda _: Answer(body))
    with pytest.raises(UnreachableError, match=r"is (not (JSON|a JSON object)|nested too deeply)"):
        connect(server.url).get("/version")


def test_patience_waits_as_long_as_the_server_asks(serve, connect):
    answers = [status(429, **{"Retry-After": "0"}), status(503), Answer({"ok": True})]
    server = serve(lambda _: answers[len(server.asked) - 1])
    assert connect(server.url).get("/version", patience=20) == {"ok": True}


def test_patience_outlasts_a_server_that_has_not_read_its_roles(serve, connect):
    said = 'is forbidden: User "u" cannot get: RBAC: [clusterrole.rbac.authorization.k8s.io "dra-driver" not found]'
    answers = [Answer({"kind": "Status", "message": said, "reason": "Forbidden"}, 403), Answer({"ok": True})]
    server = serve(lambda _: answers[len(server.asked) - 1])
    assert connect(server.url).get("/version", patience=20) == {"ok": True}


def test_patience_does_not_repeat_what_is_forbidden(serve, connect):
    server = serve(lambda _: status(403))
    with pytest.raises(ApiError):
        connect(server.url).get("/version", patience=5)
    assert len(server.asked) == 1


def test_patience_ends(serve, connect):
    server = serve(lambda _: status(429, **{"Retry-After": "60"}))
    client = connect(server.url)
    with pytest.raises(ApiError) as caught:
        client.get("/version", patience=5)
    assert (caught.value.status, caught.value.retry_after) == (429, 60.0)
    assert len(server.asked) == 1


def test_patience_does_not_repeat_what_is_final(serve, connect):
    server = serve(lambda _: status(404))
    with pytest.raises(NotFoundError):
        connect(server.url).get("/version", patience=5)
    assert len(server.asked) == 1


def test_close_ends_patience(serve, connect):
    server = serve(lambda _: status(429, **{"Retry-After": "3600"}))
    client = connect(server.url)
    failed = threading.Event()

    def ask() -> None:
        with pytest.raises(ApiError):
            client.get("/version", patience=7200)
        failed.set()

    thread = threading.Thread(target=ask)
    thread.start()
    client.close()
    thread.join(LONG)
    assert failed.is_set()


def test_close_closes_idle_connections(connect):
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        client = connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        created = pool.submit(client.create, "/api/v1/namespaces", {"metadata": {"name": "a"}})
        with listener.accept()[0] as connection:
            connection.settimeout(LONG)
            asked = b""
            while not asked.endswith(b'{"metadata":{"name":"a"}}'):
                asked += connection.recv(10000)
            connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")
            assert created.result() == {}
            client.close()
            assert connection.recv(1) == b""


def test_credentials_are_read_again_after_a_401(serve, connect, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    server = serve(lambda asked: Answer() if asked.headers["Authorization"] == "Bearer new" else status(401))
    client = connect(server.url, {"tokenFile": str(token)})
    token.write_text("new")
    client.get("/version")
    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]


def test_of_two_requests_that_meet_a_401_both_profit_from_the_new_login(serve, connect, tmp_path):
    token, both = tmp_path / "token", threading.Barrier(2)
    token.write_text("old")

    def answer(asked: Asked) -> Answer:
        if asked.headers["Authorization"] == "Bearer new":
            return Answer({"ok": True})
        both.wait(20)
        return status(401)

    client = connect(serve(answer).url, {"tokenFile": str(token)})
    token.write_text("new")
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(client.get, "/version") for _ in range(2)]
        assert [each.result() for each in answers] == [{"ok": True}] * 2


def test_a_401_that_stays_names_where_the_credentials_come_from(serve, connect, tmp_path):
    server = serve(lambda _: status(401))
    client = connect(server.url, {"token": "t"})
    for _ in range(2):
        with pytest.raises(ApiError, match=r"401 Said: no \(logged in with kubeconfig .*/kubeconfig\)"):
            client.get("/version")
    assert len(server.asked) == 3  # one new login for both, not one each


def test_a_401_while_the_kubeconfig_is_gone_stays_a_401(serve, connect, tmp_path):
    server = serve(lambda _: status(401))
    client = connect(server.url, {"token": "t"})
    (tmp_path / "kubeconfig").unlink()
    with pytest.raises(ApiError, match="401"):
        client.get("/version")


def test_the_kubernetes_client_is_not_imported_early():
    code = """
import sys, dra_sdk.kube.client, dra_sdk.kube.paths, dra_sdk.node.slices.controller
print([name for name in ("kubernetes", "urllib3", "requests") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_many_threads_at_once(serve, connect):
    server = serve(echo)
    client = connect(server.url)
    got: list[str] = []

    def ask(number: int) -> None:
        got.extend(client.get(f"/c/{number}")["path"] for _ in range(20))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(f"/c/{number}" for number in range(12) for _ in range(20))
