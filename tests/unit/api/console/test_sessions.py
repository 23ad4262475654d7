"""Tokens are good for one login, and cookies for the browsers that have logged in."""

from testbed.api.console.sessions import MOST_SESSIONS, Sessions


def cookie(sessions: Sessions) -> str:
    value = sessions.log_in(sessions.new_token())
    assert value is not None
    return f"{sessions.cookie}={value}"


def test_a_token_is_good_for_one_login() -> None:
    sessions = Sessions("c")
    token = sessions.new_token()
    assert sessions.log_in(token) is not None
    assert sessions.log_in(token) is None


def test_a_newer_token_ends_the_one_before_and_nothing_else_logs_in() -> None:
    sessions = Sessions("c")
    assert sessions.log_in("") is None
    old = sessions.new_token()
    new = sessions.new_token()
    assert sessions.log_in(old) is None
    assert sessions.log_in(new + "x") is None
    assert sessions.log_in("\udc80") is None
    assert sessions.log_in(new) is not None


def test_a_cookie_is_known_among_others_and_no_other_is() -> None:
    sessions = Sessions("c")
    own = cookie(sessions)
    assert sessions.knows(own)
    assert sessions.knows(f"theme=dark; {own}; x=y")
    assert not sessions.knows("")
    assert not sessions.knows("c=guess")
    assert not sessions.knows(own.replace("c=", "d="))
    assert not sessions.knows(f"{own}; " + "x" * 20_000)


def test_cookies_of_other_programs_at_this_host_may_be_anything() -> None:
    sessions = Sessions("c")
    own = cookie(sessions)
    for other in ('prefs={"a": [1, 2]}', "=", ";;", "b@d name=1", 'q="', "c=old"):
        assert sessions.knows(f"{other}; {own}")
        assert sessions.knows(f"{own}; {other}")


def test_the_session_that_was_used_least_recently_ends_first() -> None:
    sessions = Sessions("c")
    first, second = cookie(sessions), cookie(sessions)
    for _ in range(MOST_SESSIONS - 2):
        cookie(sessions)
    assert sessions.knows(first)  # used now
    cookie(sessions)
    assert sessions.knows(first)
    assert not sessions.knows(second)


def test_no_script_reads_the_cookie_and_no_other_site_sends_it() -> None:
    sessions = Sessions("c")
    assert sessions.cookie_header("v", secure=False) == "c=v; Path=/; HttpOnly; SameSite=Strict"
    assert sessions.cookie_header("v", secure=True).endswith("; Secure")
