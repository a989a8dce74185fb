"""Commands that inspect hibernated agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result

from omoide import Scope
from omoide.stores import open_store

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.mark.usefixtures("resting")
def test_agents_at_rest_are_listed(omoide: Run, answer: Answer) -> None:
    """Those of the namespace, with the names of their spaces; JSON has their cards."""
    assert omoide("agents").stdout.splitlines() == [
        "ada\tplanner\t1\tnotes, tasks, world\t",
        "bob\tplanner\t1\tnotes, tasks, world\t",
        "new\tidle\t1\t\t",
    ]
    cards = {card["id"]: card for card in answer("agents")["agents"]}
    assert cards["ada"]["identity"]["capabilities"]["actions"] == ["plan"]
    assert (cards["new"]["identity"], cards["new"]["spaces"]) == (None, [])
    assert [card["id"] for card in answer("agents", "--namespace", "elsewhere")["agents"]] == ["eve"]
    assert omoide("agents", "--namespace", "nowhere", code=1).stderr == "Nothing found.\n"


def test_an_agent_that_cannot_be_read_hides_nobody(omoide: Run, resting: Path) -> None:
    """The others are listed, and what is wrong with it is told."""

    async def spoil() -> None:
        async with open_store(f"sqlite:///{resting}", embedder="none") as store:
            document = await store.load("checkpoint", "bob", Scope(agent_id="bob"))
            assert document is not None
            await store.save(document.replace(body="{}"), expected_rev=document.rev)

    anyio.run(spoil)
    shown = omoide("agents")
    assert [line.split("\t")[0] for line in shown.stdout.splitlines()] == ["ada", "bob", "new"]
    assert shown.stderr.startswith("bob cannot be read: ")
    assert [line.split("\t")[0] for line in omoide("who-can").stdout.splitlines()] == ["ada"]


@pytest.mark.usefixtures("resting")
def test_spaces_are_listed_and_shown(omoide: Run, answer: Answer) -> None:
    """What they are and how much they hold; one of them with its items, safe to look at."""
    rows = [line.split("\t") for line in omoide("spaces", "ada").stdout.splitlines()]
    assert [row[:3] for row in rows] == [
        ["notes", "list", "1"],
        ["tasks", "list", "0"],
        ["world", "map", "1"],
    ]
    assert omoide("spaces", "ada", "world").stdout == 'mood\t{"now":"calm \\u001b[31m"}\n'
    assert omoide("spaces", "ada", "notes").stdout == "0\tone\n"
    assert answer("spaces", "ada")["spaces"]["notes"]["data"] == ["one"]
    assert answer("spaces", "ada", "notes")["data"] == ["one"]
    assert omoide("spaces", "new", code=1).stderr == "Nothing found.\n"


@pytest.mark.usefixtures("resting")
def test_an_identity_is_shown(omoide: Run, answer: Answer) -> None:
    """Its public part, leaf by leaf; an agent may have none."""
    shown = dict(line.split(maxsplit=1) for line in omoide("identity", "ada").stdout.splitlines())
    assert shown == {
        "id": "ada",
        "name": "planner",
        "capabilities.actions": "plan",
        "capabilities.limits.tokens": "8000",
        "capabilities.tags": "calm",
        "profile.age": "3",
    }
    assert answer("identity", "ada")["identity"]["profile"] == {"age": 3}
    assert "identity of agent 'new' does not exist" in omoide("identity", "new", code=1).stderr


@pytest.mark.usefixtures("resting")
def test_who_can_do_something_is_told_with_the_reason(omoide: Run, answer: Answer) -> None:
    """By action, tags and limits, the most experienced first."""
    assert [one["id"] for one in answer("who-can", "plan")["agents"]] == ["bob", "ada"]
    shown = omoide("who-can", "plan", "--tag", "calm", "--limit-of", "tokens=2000").stdout
    assert shown == (
        "ada\tplanner: declares plan; carries the tag calm; tokens 8000 allows for 2000; is 3 years old\n"
    )
    assert [one["id"] for one in answer("who-can")["agents"]] == ["bob", "ada"]
    for asked in (["fly"], ["--tag", "wild"], ["--limit-of", "tokens=9e9"], ["--limit-of", "tokens=8000.5"]):
        assert omoide("who-can", *asked, code=1).stderr == "Nothing found.\n"


@pytest.mark.usefixtures("resting")
def test_who_can_do_something_is_told_by_what_it_needs_access_to(omoide: Run, answer: Answer) -> None:
    """A flag that is not declared is false, and one without a value is refused."""
    assert [one["id"] for one in answer("who-can", "plan", "--io", "network=false")["agents"]] == [
        "bob",
        "ada",
    ]
    assert omoide("who-can", "plan", "--io", "network=true", code=1).stderr == "Nothing found.\n"
    assert omoide("who-can", "--io", "network", code=2).stderr.startswith("omoide: --io ")


@pytest.mark.usefixtures("resting")
@pytest.mark.parametrize("limits", [["tokens"], ["=5"], ["a=1", "a=2"]], ids=str)
def test_a_limit_has_a_name_and_one_value(limits: list[str], omoide: Run) -> None:
    """Anything else is refused with a line that shows how it is written."""
    options = [word for one in limits for word in ("--limit-of", one)]
    assert omoide("who-can", *options, code=2).stderr.startswith("omoide: --limit-of ")


@pytest.mark.usefixtures("resting")
def test_what_is_not_there_is_named(omoide: Run) -> None:
    """An agent, also one of another namespace, and a space have code 1."""
    for command in ("spaces", "identity"):
        for id in ("nobody", "eve"):
            assert f"stored agent '{id}' does not exist" in omoide(command, id, code=1).stderr
    told = omoide("spaces", "ada", "dreams", code=1).stderr
    assert told == "omoide: space 'dreams' does not exist; agent 'ada' has: notes, tasks, world\n"
