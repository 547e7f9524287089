"""node.serve.guard: who may ask."""

from __future__ import annotations

import pytest

from bt_p2p.errors import ConfigError
from node.serve.guard import check_exposure

KEY = "secret-key"


@pytest.mark.parametrize(
    ("host", "api_key"),
    [("127.0.0.1", None), ("127.9.9.9", None), ("::1", None), ("0.0.0.0", KEY), ("::", KEY)],
)
def test_this_machine_needs_no_key_and_others_do(host: str, api_key: str | None) -> None:
    """Loopback, or a key."""
    check_exposure(host, api_key)


@pytest.mark.parametrize(
    ("host", "api_key", "part"),
    [
        ("0.0.0.0", None, "can be reached from other machines; set an API key"),
        ("::", None, "can be reached from other machines"),
        ("192.168.1.5", None, "can be reached from other machines"),
        ("localhost", None, "host 'localhost' is not an IP address"),
        ("127.0.0.1", "", "the API key must be"),
        ("127.0.0.1", "two words", "the API key must be"),
        ("127.0.0.1", "schlüssel", "the API key must be"),
    ],
)
def test_what_would_let_strangers_in_is_refused(host, api_key, part) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=part):
        check_exposure(host, api_key)


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY}x"]
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions", "/elsewhere"])
def test_without_the_key_nothing_is_told(site, header, path) -> None:
    """Whatever the path is."""
    headers = {} if header is None else {"Authorization": header}
    done = site(api_key=KEY).http.get(path, headers=headers)
    assert (401, "Bearer", "invalid_api_key") == (
        done.status_code, done.headers["WWW-Authenticate"], done.json()["error"]["code"],
    )  # fmt: skip
    assert KEY not in done.text


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
def test_the_key_opens(site, kind) -> None:
    """The scheme's case does not matter; nor does the host that was called."""
    headers = {"Authorization": f"{kind} {KEY}", "Host": "example.org"}
    assert 200 == site(api_key=KEY).http.get("/v1/models", headers=headers).status_code


def test_health_needs_no_key(site) -> None:
    """What watches a server cannot use it."""
    assert 200 == site(api_key=KEY).http.get("/healthz").status_code


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("example.org", 403),
        ("localhost.example.org", 403),
        ("127.0.0.1.example.org:8000", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_without_a_key_only_this_machine_is_answered(site, host, status) -> None:
    """A web page that points its own name here is not."""
    assert status == site().http.get("/v1/models", headers={"Host": host}).status_code
