"""Who may look: a token that is good for one login, and the cookies of browsers that have logged in."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict

_BYTES = 32
MOST_SESSIONS = 64
"""The browsers that may be logged in at once; one more ends the session that was used least recently."""
_LONGEST_COOKIE = 1 << 14


class Sessions:
    """The tokens and cookies of one console. Only their digests are kept.

    A token ends with its login, so that a link that somebody finds later in a log or a history is worth nothing.
    """

    def __init__(self, name: str) -> None:
        """`name` is that of the cookie. Browsers share cookies between the ports of a host, so it has the port."""
        self.cookie = name
        self._token = b""
        self._sessions: OrderedDict[bytes, None] = OrderedDict()

    def new_token(self) -> str:
        """Make a token for one login; the one before is worth nothing any more."""
        token = secrets.token_urlsafe(_BYTES)
        self._token = _digest(token)
        return token

    def log_in(self, token: str) -> str | None:
        """Return the cookie's value that a browser gets for a token, which is used up by that; None for a wrong one."""
        if not self._token or not hmac.compare_digest(_digest(token), self._token):
            return None
        self._token = b""
        value = secrets.token_urlsafe(_BYTES)
        self._sessions[_digest(value)] = None
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return value

    def knows(self, cookies: str) -> bool:
        """Tell whether a request's `Cookie` header has a session's cookie."""
        if len(cookies) > _LONGEST_COOKIE:
            return False
        for cookie in cookies.split(";"):  # one by one: those of other programs at this host may be anything
            name, _, value = cookie.strip().partition("=")
            if name == self.cookie and (digest := _digest(value)) in self._sessions:
                self._sessions.move_to_end(digest)
                return True
        return False

    def cookie_header(self, value: str, *, secure: bool) -> str:
        """Return the `Set-Cookie` header of a session (RFC 6265bis): no script reads it, no other site has it sent."""
        return f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
