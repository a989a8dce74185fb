"""The `preflight` command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.http_model import serve_model

Run = Callable[..., Result]
Ask = Callable[..., Any]


@pytest.fixture
def filled_store(omoide: Run) -> None:
    """A memory and a session."""
    omoide("remember", "The user's name is Alex.", "--id", "m1")
    omoide("chat", "Good morning.", "--session", "s1", "--no-capture")


@pytest.mark.usefixtures("filled_store")
def test_a_preflight_shows_what_would_be_sent(omoide: Run) -> None:
    """Memory with its reason, the message, and what would be done with them."""
    shown = omoide("preflight", "what is my name?", "--instructions", "Be brief.").stdout
    assert shown.startswith("Prompt of default\n")
    for part in (
        "Be brief.",
        '"The user\'s name is Alex."',
        "what is my name?",
        "m1 (",
        "because: ",
        "Tokens",
    ):
        assert part in shown


@pytest.mark.usefixtures("filled_store")
def test_a_preflight_goes_on_with_the_session(omoide: Run) -> None:
    """What was said before is in it, where a session is named that has a past."""
    assert "Good morning." in omoide("preflight", "and?", "--session", "s1").stdout
    assert "Good morning." not in omoide("preflight", "and?", "--session", "s9").stdout


@pytest.mark.usefixtures("filled_store")
def test_a_preflight_changes_nothing(omoide: Run, answer: Ask) -> None:
    """No session is begun, no memory written, no use counted, no model asked."""

    def state() -> Any:
        return answer("list"), answer("show", "m1"), answer("sessions")

    before = state()
    with serve_model() as site:
        model = ("--model", "openai-chat:local", "--base-url", site.url)
        for session in ((), ("--session", "s1"), ("--session", "s9")):
            omoide("preflight", "what is my name?", *session, *model)
            omoide("chat", "what is my name?", "--preflight", *session, *model)
    assert site.requests == []
    assert state() == before


@pytest.mark.usefixtures("filled_store")
def test_a_chat_shows_the_same_before_it_asks(omoide: Run, answer: Ask) -> None:
    """`chat --preflight` is the preflight, in words and as data."""
    asked = ("what is my name?", "--session", "s1")
    assert omoide("chat", "--preflight", *asked).stdout == omoide("preflight", *asked).stdout
    sent = answer("preflight", *asked)["prompt"]["messages"]
    assert answer("chat", "--preflight", *asked)["prompt"]["messages"] == sent
    assert [one["role"] for one in sent] == ["system", "user", "assistant", "user"]


def test_a_memory_cannot_act_on_the_terminal(omoide: Run) -> None:
    """What is remembered is shown with its escapes written out."""
    omoide("remember", "The name\x1b[2J is\u202e Alex.")
    shown = omoide("preflight", "what is the name?").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "Alex" in shown


def test_without_a_store_there_is_nothing_to_show(omoide: Run, home: Path) -> None:
    """The line says what to do, and no store is made."""
    assert "remember something first" in omoide("preflight", "x", code=1).stderr
    assert not (home / "data").exists()
