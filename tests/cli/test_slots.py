"""Users and keys on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
Answer = Callable[..., Any]


def test_the_next_value_of_a_key_replaces_the_one_before(omoide: Run, answer: Answer) -> None:
    """The receipt says which one; the key finds the value, and on request those before."""
    omoide("remember", "Berlin.", "--key", "home_city", "--id", "a")
    receipt = answer("remember", "Paris.", "--key", "home_city", "--id", "b", "--expected-rev", "1")
    assert (receipt["outcome"], receipt["superseded"], receipt["entry"]["key"]) == (
        "superseded",
        "a",
        "home_city",
    )
    omoide("remember", "A city.", "--id", "plain")
    ids = [entry["id"] for entry in answer("list", "--key", "home_city")["entries"]]
    assert ids == ["b"]
    history = answer("list", "--key", "home_city", "--forgotten")["entries"]
    assert sorted(entry["id"] for entry in history) == ["a", "b"]
    hits = answer("recall", "which city?", "--key", "home_city")["hits"]
    assert [hit["entry"]["id"] for hit in hits] == ["b"]
    refused = omoide("remember", "Rome.", "--key", "home_city", "--expected-rev", "1", code=3)
    assert "home_city" in refused.stderr
    omoide("restore", "a")
    assert [entry["id"] for entry in answer("list", "--key", "home_city")["entries"]] == ["a"]
    assert "home_city" in omoide("show", "a").stdout


def test_a_user_sees_no_other(omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, or the variable, narrows every command; without one all users are seen."""
    omoide("remember", "Likes tea.", "--user", "ann", "--id", "a", "--key", "drink")
    monkeypatch.setenv("OMOIDE_USER", "bob")
    assert answer("remember", "Likes tea.", "--id", "b", "--key", "drink")["outcome"] == "stored"
    assert [entry["id"] for entry in answer("list")["entries"]] == ["b"]
    assert "does not exist" in omoide("show", "a", code=1).stderr
    assert sorted(entry["id"] for entry in answer("list", "--user", "")["entries"]) == ["a", "b"]
    assert "user bob" in omoide("erase", "--all", "--dry-run").output
    omoide("erase", "--all", "--yes")
    monkeypatch.delenv("OMOIDE_USER")
    assert [entry["id"] for entry in answer("list")["entries"]] == ["a"]


def test_users_and_keys_are_exported_and_imported(omoide: Run, answer: Answer) -> None:
    """JSON Lines bring them back, and the values of slots with their history."""
    omoide("remember", "Berlin.", "--key", "city", "--id", "a", "--user", "ann")
    omoide("remember", "Paris.", "--key", "city", "--id", "b", "--user", "ann")
    omoide("export", "memories.jsonl")
    before = answer("list", "--forgotten")
    omoide("erase", "--all", "--yes")
    omoide("import", "memories.jsonl", "--store", "other.db")
    again = answer("list", "--forgotten", "--store", "other.db")
    assert sorted(again["entries"], key=str) == sorted(before["entries"], key=str)
    receipt = answer("remember", "Rome.", "--key", "city", "--user", "ann", "--store", "other.db")
    assert receipt["superseded"] == "b"
