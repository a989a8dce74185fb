"""The `chat` command."""

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result
from tests.support.http_model import Answer, error_answer, serve_model

from omoide.cli import chat, shell
from omoide.errors import ModelRefused
from omoide.sessions import Session
from omoide.stores import open_store
from omoide.turns import AgentSpec, Request

Run = Callable[..., Result]
Ask = Callable[..., Any]

HTTP = "openai-chat:local"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits at a terminal."""
    monkeypatch.setattr(chat, "is_terminal", lambda: True)


@pytest.fixture
def paused_store(home: Path) -> Path:
    """A store with a session whose turn was put aside."""

    async def leave() -> None:
        async with open_store(f"sqlite:///{home / 'left.db'}", embedder="none") as store:
            spec = AgentSpec.new(chat.DEFAULT_SPEC)
            async with Session.open(
                spec, "s1", store=store, llm=lambda request, journal: "Never."
            ) as session:
                await session.run("hello?", checkpoint="after_prompt")

    anyio.run(leave)
    return home / "left.db"


def contents(answer: Ask, *options: str) -> list[str]:
    """What is remembered, newest first."""
    return [entry["content"] for entry in answer("list", *options)["entries"]]


def script_answers(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """Put these in place of what the script says."""
    left = [*answers]

    def script(request: Request, journal: object) -> Any:
        said = left.pop(0)
        if isinstance(said, Exception):
            raise said
        return said() if callable(said) else said

    monkeypatch.setattr(chat, "scripted_model", script)


async def interrupt() -> None:
    """Ctrl-C, while an answer never comes."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    await anyio.sleep_forever()


# One message


def test_without_a_model_a_script_tells_what_it_remembers(omoide: Run) -> None:
    """The script says what it is, and what was said in one session is known in the next."""
    first = omoide("chat", "My cat is called Miso.")
    assert first.stdout == "[script] I remember nothing about that.\n"
    assert chat.NO_MODEL_NOTICE in first.stderr
    again = omoide("chat", "what is my cat called?")
    assert again.stdout == "[script] I remember:\n- you said: My cat is called Miso.\n"


def test_a_new_session_is_named_so_that_it_can_go_on(omoide: Run, answer: Ask) -> None:
    """The line on standard error has the id, and that id continues the conversation."""
    told = omoide("chat", "One.").stderr.splitlines()[0]
    named = told.split()[1].rstrip(";")
    assert told == f"session {named}; --session {named} goes on with it"
    assert named not in omoide("chat", "Two.", "--session", named).stderr
    said = [entry["payload"]["content"] for entry in answer("sessions", "show", named)["entries"]]
    assert said[::2] == ["One.", "Two."]


def test_what_is_said_is_remembered_unless_told_otherwise(omoide: Run, answer: Ask) -> None:
    """A turn becomes a memory of the agent; with --no-capture it is only in the transcript."""
    omoide("chat", "One.")
    omoide("chat", "Two.", "--no-capture")
    assert contents(answer) == ["User: One.\nAssistant: [script] I remember nothing about that."]


def test_memory_may_be_that_of_the_user_with_all_agents(omoide: Run) -> None:
    """With --scope user another agent knows what was said, and another user or none does not."""
    ann = ("--scope", "user", "--user", "ann")
    omoide("chat", "My cat is called Miso.", *ann)
    assert "Miso" in omoide("chat", "what is my cat called?", *ann, "--agent", "other").stdout
    assert "Miso" not in omoide("chat", "what is my cat called?", "--scope", "user", "--user", "ben").stdout
    assert "pass user_id=" in omoide("chat", "what is it?", "--scope", "user", code=2).stderr


def test_memory_of_a_session_stays_in_it(omoide: Run) -> None:
    """With --scope session another session does not know what was said."""
    omoide("chat", "My cat is called Miso.", "--scope", "session", "--session", "s1")
    apart = omoide("chat", "what is my cat called?", "--scope", "session", "--session", "s2").stdout
    assert "Miso" not in apart


