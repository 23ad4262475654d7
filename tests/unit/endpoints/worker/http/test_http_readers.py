"""Reading HTTP from peers that may be hostile: whatever comes is read, or refused, in bounded memory."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.endpoints.worker.http.messages import (
    ANSWER_HEAD,
    LAST_CHUNK,
    MOST_HEAD_BYTES,
    encode_request,
    encode_token,
)
from testbed.endpoints.worker.http.readers import AnswerReader, HttpError, RequestReader

CHUNK = 100
MOST_BODY = 10_000


def answers(tokens: int = 2) -> AnswerReader:
    reader = AnswerReader()
    reader.expect(tokens=tokens, chunk_bytes=CHUNK)
    return reader


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(places=st.lists(st.integers(0, 700), max_size=20), tokens=st.integers(1, 4))
def test_an_answer_is_read_however_it_is_cut(places: list[int], tokens: int) -> None:
    data = ANSWER_HEAD + encode_token(CHUNK) * tokens + LAST_CHUNK
    reader = answers(tokens)
    for now, part in enumerate(cut(data, places)):
        reader.feed(part, now)
    assert reader.complete and reader.keeps_alive
    assert len(reader.tokens_ns) == tokens
    assert reader.tokens_ns == sorted(reader.tokens_ns)
    reader.expect(tokens=1, chunk_bytes=CHUNK)
    reader.feed(ANSWER_HEAD + encode_token(CHUNK) + LAST_CHUNK, 99)
    assert reader.tokens_ns == [99]


def test_a_token_has_the_time_of_its_last_byte() -> None:
    reader = answers(2)
    reader.feed(ANSWER_HEAD, 1)
    token = encode_token(CHUNK)
    reader.feed(token[:50], 2)
    assert reader.tokens_ns == []
    reader.feed(token[50:] + token[:-40], 3)
    assert reader.tokens_ns == [3]
    reader.feed(token[-40:] + LAST_CHUNK, 4)
    assert reader.tokens_ns == [3, 4] and reader.complete


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x01\x02\x03", "no HTTP"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "status 101"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "status 100"),
        (ANSWER_HEAD + LAST_CHUNK, "after 0 of 2 tokens"),
        (ANSWER_HEAD + encode_token(CHUNK) + LAST_CHUNK, "after 1 of 2 tokens"),
        (ANSWER_HEAD + encode_token(CHUNK) * 3, "more than 2 tokens"),
        (ANSWER_HEAD + b"ffffffffffffffff1\r\n", "no HTTP"),
        (ANSWER_HEAD + encode_token(CHUNK) * 2 + LAST_CHUNK + b"HTTP/1.1 200 OK\r\n", "answers twice"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, "too long"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "too long"),
        (ANSWER_HEAD + b"1;" + b"e" * 100_000, "too long"),
        (ANSWER_HEAD + encode_token(CHUNK) * 2 + b"0\r\n" + b"T: x\r\n" * 10_000, "too long"),
    ],
)
def test_an_answer_that_is_none(data: bytes, reason: str) -> None:
    reader = answers()
    with pytest.raises(HttpError, match=reason):
        for part in (data[at : at + 1000] for at in range(0, len(data), 1000)):
            reader.feed(part, 1)


def test_nobody_may_speak_unasked() -> None:
    with pytest.raises(HttpError, match="nobody asked"):
        AnswerReader().feed(b"HTTP/1.1 200 OK\r\n", 1)


def test_an_answer_that_ends_the_connection() -> None:
    reader = answers(1)
    head = ANSWER_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    reader.feed(head + encode_token(CHUNK) + LAST_CHUNK, 1)
    assert reader.complete and not reader.keeps_alive


@given(data=st.binary(max_size=3000), prefix=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", ANSWER_HEAD]))
def test_garbage_is_refused_or_waited_for(data: bytes, prefix: bytes) -> None:
    reader = answers()
    try:
        reader.feed(prefix + data, 1)
    except HttpError:
        return
    assert len(reader.tokens_ns) <= 2


@given(places=st.lists(st.integers(0, 1500), max_size=20), size=st.integers(1, 1400))
def test_a_request_is_read_however_it_is_cut(places: list[int], size: int) -> None:
    reader = RequestReader(MOST_BODY)
    for number in (17, 123_456):
        data = encode_request(number, "10.0.0.1", size)
        assert size - 2 <= len(data) <= max(size + 2, 200)
        for part in cut(data, places):
            assert reader.number is None
            reader.feed(part)
        assert reader.number == number
        reader.answered()


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff", "no HTTP"),
        (b"GET / HTTP/9.9\r\n\r\n", "no HTTP"),
        (HEAD + b"Content-Length: 0\r\n\r\n", "no number"),
        (HEAD + b"X-Request-Id: -1\r\nContent-Length: 0\r\n\r\n", "no number"),
        (HEAD + b"X-Request-Id: 99999999999999999999\r\nContent-Length: 0\r\n\r\n", "no number"),
        (HEAD + b"X-Request-Id: \xb2\r\nContent-Length: 0\r\n\r\n", "no number"),
        (HEAD + b"X-Request-Id: 1\r\nContent-Length: -5\r\n\r\n", "no HTTP"),
        (HEAD + b"X-Request-Id: 1\r\nContent-Length: 99999\r\n\r\n" + b"x" * 20_000, "more than 10000 bytes"),
        (HEAD + b"X-Request-Id: 1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ff\r\n" + b"x" * 255 + b"\r\n", None),
        (HEAD + b"X: " + b"y" * 100_000, "does not end"),
        (HEAD + b"X: y\r\n" * 20_000, "does not end"),
        (HEAD + b"X-Request-Id: 1\r\nContent-Length: 0\r\n\r\n" + HEAD, "before the last one is answered"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "no HTTP"),
    ],
)
def test_a_request_that_is_none(data: bytes, reason: str | None) -> None:
    reader = RequestReader(MOST_BODY)
    parts = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    if reason is None:
        for part in parts:
            reader.feed(part)
        assert reader.number is None
        return
    with pytest.raises(HttpError, match=reason):
        for part in parts:
            reader.feed(part)


@given(data=st.binary(max_size=3000), prefix=st.sampled_from([b"", HEAD, HEAD + b"X-Request-Id: 1\r\n"]))
def test_a_server_survives_garbage(data: bytes, prefix: bytes) -> None:
    reader = RequestReader(MOST_BODY)
    try:
        reader.feed(prefix + data)
    except HttpError:
        return
    assert reader.number is None or reader.number >= 0


def test_what_is_kept_of_a_header_is_bounded() -> None:
    reader = RequestReader(MOST_BODY)
    fed = 0
    with pytest.raises(HttpError, match="does not end"):
        reader.feed(HEAD)
        while fed < 10 * MOST_HEAD_BYTES:
            reader.feed(b"X: y\r\n")
            fed += 6
    assert fed <= MOST_HEAD_BYTES
