"""Scope does not hide: reads see all agents, empty answers say what lies elsewhere, owners can be listed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.fixture
def agents(omoide: Run) -> None:
    """A store in which three agents, two users and two namespaces have memories."""
    for number in range(3):
        omoide("remember", f"Order {number} was late.", "--id", f"s{number}", "--agent", "support")
    omoide("remember", "Margins are thin.", "--id", "sale", "--agent", "sales", "--user", "u1")
    omoide("remember", "The default knows tea.", "--id", "own")
    omoide("remember", "Of the team.", "--id", "team", "--namespace", "team")


@pytest.mark.usefixtures("agents")
def test_reading_sees_all_agents_and_says_whose_a_memory_is(omoide: Run, answer: Answer) -> None:
    """List, recall and show find what any agent knows; who names an agent sees that one's alone."""
    assert {entry["id"] for entry in answer("list")["entries"]} == {"s0", "s1", "s2", "sale", "own"}
    assert "agent support" in omoide("recall", "which order was late?").stdout
    rows = dict(line.split("\t")[::4] for line in omoide("list").stdout.splitlines())
    assert (rows["sale"], rows["own"]) == ("sales", "default")
    assert answer("show", "sale")["entry"]["agent_id"] == "sales"
    assert [entry["id"] for entry in answer("list", "--agent", "sales")["entries"]] == ["sale"]


@pytest.mark.usefixtures("agents")
def test_a_memory_is_changed_by_its_id_whoever_has_it(omoide: Run, answer: Answer) -> None:
    """Forget, restore, history and erase go by the id; an agent that is named has to be the one."""
    omoide("forget", "s1", "--agent", "sales", code=1)
    omoide("forget", "s1")
    assert len(answer("history", "s1")["versions"]) == 2
    omoide("restore", "s1")
    omoide("erase", "s1", "--yes")
    omoide("show", "s1", code=1)


@pytest.mark.usefixtures("agents")
def test_a_memory_is_pinned_by_its_id_whoever_has_it(omoide: Run, answer: Answer) -> None:
    """Pins of all agents and users are listed, and an agent or user that is named has to be the one."""
    omoide("pin", "sale", "--agent", "support", code=1)
    for id in ("sale", "s1", "own"):
        omoide("pin", id)
    assert {entry["id"] for entry in answer("pin", "--list")["entries"]} == {"sale", "s1", "own"}
    assert "sale  Margins are thin.  (agent sales, user u1)" in omoide("pin", "--list").stdout
    assert [entry["id"] for entry in answer("pin", "--list", "--user", "u1")["entries"]] == ["sale"]
    omoide("unpin", "sale")
    assert {entry["id"] for entry in answer("pin", "--list")["entries"]} == {"s1", "own"}


@pytest.mark.usefixtures("agents")
def test_erasing_everything_is_for_one_agent(omoide: Run, answer: Answer) -> None:
    """What is written goes to one agent, and so does what removes many at once."""
    assert [entry["id"] for entry in answer("erase", "--all", "--dry-run")["entries"]] == ["own"]
    omoide("erase", "--all", "--yes")
    assert {entry["id"] for entry in answer("list")["entries"]} == {"s0", "s1", "s2", "sale"}


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize("command", [["list"], ["recall", "tea"]], ids=" ".join)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--agent", "nobody"],
            "nothing of agent nobody; 5 of others: --agent support (3), --agent default (1), --agent sales",
        ),
        (["--agent", "sales", "--user", "u2"], "nothing of user u2, agent sales; 5 of others: --user u1 (1)"),
        (["--namespace", "none"], "nothing in namespace none; others: --namespace default, --namespace team"),
        (["--namespace", "team", "--agent", "x"], "nothing of agent x; 1 of others: --agent default"),
        (["--session", "s9"], "nothing of session s9; 5 of others: --session ''"),
    ],
    ids=["agent", "user", "namespace", "one", "session"],
)
def test_an_empty_answer_says_what_lies_elsewhere(
    command: list[str], options: list[str], told: str, omoide: Run, answer: Answer
) -> None:
    """People read it on standard error, programs among the notices; the options lead there."""
    empty = omoide(*command, *options, code=1)
    assert (empty.stdout, empty.stderr[: len("Nothing found.\n")]) == ("", "Nothing found.\n")
    assert told in empty.stderr
    (notice,) = answer(*command, *options, code=1)["notices"]
    assert notice.startswith(told)


