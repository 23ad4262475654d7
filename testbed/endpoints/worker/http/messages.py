"""The messages of a connection: HTTP/1.1 requests, and answers in chunks (RFC 9112, section 7.1), as bytes.

They look like those of a server with OpenAI's interface, such as vLLM's: a POST with a prompt in JSON, and an answer of
server-sent events, one for each token.
"""

from __future__ import annotations

from functools import lru_cache

SERVER_PORT = 8000
"""The port on which servers listen: vLLM's default."""
REQUEST_NUMBER = b"x-request-id"
"""The field of a request's header that says which of the program's requests it is."""
ANSWER_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
REFUSAL = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MOST_HEAD_BYTES = 16_384
"""The most bytes of a header that anybody reads, as servers commonly have it."""
LONGEST_FRAMING = 8
"""An answer has at most this many times as many bytes as its body: chunks of one byte have six each."""
_BODY_BEGIN, _BODY_END = b'{"stream":true,"prompt":"', b'"}'
_EVENT_BEGIN, _EVENT_END = b"data: ", b"\n\n"


def encode_request(number: int, host: str, size_bytes: int) -> bytes:
    """Return a request of about `size_bytes` in all; of more where its header and an empty prompt need more."""
    least = len(_BODY_BEGIN) + len(_BODY_END)
    body_bytes = max(least, size_bytes - len(_head(number, host, size_bytes)))
    return b"".join((_head(number, host, body_bytes), _BODY_BEGIN, b"x" * (body_bytes - least), _BODY_END))


def _head(number: int, host: str, body_bytes: int) -> bytes:
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{SERVER_PORT}\r\nX-Request-Id: {number}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {body_bytes}\r\n\r\n"
    ).encode()


@lru_cache(maxsize=64)
def encode_token(chunk_bytes: int) -> bytes:
    """Return a chunk with one event of `chunk_bytes`."""
    padding = b"x" * (chunk_bytes - len(_EVENT_BEGIN) - len(_EVENT_END))
    return b"%x\r\n%b%b%b\r\n" % (chunk_bytes, _EVENT_BEGIN, padding, _EVENT_END)
