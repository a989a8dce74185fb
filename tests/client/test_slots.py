"""Users and keys through the service."""

from __future__ import annotations

import pytest

from omoide import Scope
from omoide.client import Client
from omoide.errors import Conflict, Invalid, NotFound

ANN = Scope(agent_id="ada", user_id="ann")
BOB = Scope(agent_id="ada", user_id="bob")


def test_the_next_value_of_a_key_replaces_the_one_before(client: Client) -> None:
    """The receipt names the old value; `If-Match` refers to the live one."""
    client.remember("Berlin.", ANN, key="city", id="a", expected_rev=0)
    receipt = client.remember("Paris.", ANN, key="city", id="b", expected_rev=1)
    assert (receipt.outcome, receipt.superseded, receipt.entry.key) == ("superseded", "a", "city")
    with pytest.raises(Conflict):
        client.remember("Rome.", ANN, key="city", expected_rev=1)
    assert client.remember("Paris.", ANN, key="city").outcome == "duplicate_of"
    assert [entry.id for entry in client.page(ANN, key="city").entries] == ["b"]
    history = client.page(ANN, key="city", include_superseded=True).entries
    assert sorted(entry.id for entry in history) == ["a", "b"]
    assert [entry.id for entry in client.recall("which city?", ANN, key="city").entries] == ["b"]
    assert client.reinstate("a", ANN).superseded_by is None
    assert [entry.id for entry in client.page(ANN, key="city").entries] == ["a"]
    with pytest.raises(Invalid):
        client.remember("x", ANN, key="a\nb")


def test_a_user_sees_no_other(client: Client) -> None:
    """The parameter `user` narrows every route."""
    client.remember("Likes tea.", ANN, key="drink", id="a")
    assert client.remember("Likes tea.", BOB, key="drink", id="b").outcome == "stored"
    assert client.get("a", ANN).user_id == "ann"
    with pytest.raises(NotFound):
        client.get("a", BOB)
    assert [entry.id for entry in client.recall("who likes tea?", Scope(user_id="bob")).entries] == ["b"]
    assert client.erase(Scope(user_id="bob")).ids == ("b",)
    assert [entry.id for entry in client.page(ANN).entries] == ["a"]


def test_a_user_is_erased_through_the_service(client: Client) -> None:
    """Of every agent, with one receipt; an id that names nobody is refused before anything is sent."""
    for agent in ("ada", "eve"):
        for user in ("ann", "bob"):
            owner = Scope(agent_id=agent, user_id=user)
            client.remember("Likes tea.", owner, id=f"{agent}-{user}")
    for wrong in ("", None, 5):
        with pytest.raises(Invalid, match="user_id"):
            client.erase_user(wrong)  # type: ignore[arg-type]
    receipt = client.erase_user("ann", reason="account closed")
    assert (sorted(receipt.ids), receipt.reason) == (["ada-ann", "eve-ann"], "account closed")
    assert client.page(Scope(user_id="ann")).entries == ()
    assert sorted(entry.id for entry in client.page(Scope(user_id="bob")).entries) == ["ada-bob", "eve-bob"]
