"""The `copy` command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.cli.test_output import Terminal

Run = Callable[..., Result]
Answer = Callable[..., Any]


def list_memories(answer: Answer, *options: str) -> Any:
    """All memories as they are."""
    return answer("list", "--forgotten", "--expired", "--stale", *options)["entries"]


@pytest.fixture
def filled_store(omoide: Run, three: None) -> None:
    """Memories in two namespaces, one forgotten and one stale, a session, and a token."""
    omoide("relate", "m2", "derived_from", "m1")
    omoide("relate", "m3", "refines", "m2")
    omoide("forget", "m1", "--reason", "over")
    omoide("remember", "Of the team.", "--id", "t1", "--namespace", "team", "--agent", "crew")
    omoide("chat", "Hello.", "--session", "conv-1", "--no-capture")
    omoide("token", "create", "crew", "--right", "read")


@pytest.mark.usefixtures("filled_store")
def test_everything_is_at_the_other_place(omoide: Run, answer: Answer) -> None:
    """Memories as they are, links and sessions, in all namespaces, but no tokens; twice changes nothing."""
    done = omoide("copy", "--to", "new.db")
    assert done.stdout == "4 memories, 4 new; 3 documents, 3 new\n"
    assert done.stderr == "namespaces: default, team\n"
    other = ("--store", "new.db")
    assert list_memories(answer, *other) == list_memories(answer)
    assert answer("show", "m3", *other) == answer("show", "m3")
    assert answer("show", "t1", "--namespace", "team", "--agent", "", *other)["entry"]["agent_id"] == "crew"
    assert answer("sessions", "show", "conv-1", *other) == answer("sessions", "show", "conv-1")
    omoide("token", "list", *other, code=1)
    assert omoide("copy", "--to", "new.db").stdout == "4 memories, 0 new; 3 documents, 0 new\n"
    assert list_memories(answer, *other) == list_memories(answer)


@pytest.mark.usefixtures("filled_store")
def test_stores_and_namespaces_can_be_named(omoide: Run, answer: Answer, monkeypatch: Any) -> None:
    """By options, by the variable, as paths or URLs; tokens only when they are asked for."""
    assert answer("copy", "--to", "team.db", "--namespace", "team")["namespaces"] == ["team"]
    told = "Nothing found.\nnothing in namespace default; others: --namespace team\n"
    assert omoide("list", "--store", "team.db", code=1).stderr == told
    both = ("--namespace", "team", "--namespace", "default")
    assert answer("copy", "--from", "team.db", "--to", "memory://", *both)["memories"] == 1
    with monkeypatch.context() as patched:
        patched.setenv("OMOIDE_NAMESPACE", "team")
        assert answer("copy", "--to", "more.db")["namespaces"] == ["team"]
    assert answer("copy", "--to", "all.db", "--tokens")["namespaces"] == ["default", "omoide:tokens", "team"]
    assert len(answer("token", "list", "--store", "all.db")["tokens"]) == 1


@pytest.mark.usefixtures("filled_store")
def test_what_cannot_be_copied_is_refused_and_makes_no_file(omoide: Run, home: Path) -> None:
    """The store itself, one that is not there, a part of a namespace, tokens by name, and a conflict."""
    own = home / "data" / "omoide" / "memory.db"
    before = {path.name for path in home.iterdir()}
    assert "belongs to the store itself" in omoide("copy", "--to", str(own), code=2).stderr
    omoide("copy", "--to", f"x/../{own.relative_to(home)}", code=2)
    omoide("copy", "--from", "absent.db", "--to", "new.db", code=1)
    for name in ("agent", "project", "session"):
        told = omoide("copy", "--to", "new.db", f"--{name}", "x", code=2).stderr
        assert told == f"omoide: --{name} is given; leave it out: whole namespaces are copied\n"
    omoide("copy", "--to", "new.db", "--namespace", "omoide:tokens", code=2)
    omoide("copy", code=2)
    assert {path.name for path in home.iterdir()} == before
    omoide("remember", "Another.", "--id", "m1", "--store", "other.db")
    told = omoide("copy", "--to", "other.db", code=2).stderr
    assert told.startswith("omoide: memory 'm1' is another one in the target; ")
    omoide("show", "m2", "--store", "other.db", code=1)


@pytest.mark.usefixtures("filled_store")
def test_progress_of_a_copy_is_shown_on_a_terminal(omoide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bar for memories and one for documents."""
    from omoide.cli import shell
    from omoide.cli import transfer as copying

    terminal, bars = Terminal(), shell.progress_bar
    with monkeypatch.context() as patched:

        def on_terminal() -> Any:
            patched.setattr("sys.stderr", terminal)
            return bars()

        patched.setattr(copying, "progress_bar", on_terminal)
        omoide("copy", "--to", "new.db")
    assert "memories" in terminal.getvalue()
    assert "documents" in terminal.getvalue()