@pytest.mark.usefixtures("agents")
def test_what_is_forgotten_lies_nowhere(omoide: Run) -> None:
    """Only memories in use count; where there are none the answer is plain."""
    omoide("forget", "team", "--namespace", "team")
    assert omoide("list", "--namespace", "team", "--agent", "x", code=1).stderr == "Nothing found.\n"


def test_a_session_is_recalled_without_naming_its_agent(omoide: Run, answer: Answer) -> None:
    """The agent follows from the session; a session of several agents asks which."""
    omoide("remember", "The order was late.", "--agent", "support", "--session", "c1")
    assert answer("recall", "order", "--session", "c1")["hits"][0]["entry"]["agent_id"] == "support"
    omoide("remember", "The order was early.", "--agent", "sales", "--session", "c1")
    refused = omoide("recall", "order", "--session", "c1", code=2).stderr
    assert "is of several agents; name one of sales, support with --agent" in refused


@pytest.mark.usefixtures("agents")
def test_an_error_names_the_scope_that_was_searched(omoide: Run) -> None:
    """A person sees at once which option was wrong."""
    told = omoide("show", "s1", "--agent", "sales", "--project", "p", code=1).stderr
    assert told.endswith("the scope that was searched: namespace default, agent sales, project p\n")


@pytest.mark.usefixtures("agents")
def test_doctor_counts_everything(omoide: Run, answer: Answer) -> None:
    """All namespaces and agents, and beside them the part that the settings select."""
    omoide("forget", "s2")
    checks = {one["name"]: one["detail"] for one in answer("doctor", "--agent", "sales")["checks"]}
    assert checks["entries"] == "5 in use, 1 forgotten, 0 stale, 0 expired in the whole store"
    assert checks["namespace default"] == "5 entries: agents support 3, default 1, sales 1"
    assert checks["namespace team"] == "1 entries: agents default 1"
    assert checks["scope"].startswith("1 in use, 0 forgotten, 0 stale, 0 expired in namespace default, agent")
    assert "scope" not in {one["name"] for one in answer("doctor")["checks"]}


@pytest.mark.usefixtures("agents")
def test_users_agents_projects_and_namespaces_are_listed(answer: Answer, omoide: Run) -> None:
    """With the number of their memories; a namespace without any is empty."""
    assert answer("owners")["owners"][-1] == {
        "user": "u1",
        "agent": "sales",
        "project": "",
        "live": 1,
        "entries": 1,
    }
    for by, counts in {
        "agent": {"default": 1, "sales": 1, "support": 3},
        "user": {"": 4, "u1": 1},
        "project": {"": 5},
        "namespace": {"default": 5, "team": 1},
    }.items():
        assert {one[by]: one["live"] for one in answer("owners", "--by", by)["owners"]} == counts
    omoide("owners", "--namespace", "none", code=1)


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize("file", ["all.jsonl", "all.nq"])
def test_what_was_exported_of_all_agents_is_imported(file: str, omoide: Run, answer: Answer) -> None:
    """Each memory stays with its agent; one that names none becomes that of the default agent."""
    assert answer("export", file)["memories"] == 5
    assert answer("import", file, "--store", "other.db")["new"] == 5
    Path("bare.jsonl").write_text('{"content": "Of nobody."}\n')
    omoide("import", "bare.jsonl", "--store", "other.db")
    owners = answer("owners", "--by", "agent", "--store", "other.db")["owners"]
    assert {one["agent"]: one["live"] for one in owners} == {"default": 2, "sales": 1, "support": 3}
