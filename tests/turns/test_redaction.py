"""Tests of redaction: secrets are removed, and other data stays as it is."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.sessions import WatchedStore, everything_in
from tests.support.turns import Spy, Talker, a_spec, text_of, tool_calls

from omoide import action
from omoide.errors import Blocked, DiskFull, ModelFailed, StoreFailed
from omoide.sessions import Session
from omoide.stores import open_store
from omoide.turns import Control, Interrupt, Refuse, Rewrite, turn
from omoide.turns.controls import persistable_context

SECRET = "hunter2-very-secret"
CARD = "4111-RAWCARD"
PEM = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA7\n-----END KEY-----\n"
CALL = tool_calls(("call", {}))


def tool_calling(what: Any, *, pure: bool = False) -> Any:
    """A tool that makes of its context what the function makes of it."""

    def call(ctx: Any) -> Any:
        """Call somebody."""
        return what(ctx)

    return action(call) if pure else action(effectful=True)(call)


async def run_tool(tool: Any, **options: Any) -> tuple[Any, str]:
    """A turn with the tool, and what the model was told by it."""
    talker = Talker(CALL, "Done.")
    result = await turn(a_spec(memory=None, tools=[tool]), "hello", model=talker, **options)
    return result, talker.prompts[-1].messages[-1].content


def _fails(ctx: Any) -> Any:
    raise RuntimeError(f"401 for key {ctx.secrets['key']}")


@pytest.mark.parametrize(
    "what",
    [_fails, lambda ctx: f"It is {ctx.secrets['key']}.", lambda ctx: {"k": [ctx.secrets["key"]]}],
    ids=["error", "text", "data"],
)
async def test_a_secret_that_a_tool_gives_away_reaches_nobody(what: Any) -> None:
    """Neither the prompt nor the result of a turn holds a secret that a tool, or its error, repeats."""
    result, said = await run_tool(tool_calling(what), secrets={"key": SECRET})
    assert SECRET not in said
    assert "[removed]" in said
    assert SECRET not in str(result.to_json())


@pytest.mark.parametrize(
    "secret",
    [PEM, 'ab"cd\\ef\nghi', 12345678, 'pässwörd"1', "zwölf\nZeilen", b"hunter2-in-bytes"],
    ids=["pem", "escaped", "number", "umlaut-quote", "umlaut-break", "bytes"],
)
@pytest.mark.parametrize("pure", [False, True])
async def test_a_secret_is_taken_out_however_it_is_written(secret: Any, pure: bool) -> None:
    """In JSON, where it looks otherwise, a secret is found as well, and it does not get into the state."""
    _, plain = await run_tool(
        tool_calling(lambda ctx: {"key": "harmless"}, pure=pure), secrets={"key": secret}
    )
    result, said = await run_tool(
        tool_calling(lambda ctx: {"key": ctx.secrets["key"]}, pure=pure), secrets={"key": secret}
    )
    assert plain == '{"key":"harmless"}'
    kept_out = "It would put a secret into the agent's state."
    assert said in ([kept_out] if pure else ['{"key":"[removed]"}', '{"key":[removed]}'])
    assert result.agent.state.get("key") is None


@pytest.mark.parametrize("secret", ["s3cr3t", SECRET, "zwölf\nZeilen", b"\xff\xfe raw \x80 bytes"])
@pytest.mark.parametrize("before", [b"", b"x", b"xy", b"xyz"])
@pytest.mark.parametrize("pure", [False, True])
async def test_a_secret_inside_bytes_is_taken_out(secret: str | bytes, before: bytes, pure: bool) -> None:
    """Bytes are shown in base64, where a secret looks otherwise at each of three offsets."""
    raw = secret if isinstance(secret, bytes) else secret.encode()
    after = b" and more"
    value = before + raw + after
    result, said = await run_tool(
        tool_calling(lambda ctx: {"key": [value]}, pure=pure), secrets={"key": secret}
    )
    if pure:
        assert said == "It would put a secret into the agent's state."
    else:
        start, _, end = said.removeprefix('{"key":["').removesuffix('"]}').partition("[removed]")
        whole = b64encode(value).decode()
        assert (whole.startswith(start), whole.endswith(end)) == (True, True)
        # A character of base64 has six bits; one may have some of the secret and some of what is beside it.
        assert 6 * len(start) < 8 * len(before) + 6
        assert 6 * len(end.rstrip("=")) < 8 * len(after) + 12  # the last character is padded, too
    assert result.agent.state.get("key") is None


async def test_a_pure_action_may_use_a_secret_without_keeping_it() -> None:
    """What a pure action derives from a secret is kept; only the secret itself is not."""
    result, said = await run_tool(
        tool_calling(lambda ctx: {"size": len(ctx.secrets["key"])}, pure=True), secrets={"key": SECRET}
    )
    assert (said, result.agent.state["size"]) == (f'{{"size":{len(SECRET)}}}', len(SECRET))


async def test_a_model_gets_no_secrets() -> None:
    """A model that is a function of three arguments gets the context of the turn and none of its secrets."""
    seen: list[Any] = []

    def model(request: Any, journal: Any, context: Any) -> str:
        seen.append((dict(context.data), dict(context.secrets)))
        return "Done."

    await turn(a_spec(memory=None), "hello", model=model, context={"day": "Monday"}, secrets={"key": SECRET})
    assert seen == [({"day": "Monday"}, {})]


async def test_a_secret_is_in_no_notice() -> None:
    """What a store says about a capture that failed is told without the secret in it."""
    store = Spy()
    store.write_fails = StoreFailed("store", f"said no to {SECRET}", "try again")
    result = await turn(
        a_spec(memory={"capture": "conversation"}),
        "hello",
        model=Talker("Done."),
        store=store,
        secrets={"key": SECRET},
    )
    assert len(result.notices) == 1
    assert SECRET not in str(result.to_json())


async def test_plain_data_is_left_alone() -> None:
    """A context with a secret or an object in it hides those, and none of the words around them."""
    context = {
        "request": {"user": "Robert", "link": object()},
        "db": {"password": "hunter22", "host": "localhost"},
        "servers": [{"apiKey": "abcdef123", "region": "europe"}],
    }
    given = {"user": "Robert", "host": "localhost", "region": "europe", "found": "hunter22 abcdef123"}
    result, said = await run_tool(tool_calling(lambda ctx: given), context=context)
    assert json.loads(said) == {**given, "found": "[removed] [removed]"}
    assert result.prompt.context.to_python() == {
        "request": {"user": "Robert"},
        "db": {"host": "localhost"},
        "servers": [{"region": "europe"}],
    }


async def test_short_words_are_not_hidden() -> None:
    """A secret of a few letters does not take those letters out of everything that is said."""
    _, said = await run_tool(tool_calling(lambda ctx: "one pin, two pins"), secrets={"pin": "pin"})
    assert said == "one pin, two pins"


@pytest.mark.parametrize(
    "key",
    [
        "accessToken",
        "dbPassword",
        "tokens",
        "secrets",
        "API_KEYS",
        "apiKey",
        "openai_apikey",
        "access_key",
        "secretKey",
        "passcode",
        "jwt",
        "bearer",
        "otp",
        "session-cookie",
        "Authorization",
        "client.secret",
    ],
)
def test_a_key_that_names_a_secret_is_not_kept(key: str) -> None:
    """In whatever spelling, alone or deep inside, what is under such a key is left out."""
    given = {key: "abcabc", "outer": {key: ["abcabc"], "day": "Monday"}, "list": [{key: {"a": "abcabc"}}]}
    assert persistable_context(given).to_python() == {"outer": {"day": "Monday"}, "list": [{}]}


@pytest.mark.parametrize(
    "key", ["author", "pinned", "secretary", "tokenizer", "passenger", "keyboard", "user"]
)
def test_a_key_that_only_sounds_like_a_secret_is_kept(key: str) -> None:
    """Words that begin like those for secrets are words like any other."""
    assert persistable_context({key: "Robert"}).to_python() == {key: "Robert"}


async def test_a_secret_is_in_no_question() -> None:
    """A control that puts a secret into its question, or its reason, does not have it written down."""

    class Asks(Control):
        def at_tool(self, call: Any, ctx: Any) -> Any:
            return Interrupt(f"Send {ctx.secrets['key']}?")

    class Says(Control):
        def at_tool(self, call: Any, ctx: Any) -> Any:
            return Refuse(f"{ctx.secrets['key']} is too old")

    tool = tool_calling(lambda ctx: "called")
    asked = await turn(
        a_spec(memory=None, tools=[tool]),
        "hello",
        model=Talker(CALL),
        controls=[Asks()],
        secrets={"key": SECRET},
    )
    assert (asked.reviews[0].question, SECRET in str(asked.to_json())) == ("Send [removed]?", False)
    _, said = await run_tool(tool, controls=[Says()], secrets={"key": SECRET})
    assert said == "This was refused: [removed] is too old"


# What controls take out


class Redacts(Control):
    """Takes the card out of what the user says."""

    def at_input(self, text: str, ctx: Any) -> Any:
        return Rewrite(text.replace(CARD, "[card]"))


class Stops(Control):
    """Stops at one of the boundaries."""

    def __init__(self, at: str, answer: Any) -> None:
        self.at, self.answer = at, answer

    def at_input(self, text: str, ctx: Any) -> Any:
        return self.answer if self.at == "input" else None

    def at_tool(self, call: Any, ctx: Any) -> Any:
        return self.answer if self.at == "tool" else None

    def at_output(self, text: str, ctx: Any) -> Any:
        return self.answer if self.at == "output" else None


@pytest.mark.parametrize("at", ["input", "tool", "output"])
async def test_what_a_control_takes_out_of_the_input_does_not_sleep(at: str) -> None:
    """The snapshot of a turn that waits holds the words that the control left, and not the first ones."""
    replies = ("Done.",) if at == "output" else (CALL, "Done.")
    spec = a_spec(memory=None, tools=[tool_calling(lambda ctx: "called")])
    controls = [Redacts(), Stops(at, Interrupt("Sure?"))]
    result = await turn(spec, f"My card is {CARD}.", model=Talker(*replies), controls=controls)
    assert result.status == "waiting"
    assert result.snapshot is not None
    assert "[card]" in str(result.snapshot.to_json())
    assert CARD not in str(result.to_json())


async def test_what_a_control_takes_out_is_nowhere_in_the_result() -> None:
    """Prompt, journal, events and capture of a finished turn hold the words that the control left."""
    store, talker = Spy(), Talker("Done.")
    spec = a_spec(memory={"capture": "conversation"})
    result = await turn(spec, f"My card is {CARD}.", model=talker, store=store, controls=[Redacts()])
    assert text_of(talker.prompts[0]).endswith("My card is [card].")
    assert CARD not in str(result.to_json())
    assert [entry.content for entry in store.kept] == ["User: My card is [card].\nAssistant: Done."]


async def test_an_input_that_is_refused_is_not_in_the_error() -> None:
    """The error names the boundary and the reason, and not what was said."""
    with pytest.raises(Blocked) as blocked:
        await turn(
            a_spec(memory=None),
            f"My card is {CARD}.",
            model=Talker(),
            controls=[Stops("input", Refuse("No cards."))],
        )
    assert CARD not in str(blocked.value)


# What a session keeps


async def test_a_secret_that_is_given_away_is_in_no_file(tmp_path: Path) -> None:
    """Neither a tool's answer nor the error of a tool or of a model carries a secret into the store."""

    @action(effectful=True)
    async def call(ctx: Any, fail: bool) -> Any:
        """Call somebody."""
        if fail:
            raise RuntimeError(f"401 for {ctx.secrets['key']}")
        return {"key": ctx.secrets["key"]}

    @action
    def note(ctx: Any) -> Any:
        """Remember it."""
        return {"key": ctx.secrets["key"]}

    model = Talker(tool_calls(("call", {"fail": True}), ("call", {"fail": False}), ("note", {})), "Done.")
    spec = a_spec(tools=[call, note])
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as file:
        session = await Session.start(spec, "s1", store=file, model=model, secrets={"key": SECRET})
        await session.run("one")
        with pytest.raises(ModelFailed):
            await session.run("two", model=Talker(ValueError(f"no {SECRET}")))
        assert session.error is not None
        assert "[removed]" in session.error["message"]
        assert session.agent.state.get("key") is None
    assert SECRET.encode() not in everything_in(tmp_path)


@pytest.mark.parametrize(
    "end", ["finished", "error", "waiting-output", "waiting-input", "refused", "not-captured"]
)
async def test_what_a_control_takes_out_of_the_input_is_in_no_file(end: str, tmp_path: Path) -> None:
    """However the turn ends, the store holds the words that the control left, and not the first ones."""

    async def before(name: str, args: Any) -> None:
        if name == "write" and end == "not-captured":
            raise DiskFull("store", "is full", "make room")

    controls: list[Control] = [Redacts()]
    if end.startswith("waiting"):
        controls.append(Stops(end.partition("-")[2], Interrupt("Sure?")))
    if end == "refused":
        controls.insert(0, Stops("input", Refuse("No cards.")))
    model = Talker(ValueError("no network") if end == "error" else "Done.")
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as file:
        spec, store = a_spec(memory={"capture": "conversation"}), WatchedStore(file, before)
        session = await Session.start(spec, "s1", store=store, model=model, controls=controls)
        with suppress(ModelFailed, Blocked):
            await session.run(f"My card is {CARD}.")
        assert session.status == {"refused": "new", "not-captured": "finished"}.get(
            end, end.partition("-")[0]
        )
    assert CARD.encode() not in everything_in(tmp_path)