def test_the_options_say_whose_memory_it_is(omoide: Run, answer: Ask) -> None:
    """Namespace, agent and project are those of the other commands."""
    place = ("--namespace", "n1", "--agent", "ada", "--project", "p1")
    omoide("chat", "One.", "--session", "s1", *place)
    entry = answer("list", *place)["entries"][0]
    assert (entry["namespace"], entry["agent_id"], entry["project_id"]) == ("n1", "ada", "p1")
    omoide("sessions", "show", "s1", code=1)
    omoide("sessions", "show", "s1", "--namespace", "n1")


def test_a_session_goes_on_with_the_agent_it_was_begun_with(omoide: Run, answer: Ask) -> None:
    """Without options the spec, the agent and the project are the session's own."""
    omoide(
        "chat", "One.", "--session", "s1", "--agent", "ada", "--instructions", "Be brief.", "--project", "p1"
    )
    omoide("chat", "Two.", "--session", "s1")
    assert len(contents(answer, "--agent", "ada", "--project", "p1")) == 2
    assert "Be brief." in omoide("preflight", "Three.", "--session", "s1").stdout
    refused = omoide("chat", "Four.", "--session", "s1", "--agent", "bob", code=2).stderr
    assert "'bob', and the session of another one" in refused


def test_a_spec_from_a_file_is_used_and_options_win(omoide: Run, answer: Ask) -> None:
    """The file says who the agent is; --agent, --namespace and the like say otherwise."""
    memory = {"namespace": "n1", "capture": "conversation"}
    Path("ada.json").write_text(json.dumps({"id": "ada", "instructions": "Be brief.", "memory": memory}))
    omoide("chat", "One.", "--spec", "ada.json")
    assert len(contents(answer, "--agent", "ada", "--namespace", "n1")) == 1
    omoide("chat", "Two.", "--spec", "ada.json", "--agent", "bob", "--namespace", "n2")
    assert len(contents(answer, "--agent", "bob", "--namespace", "n2")) == 1
    shown = omoide("preflight", "x", "--spec", "ada.json", "--instructions", "Be long.").stdout
    assert "Be long." in shown
    assert "Be brief." not in shown
    omoide("chat", "x", "--spec", "absent.json", code=1)
    omoide("chat", "x", "--spec", "ada.txt", code=2)


def test_a_namespace_from_the_context_is_the_one_that_is_named(omoide: Run, answer: Ask) -> None:
    """A spec whose namespace comes with each turn gets that of the command."""
    memory = {"namespace": {"context": "tenant"}, "capture": "conversation"}
    Path("ada.json").write_text(json.dumps({"id": "ada", "memory": memory}))
    omoide("chat", "One.", "--spec", "ada.json", "--namespace", "acme", "--session", "s1")
    omoide("chat", "Two.", "--spec", "ada.json", "--namespace", "acme", "--session", "s1")
    assert len(contents(answer, "--agent", "ada", "--namespace", "acme")) == 2


def test_a_spec_without_memory_remembers_nothing(omoide: Run, answer: Ask) -> None:
    """It is not given memory that it does not ask for, unless an option does."""
    Path("ada.json").write_text('{"id": "ada"}')
    omoide("chat", "One.", "--spec", "ada.json")
    answer("list", "--agent", "ada", code=1)
    omoide("chat", "Two.", "--spec", "ada.json", "--capture")
    assert len(contents(answer, "--agent", "ada")) == 1


def test_events_are_told_beside_the_answer(omoide: Run) -> None:
    """They go to standard error, and the answer alone to standard output."""
    told = omoide("chat", "One.", "--events")
    assert told.stdout == "[script] I remember nothing about that.\n"
    kinds = [line.split()[0] for line in told.stderr.splitlines()[2:]]
    assert kinds[0] == "turn_started"
    assert kinds[-1] == "memory_written"


