"""node.serve.schema: what a request may say."""

from __future__ import annotations

import json

import pytest

from node.serve.api_error import ApiError
from node.serve.schema import parse_request


def parse(**fields: object):
    """Parse a request with these fields beside a model and a prompt."""
    return parse_request(json.dumps({"model": "m", "prompt": "p", **fields}).encode())


def test_defaults_are_those_of_openai() -> None:
    """16 tokens, temperature 1, no nucleus."""
    found = parse()
    assert (16, 1.0, 1.0, None, ()) == (
        found.max_tokens, found.temperature, found.top_p, found.seed, found.stop,
    )  # fmt: skip
    assert [False] * 3 == [found.stream, found.echo, found.include_usage]


def test_null_is_the_same_as_nothing() -> None:
    """Clients send it for what is not set, also in fields that are not supported."""
    names = ("max_tokens", "seed", "stop", "stream_options", "logprobs", "suffix", "unheard_of")
    assert parse() == parse(**dict.fromkeys(names))


def test_what_changes_nothing_is_accepted() -> None:
    """Neutral values of unsupported fields, and fields that no text depends on."""
    neutral = {"n": 1, "best_of": 1, "presence_penalty": 0.0, "logit_bias": {}, "suffix": ""}
    assert parse() == parse(**neutral, user="me", metadata={"a": "b"}, store=True)


def test_one_text_may_come_in_a_list() -> None:
    """Prompt and stop."""
    assert ("p", ("x",)) == (parse(prompt=["p"]).prompt, parse(stop="x").stop)
    assert ("x", "y") == parse(stop=["x", "y"]).stop


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", ""),
        ("prompt", []),
        ("prompt", ["a", "b"]),
        ("prompt", [1, 2]),
        ("prompt", 5),
        ("model", 5),
        ("max_tokens", 0),
        ("max_tokens", "5"),
        ("max_tokens", 1.5),
        ("temperature", -1),
        ("temperature", 11),
        ("top_p", 0),
        ("top_p", 1.1),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", ""),
        ("stop", [""]),
        ("stop", list("abcde")),
        ("stop", "x" * 257),
        ("stop", {"a": 1}),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("logprobs", 6),
        ("logprobs", True),
        ("mode", "fast"),
        ("n", 2),
        ("best_of", 3),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("logit_bias", {"5": 1}),
        ("suffix", "end"),
        ("tools", []),
    ],
)
def test_what_would_change_the_text_is_refused_by_its_name(field: str, value: object) -> None:
    """In OpenAI's shape."""
    with pytest.raises(ApiError) as caught:
        parse(**{field: value})
    error = caught.value.document()["error"]
    assert (400, field, "invalid_request_error") == (
        caught.value.status, error["param"], error["type"],
    )  # fmt: skip
    assert error["message"].startswith(f"'{field}' ")


@pytest.mark.parametrize("field", ["model", "prompt"])
def test_a_missing_field_is_named(field: str) -> None:
    """Null is missing, too."""
    with pytest.raises(ApiError, match=f"'{field}' is missing") as caught:
        parse(**{field: None})
    assert field == caught.value.param


def test_echo_has_no_log_probabilities() -> None:
    """The prompt's are not computed."""
    with pytest.raises(ApiError) as caught:
        parse(echo=True, logprobs=0)
    assert "echo" == caught.value.param


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"prompt": "\\ud800"}', b'{"top_p": NaN}', b"[" * 9999]
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """Half characters and nesting included."""
    with pytest.raises(ApiError, match="the body") as caught:
        parse_request(body)
    assert 400 == caught.value.status
