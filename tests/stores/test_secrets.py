"""What must not be remembered is refused or masked before it is written."""

from __future__ import annotations

from typing import Any

import pytest

from omoide import Entry, Scope, WriteRequest, open_store
from omoide.errors import Invalid, Refused
from omoide.stores import mask_secrets, refuse_secrets

ADA = Scope(agent_id="ada")
PATTERNED = {
    "an AWS key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a Slack token": "xoxb-" + "1234567890-abc",
    "a Google key": "AIza" + "x" * 35,
    "a Stripe key": "sk_live_" + "a1" * 10,
    "an API key": "sk-ant-" + "a1" * 15,
    "a JSON web token": "eyJhbGciOiJI" + ".eyJzdWIiOiIx" + ".SflKxwRJSMeK",
    "a bearer token": "Authorization: Bearer abcdef123456",
    "a password in a URL": "postgresql://ada:hunter2@db/x",
    "a password": "the password is hunter2!",
    "a card number": "4111 1111 1111 1111",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
}
HARMLESS = [
    "Ask Ada about the password policy.",
    "The secret is to stir slowly.",
    "Order 4111 1111 1111 1112 arrived.",  # a wrong check digit
    "See https://example.org/a:b@c for more",
    "0000 0000 0000 0000",
]


def entry(content: str, **fields: Any) -> Entry:
    return Entry.new(agent_id="ada", content=content, **fields)


@pytest.mark.parametrize("name", PATTERNED)
def test_a_secret_is_refused_by_name(name: str) -> None:
    """The error names what was found and never repeats it."""
    with pytest.raises(Refused) as caught:
        refuse_secrets()(entry(f"note: {PATTERNED[name]} end"))
    assert name in caught.value.found
    assert PATTERNED[name] not in str(caught.value)


@pytest.mark.parametrize("name", PATTERNED)
def test_a_secret_is_masked(name: str) -> None:
    """The rest of the text stays, the secret does not."""
    masked = mask_secrets()(entry(f"before {PATTERNED[name]} after")).content
    assert masked.startswith("before ")
    assert masked.endswith("after")
    assert "removed]" in masked
    assert refuse_secrets()(entry(masked)).content == masked


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_passes(text: str) -> None:
    """Speaking of secrets is no secret."""
    assert refuse_secrets()(entry(text)).content == text
    assert mask_secrets()(entry(text)).content == text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"rationale": PATTERNED["an AWS key"]}, "rationale"),
        ({"tags": ["ok", PATTERNED["an API key"]]}, "tags[1]"),
        ({"metadata": {"a": [{"b": PATTERNED["a Google key"]}]}}, "metadata.a[0].b"),
        ({"metadata": {"password": "hunter2!"}}, "metadata.password"),
        (
            {"evidence": [{"kind": "tool", "ref": "t1", "quote": PATTERNED["a Stripe key"]}]},
            "evidence[0].quote",
        ),
        ({"message": {"thread": "t", "seq": 0, "speaker": PATTERNED["a card number"]}}, "message.speaker"),
    ],
)
def test_secrets_are_found_in_every_field(fields: dict[str, object], field: str) -> None:
    """A secret is refused wherever an entry holds it, and masking leaves nothing of it."""
    with pytest.raises(Refused) as caught:
        refuse_secrets()(entry("text", **fields))
    assert caught.value.field == field
    masked = mask_secrets()(entry("text", **fields))
    assert refuse_secrets()(masked) == masked


@pytest.mark.parametrize(
    "field", ["id", "namespace", "user_id", "agent_id", "session_id", "project_id", "superseded_by"]
)
@pytest.mark.parametrize("guard", [refuse_secrets, mask_secrets])
def test_a_secret_in_an_id_is_refused_by_every_guard(field: str, guard: Any) -> None:
    """An id is not masked: two entries with different secrets would become one, and so would two scopes."""
    with pytest.raises(Refused) as caught:
        guard()(entry("text").replace(**{field: PATTERNED["a password in a URL"]}))
    assert caught.value.field == field
    with pytest.raises(Refused) as caught:
        guard()(entry("text", message={"thread": PATTERNED["an AWS key"], "seq": 0}))
    assert caught.value.field == "message.thread"


def test_a_number_as_an_id_is_no_card_number() -> None:
    """One of ten long numbers has the check digit of a card by chance, and ids are often long numbers."""
    numbered = entry("text", session_id="4111111111111111", user_id="4111 1111 1111 1111")
    assert refuse_secrets()(numbered) == mask_secrets()(numbered) == numbered


@pytest.mark.parametrize("url", ["memory://", "sqlite:///memory.db"])
def test_a_refused_entry_is_not_written(url: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one secret among several writes nothing is kept at all."""
    monkeypatch.chdir(str(tmp_path))
    store = open_store(url, embedder="none", guard="refuse").sync
    with pytest.raises(Refused):
        store.write_many(
            [WriteRequest(entry=entry("fine")), WriteRequest(entry=entry(PATTERNED["an API key"]))]
        )
    assert store.list_entries(ADA) == []
    store.close()


@pytest.mark.parametrize("url", ["memory://?guard=mask", "sqlite:///memory.db?guard=mask"])
def test_a_masked_entry_is_written_without_its_secret(
    url: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt shows what was really kept."""
    monkeypatch.chdir(str(tmp_path))
    store = open_store(url, embedder="none").sync
    receipt = store.write(WriteRequest(entry=entry(f"use {PATTERNED['an AWS key']} there")))
    assert receipt.entry.content == "use [an AWS key removed] there"
    assert store.get(receipt.id, ADA) == receipt.entry
    store.close()


def test_own_patterns_are_added_to_the_ready_ones() -> None:
    """A pattern of the user's refuses like the others; one that is no expression is bad input."""
    with pytest.raises(Refused, match="a badge"):
        refuse_secrets({"a badge": r"BADGE-\d+"})(entry("BADGE-17"))
    with pytest.raises(Invalid, match="a badge"):
        refuse_secrets({"a badge": "("})


@pytest.mark.parametrize("guard", ["loud", 7])
def test_a_guard_that_is_none_is_refused(guard: object) -> None:
    """The error names the choices."""
    with pytest.raises(Invalid, match="refuse, mask, off"):
        open_store("memory://", guard=guard)


def test_a_guard_that_gives_something_else_back_is_reported() -> None:
    """What a guard returns must be an entry."""
    store = open_store("memory://", embedder="none", guard=lambda kept: kept.content).sync
    with pytest.raises(Invalid, match="guard"):
        store.write(WriteRequest(entry=entry("text")))