def test_an_answer_cannot_act_on_the_terminal(omoide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Escapes are written out, in the answer and in the transcript; lines and indentation stay."""
    script_answers(monkeypatch, "a\x1b[2Jb\r\n\tc  d\u202e")
    shown = "a\\x1b[2Jb\n\tc  d\\u202e\n"
    assert omoide("chat", "x", "--session", "s1").stdout == shown
    assert shown in omoide("sessions", "show", "s1").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--json"], "message is missing, and --json"),
        (["--preflight"], "message is missing, and --preflight"),
        (["x", "--resume"], "--session is missing"),
        (["x", "--session", "s", "--resume", "--cancel"], "choose one"),
        (["  "], "input is empty"),
    ],
)
def test_what_does_not_go_together_is_refused(omoide: Run, arguments: list[str], told: str) -> None:
    """One line says what is wrong, with the code for wrong input."""
    assert told in omoide("chat", *arguments, code=2).stderr


# A model


def test_a_model_answers_over_http(omoide: Run) -> None:
    """The answer of a provider comes piece by piece, and it is asked with what is remembered."""
    omoide("remember", "The user's name is Alex.")
    with serve_model("Hello, Alex.", "Hello again.") as site:
        told = omoide("chat", "what is my name?", "--model", HTTP, "--base-url", site.url, "--session", "s1")
        assert told.stdout == "Hello, Alex.\n"
        assert told.stderr == ""
        assert omoide("chat", "and now?", "--session", "s1").stdout == "Hello again.\n"
    assert "Alex" in site.requests[0]["messages"][0]["content"]
    assert [one["role"] for one in site.requests[1]["messages"]][-3:] == ["user", "assistant", "user"]


def test_several_messages_are_answered_over_one_connection(omoide: Run) -> None:
    """The event loop lives as long as the conversation."""
    with serve_model("One.", "Two.", "Three.") as site:
        told = omoide("chat", "--model", HTTP, "--base-url", site.url, input="a\nb\nc\n")
        assert told.stdout == "One.\nTwo.\nThree.\n"
    assert site.connections == 1


def test_a_model_that_refuses_is_one_line_and_the_talk_goes_on(omoide: Run) -> None:
    """The line has the remedy; the next message is answered, and the code is that of the last one."""
    with serve_model(error_answer(401, "bad key"), "Two.", error_answer(401, "bad key")) as site:
        told = omoide("chat", "--model", HTTP, "--base-url", site.url, input="a\nb\n")
        assert told.stdout == "Two.\n"
        lines = [line for line in told.stderr.splitlines() if line.startswith("omoide: ")]
        assert len(lines) == 1
        assert "Traceback" not in told.stderr
        omoide("chat", "c", "--model", HTTP, "--base-url", site.url, code=4)


def test_a_hanging_model_can_be_interrupted(
    omoide: Run, terminal: None, monkeypatch: pytest.MonkeyPatch, answer: Ask
) -> None:
    """Ctrl-C in the middle of an answer keeps what was seen of it, and the next message is answered."""

    plain = shell.sanitize_text

    def striking(text: str) -> str:
        if "well" in text:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return plain(text)

    monkeypatch.setattr("omoide.cli.chat.sanitize_text", striking)
    with serve_model(Answer(content="Well, well", hang=True), "Two.") as site:
        told = omoide(
            "chat", "--model", HTTP, "--base-url", site.url, "--session", "s1", input="a\nb\n"
        ).stdout
    assert told == "you> default> Well, well\nyou> default> Two.\nyou> \n"
    assert [one["payload"].get("content") for one in answer("sessions", "show", "s1")["entries"]] == [
        "a",
        None,
        "b",
        "Two.",
    ]


# Many messages


def test_lines_are_answered_until_the_end(omoide: Run) -> None:
    """Each line is a message; empty lines are none, and nothing is asked for where nobody types."""
    told = omoide("chat", "--session", "s1", input="One.\n\nTwo.\n")
    assert told.stdout.count("[script]") == 2
    assert "you>" not in told.output
    assert omoide("sessions", "show", "s1").stdout.count("user> ") == 2


def test_a_terminal_is_prompted(omoide: Run, terminal: None) -> None:
    """Who types sees whose turn it is."""
    told = omoide("chat", "--agent", "ada", input="One.\n/quit\nTwo.\n").stdout
    assert told == "you> ada> [script] I remember nothing about that.\nyou> "


def test_commands_of_the_talk(omoide: Run, answer: Ask) -> None:
    """A line with a slash does something beside talking, and one with a space before it is said."""
    lines = [
        "/help",
        "/session",
        "/remember Tea is at four.",
        "/preflight when is tea?",
        " /session",
        "/quit",
        "no",
    ]
    told = omoide("chat", "--session", "s1", input="\n".join(lines))
    assert chat.CHAT_HELP in told.stderr
    assert "s1  new, 0 turns" in told.stdout
    assert "stored, rev 1" in told.stdout
    assert "Prompt of default" in told.stdout
    assert contents(answer)[0].startswith("User: /session\n")
    (tea,) = [one for one in answer("list")["entries"] if one["content"] == "Tea is at four."]
    assert "forgotten" in omoide("chat", input=f"/forget {tea['id']}\n").stdout
    omoide("chat", input="/forget nobody\n", code=1)
    unknown = omoide("chat", input="/nope\n", code=2).stderr
    assert "command is '/nope'; see /help" in unknown


def test_a_failure_does_not_end_the_talk(omoide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line with its remedy, and the next message is answered."""
    script_answers(monkeypatch, ModelRefused("m", "said no\nand\x1b more", "ask nicely"), "Yes.")
    told = omoide("chat", input="a\nb\n")
    assert told.stdout == "Yes.\n"
    assert "omoide: model 'm' said no and\\x1b more; ask nicely\n" in told.stderr


def test_ctrl_c_stops_the_answer_and_not_the_talk(
    omoide: Run, terminal: None, monkeypatch: pytest.MonkeyPatch, answer: Ask
) -> None:
    """The turn is given up, so that the next message is answered at once."""
    script_answers(monkeypatch, interrupt, "Yes.")
    told = omoide("chat", "--session", "s1", input="a\nb\n")
    assert "default> Yes." in told.stdout
    assert "stopped" in told.stderr
    assert answer("sessions")["sessions"][0]["status"] == "finished"


def test_ctrl_c_ends_a_single_message(omoide: Run, monkeypatch: pytest.MonkeyPatch, answer: Ask) -> None:
    """The code tells so, and the session is left without an unfinished turn."""
    script_answers(monkeypatch, interrupt)
    omoide("chat", "a", "--session", "s1", code=130)
    assert answer("sessions")["sessions"][0]["status"] == "new"


def test_input_that_is_no_text_is_refused(omoide: Run) -> None:
    """Bytes that are not UTF-8 end the talk with one line."""
    assert "not UTF-8" in omoide("chat", input=b"\xff\xfe\n", code=2).stderr


# Turns that did not finish


def test_a_session_with_an_unfinished_turn_says_what_can_be_done(omoide: Run, paused_store: Path) -> None:
    """A message is refused, with both ways out; so it is in a talk, with its own commands."""
    at = ("--session", "s1", "--store", str(paused_store))
    assert "--resume goes on with it, --cancel gives it up" in omoide("chat", "x", *at, code=2).stderr
    talked = omoide("chat", *at, input="x\n", code=4).stderr
    assert talked.count("/resume goes on with it, /cancel gives it up") == 2


@pytest.mark.parametrize("way", ["option", "command", "json"])
def test_an_unfinished_turn_is_resumed(omoide: Run, paused_store: Path, way: str) -> None:
    """The answer that was owed comes, and the talk goes on."""
    at = ("--session", "s1", "--store", str(paused_store))
    match way:
        case "option":
            told = omoide("chat", "next", *at, "--resume").stdout
            assert told.count("[script]") == 2
        case "command":
            told = omoide("chat", *at, input="/resume\nnext\n").stdout
            assert told.count("[script]") == 2
        case _:
            told = omoide("chat", *at, "--resume", "--json").stdout
            assert json.loads(told)["content"].startswith("[script]")


@pytest.mark.parametrize("way", ["option", "command"])
def test_an_unfinished_turn_is_given_up(omoide: Run, paused_store: Path, way: str) -> None:
    """It is not answered any more, and the next message is."""
    at = ("--session", "s1", "--store", str(paused_store))
    if way == "option":
        told = omoide("chat", "next", *at, "--cancel").stdout
    else:
        told = omoide("chat", *at, input="/cancel\nnext\n").stdout
    assert told.count("[script]") == 1
    assert "! given up by the user" in omoide("sessions", "show", *at[1:]).stdout


def test_a_session_that_does_not_exist_has_nothing_to_resume(omoide: Run) -> None:
    """Neither way out begins a session."""
    for way in ("--resume", "--cancel"):
        assert "session 's9' does not exist" in omoide("chat", "--session", "s9", way, code=1).stderr
    omoide("sessions", code=1)


def test_a_failed_turn_is_told_of_and_tried_again(omoide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes back hears why it failed; --resume asks again, and a new message goes on without it."""
    script_answers(monkeypatch, ModelRefused("m", "said no", "ask nicely"), "Yes.", "Well.")
    omoide("chat", "a", "--session", "s1", code=4)
    told = omoide("chat", "b", "--session", "s1", "--resume")
    assert "Its last turn failed: model 'm' said no; ask nicely" in told.stderr
    assert told.stdout == "Yes.\nWell.\n"


# Sessions


def test_sessions_are_listed_newest_first(omoide: Run, answer: Ask) -> None:
    """One line a session, of all agents unless one is named."""
    omoide("chat", "x", "--session", "s1", "--agent", "ada")
    omoide("chat", "x", "--session", "s2")
    omoide("chat", "y", "--session", "s2")
    rows = [line.split("\t")[:4] for line in omoide("sessions").stdout.splitlines()]
    assert rows == [["s2", "default", "finished", "2"], ["s1", "ada", "finished", "1"]]
    assert omoide("sessions", "list").stdout == omoide("sessions").stdout
    assert [one["session_id"] for one in answer("sessions", "--agent", "ada")["sessions"]] == ["s1"]
    assert answer("sessions", "--project", "elsewhere", code=1) == {"sessions": []}
    assert omoide("sessions", "--namespace", "n9", code=1).stderr == "Nothing found.\n"


def test_a_transcript_shows_who_said_what(omoide: Run) -> None:
    """Every message is there with its speaker, and where the session stands."""
    omoide("chat", "One.", "--session", "s1")
    shown = omoide("sessions", "show", "s1")
    assert shown.stdout == "user> One.\nassistant> [script] I remember nothing about that.\n"
    assert shown.stderr.startswith("finished, 20")
    assert "session 'nobody' does not exist" in omoide("sessions", "show", "nobody", code=1).stderr


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        ("messages", ["The sea is calm.", "[script] I remember nothing about that."]),
        ("user", ["The sea is calm."]),
    ],
)
def test_what_is_captured_can_be_chosen(omoide: Callable[..., Result], option: str, kept: list[str]) -> None:
    """`--capture` says which parts of a turn become memories."""
    omoide("chat", "The sea is calm.", "--capture", option)
    entries = json.loads(omoide("list", "--json").stdout)["entries"]
    assert sorted(entry["content"] for entry in entries) == sorted(kept)
