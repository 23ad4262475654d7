"""Attacks on the console: each works where there is no guard, and does not where there is one."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from asgi import HOST, ORIGIN, Answer, ask, open_socket

from testbed.api.console.guard import CONTENT_SECURITY_POLICY, WEBSOCKET_REFUSED, ConsoleGuard, Names
from testbed.api.console.sessions import Sessions

NAMES = Names.of("127.0.0.1", 9470)


async def naive(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
    """An application that does what it is told by anybody."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


def logged_in() -> tuple[ConsoleGuard, dict[str, str]]:
    sessions = Sessions("c")
    value = sessions.log_in(sessions.new_token())
    return ConsoleGuard(naive, NAMES, sessions), {"cookie": f"c={value}"}


def asked(app: Any, method: str, path: str, headers: Mapping[str, str]) -> Answer:
    return asyncio.run(ask(app, method, path, headers=headers))


ATTACKS = {
    "DNS rebinding: a stranger's name, resolved to us": ("GET", "/api/labs", {"host": "evil.example:9470"}),
    "another port of ours": ("GET", "/api/labs", {"host": "127.0.0.1:80"}),
    "a form of another site": ("POST", "/api/actions/x", {"origin": "https://evil.example"}),
    "a form of another port of this machine": ("POST", "/api/actions/x", {"origin": "http://127.0.0.1:8000"}),
    "a form of a page without an origin (sandbox)": ("POST", "/api/actions/x", {"origin": "null"}),
    "a request that says nothing of where it is from": ("PUT", "/api/files/x", {"origin": ""}),
    "a picture of another site that opens our streams": ("GET", "/api/stream", {"sec-fetch-site": "cross-site"}),
    "the same of another port of this machine": ("GET", "/api/stream", {"sec-fetch-site": "same-site"}),
    "nobody's cookie": ("GET", "/api/labs", {"cookie": ""}),
    "a guessed cookie": ("GET", "/api/labs", {"cookie": "c=guess"}),
    "a name with a user before it": ("GET", "/api/labs", {"host": f"{HOST}@evil.example"}),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_works_without_the_guard_and_not_with_it(attack: str) -> None:
    method, path, headers = ATTACKS[attack]
    guard, cookie = logged_in()
    assert asked(naive, method, path, {**cookie, **headers}).body == b"done"
    refused = asked(guard, method, path, {**cookie, **headers})
    assert refused.status in (401, 403)
    assert refused.json["error"]["message"]
    assert asked(guard, method, path, cookie).body == b"done"  # our own page may


def test_a_websocket_of_another_site_is_refused() -> None:
    guard, cookie = logged_in()
    path = "/api/labs/demo/shell/h1"
    attacks: list[dict[str, str]] = [
        {"origin": "https://evil.example"},
        {"origin": ""},
        {"host": "evil.example:9470", "origin": "http://evil.example:9470"},
        {"cookie": "c=guess"},
    ]
    for headers in attacks:
        assert asyncio.run(open_socket(naive, path, headers={**cookie, **headers})) is None
        assert asyncio.run(open_socket(guard, path, headers={**cookie, **headers})) == WEBSOCKET_REFUSED
    assert asyncio.run(open_socket(guard, path, headers=cookie)) is None


def test_what_a_browser_needs_to_log_in_is_there_for_all() -> None:
    guard, _ = logged_in()
    for path in ("/", "/static/core/main.js", "/favicon.ico"):
        assert asked(guard, "GET", path, {}).status == 200
    assert asked(guard, "POST", "/login", {}).status == 200
    assert asked(guard, "POST", "/login", {"origin": "https://evil.example"}).status == 403
    assert asked(guard, "GET", "/static", {}).status == 401  # no file of the page


def test_every_answer_says_what_a_browser_may_do_with_it() -> None:
    guard, cookie = logged_in()
    for answer in (asked(guard, "GET", "/api/labs", cookie), asked(guard, "GET", "/api/labs", {})):
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert "cache-control" not in asked(guard, "GET", "/static/core/main.js", {}).headers


def test_no_script_but_ours_is_run() -> None:
    policy = dict(part.split(" ", 1) for part in CONTENT_SECURITY_POLICY.split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_an_answer_with_a_stricter_policy_keeps_it() -> None:
    async def report(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-security-policy", b"sandbox")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    assert asked(ConsoleGuard(report, NAMES, None), "GET", "/", {}).headers["content-security-policy"] == "sandbox"


def test_a_service_of_a_lab_needs_no_login_and_still_knows_its_name() -> None:
    guard = ConsoleGuard(naive, Names.of("10.1.0.1", 9470), None)
    assert asked(guard, "GET", "/api/labs", {"host": "10.1.0.1:9470"}).status == 200
    assert asked(guard, "GET", "/api/labs", {"host": HOST}).status == 403


@pytest.mark.parametrize(
    ("names", "known", "strange"),
    [
        (
            NAMES,
            ["127.0.0.1:9470", "localhost:9470", "[::1]:9470", "LOCALHOST:9470"],
            ["localhost", "x.localhost:9470"],
        ),
        (
            Names.of("0.0.0.0", 443, ["lab.example"]),
            ["192.0.2.1", "lab.example:443", "[2001:db8::1]"],
            ["evil.example"],
        ),
        (Names(hosts=frozenset({"localhost"}), port=None), ["localhost:1", "localhost"], ["127.0.0.1", "", ":80"]),
    ],
)
def test_names(names: Names, known: list[str], strange: list[str]) -> None:
    assert [name for name in known if not names.know(name)] == []
    assert [name for name in strange if names.know(name)] == []


def test_by_tls_the_origin_is_another_one() -> None:
    sessions = Sessions("c")
    value = sessions.log_in(sessions.new_token())
    guard = ConsoleGuard(naive, NAMES, sessions, secure=True)
    headers = {"cookie": f"c={value}"}
    assert asked(guard, "POST", "/api/x", headers).status == 403  # from plain HTTP
    assert asked(guard, "POST", "/api/x", {**headers, "origin": ORIGIN.replace("http:", "https:")}).status == 200
