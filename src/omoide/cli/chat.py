"""Chat, preflight.

An option wins over the spec in the file that `--spec` names or that the session was begun with, and that over
what is usual.

The event loop runs in a thread of its own, for as long as the command does: connections to a model stay open
between answers, and the main thread is free to be interrupted.

The answer goes to standard output, piece by piece as it comes; everything else goes to standard error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import click
from anyio.from_thread import BlockingPortal, start_blocking_portal

from omoide import blocking, ids
from omoide.cli.output import format_count, sanitize, truncate
from omoide.cli.shell import OK, REPOSITORY, CliSetting, CommandContext, command, exit_code, format_error
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Scope
from omoide.errors import Invalid, NotFound, OmoideError, TurnPending

if TYPE_CHECKING:
    from omoide.sessions.session import Session
    from omoide.stores.async_store import AsyncStore
    from omoide.turns.journal import Event as talking_Event
    from omoide.turns.journal import Journal
    from omoide.turns.model import Request
    from omoide.turns.preview import Preflight
    from omoide.turns.result import TurnResult
    from omoide.turns.spec import AgentSpec


# asking: Which agent does a command ask, and who answers?


DEFAULT_SPEC = {"id": "default", "memory": {"capture": "conversation"}}
NO_MODEL_NOTICE = "No model is named: a script answers, and only tells what it remembers. See --model."

_MAX_CONTENT = 100
_MAX_LISTED = 5
_WORD = re.compile(r"[^\n\t ]+")


def agent_options(function: Any) -> Any:
    """Give a command the options that say who is asked."""
    for option in (
        click.option("--capture/--no-capture", default=None, help="Whether what is said is remembered."),
        click.option(
            "--scope",
            type=click.Choice(("agent", "session")),
            help="Whose memory: the agent's or the session's.",
        ),
        click.option("--instructions", metavar="TEXT", help="What the agent is told."),
        click.option(
            "--base-url", metavar="URL", help="Where the model is reached, if not where it usually is."
        ),
        click.option("--model", metavar="NAME", help="provider:model; '' for the script."),
        click.option("--spec", type=click.Path(path_type=Path), help="The agent: a .json or .yaml file."),
    ):
        function = option(function)
    return function


async def load_spec(shell: CommandContext, store: AsyncStore, options: dict[str, Any]) -> AgentSpec:
    """The agent that is meant, as the options leave it."""
    from omoide.turns.spec import AgentSpec

    settings = shell.settings
    if options["spec"] is not None:
        spec = AgentSpec.from_file(options["spec"])
    else:
        spec = await _session_spec(shell, store) or AgentSpec.new(
            DEFAULT_SPEC, id=settings.agent.value or DEFAULT_SPEC["id"]
        )
    changes = {
        name: options[name] or None if name != "instructions" else options[name]
        for name in ("model", "base_url", "instructions")
        if options[name] is not None
    }
    if settings.agent.origin == "--agent" and settings.agent.value:
        changes["id"] = settings.agent.value
    return spec.replace(**changes, memory=_memory_policy(spec, settings.namespace, options))


def _memory_policy(spec: AgentSpec, namespace: CliSetting, options: dict[str, Any]) -> Any:
    """What the agent remembers; one without memory gets some where an option speaks of it."""
    from omoide.turns.spec import MemoryPolicy

    changes: dict[str, Any] = {}
    if options["scope"] is not None:
        changes["scope"] = options["scope"]
    if options["capture"] is not None:
        changes["capture"] = "conversation" if options["capture"] else "off"
    if spec.memory is None and not changes:
        return None
    policy = spec.memory or MemoryPolicy()
    if policy.namespace is None or namespace.origin == "--namespace":
        changes["namespace"] = None if namespace.value in (None, DEFAULT_NAMESPACE) else namespace.value
    return policy.replace(**changes)


async def _session_spec(shell: CommandContext, store: AsyncStore) -> AgentSpec | None:
    from omoide.sessions.storage import spec_of

    session = shell.settings.session.value
    if session is None:
        return None
    try:
        return await spec_of(store, session, shell.scope.namespace)
    except NotFound:
        return None


def turn_options(shell: CommandContext, spec: AgentSpec) -> dict[str, Any]:
    """What a turn of the agent is given."""
    namespace = None if spec.memory is None else spec.memory.namespace
    context = {namespace[1]: shell.scope.namespace} if isinstance(namespace, tuple) else {}
    return {"context": context, "llm": None if spec.model else scripted_model}


def open_model(spec: AgentSpec) -> AbstractAsyncContextManager[Any]:
    """Who answers, on connections that stay open for a whole conversation."""
    if spec.model is None:
        return nullcontext(scripted_model)
    from omoide.turns.provider import ProviderModel

    return ProviderModel(spec.model, base_url=spec.base_url).connect()


async def find_session(shell: CommandContext, store: AsyncStore, spec: AgentSpec) -> Session | None:
    """The session that is named, if it exists; it stays in its project, unless another one is named."""
    from omoide.sessions.session import Session

    id, project = shell.settings.session.value, shell.settings.project
    if id is None:
        return None
    said = None if project.origin in (REPOSITORY, "default") else project.value
    try:
        return await Session.load(id, spec, store=store, project_id=said, **turn_options(shell, spec))
    except NotFound:
        return None


def scripted_model(request: Request, journal: Journal) -> str:
    """What is answered where there is no model: the memories that fit what was said, also of this session."""
    recalled = journal.recalled
    hits = () if recalled is None or recalled.weak else recalled.hits
    said = dict.fromkeys(_memory_line(hit.entry) for hit in hits if hit.score > 0)
    if not said:
        return "[script] I remember nothing about that."
    return "\n".join(["[script] I remember:", *(f"- {one}" for one in [*said][:_MAX_LISTED])])


def _memory_line(entry: Entry) -> str:
    """A memory in a line; of a conversation what the user said, or the script would quote itself forever."""
    content = entry.content
    if entry.metadata.get("kind") == "conversation":
        content = "you said: " + content.removeprefix("User: ").partition("\nAssistant: ")[0]
    return truncate(content, _MAX_CONTENT)


def sanitize_text(text: str) -> str:
    """A text with its lines and its indentation, and nothing that a terminal would act on."""
    return _WORD.sub(lambda word: sanitize(word[0]), text)


# looping: How does a command wait for an answer and still hear Ctrl-C?


T = TypeVar("T")


class EventLoopThread:
    """An event loop in another thread."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    def run(self, work: Callable[..., Awaitable[T]], *given: Any) -> T:
        """What the work comes to; Ctrl-C cancels it and is raised when it has let go of everything."""
        over = Event()

        async def run() -> T:
            try:
                return await work(*given)
            finally:
                over.set()

        future: Future[T] | None = None
        try:
            future = self._portal.start_task_soon(run)
            return future.result()
        except KeyboardInterrupt:
            if future is not None:
                future.cancel()
                over.wait()
            raise

    def enter(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """The same block, for code that does not await."""
        return self._portal.wrap_async_context_manager(manager)


@contextmanager
def event_loop() -> Iterator[EventLoopThread]:
    """A loop that runs inside the block."""
    with start_blocking_portal() as portal:
        yield EventLoopThread(portal)


# preflighting: What would a model be sent, seen from a shell?


@command(
    "preflight",
    'omoide preflight "what should I call the user?"',
    'omoide preflight "and then?" --spec ada.json --session conv-1 --json',
)
@click.argument("message")
@agent_options
def preflight_command(shell: CommandContext, message: str, **given: Any) -> None:
    """Show what a model would be sent for MESSAGE, and why.

    Nothing is asked of a model, and nothing is written.
    """
    run_preflight(shell, message, given)


def run_preflight(shell: CommandContext, message: str, options: dict[str, Any]) -> None:
    """Print what a turn would send."""
    import anyio

    with shell.open_store(load_embedder=True) as store:
        found = anyio.run(_preview, shell, store, message, options)
    shell.print_result(found, lambda: print_preflight(found))


def print_preflight(preflight: Preflight) -> None:
    """Print it for a person."""
    click.echo(sanitize_text(str(preflight)).rstrip("\n"))


async def _preview(
    shell: CommandContext, store: AsyncStore, message: str, options: dict[str, Any]
) -> Preflight:
    from omoide.turns.preview import preflight

    spec = await load_spec(shell, store, options)
    session = await find_session(shell, store, spec)
    if session is not None:
        return await session.preflight(message)
    return await preflight(
        spec,
        message,
        memory_store=store,
        session_id=shell.settings.session.value or ids.new("sess_"),  # the one that would be begun
        project_id=shell.settings.project.value,
        **turn_options(shell, spec),
    )


# chatting: How is an agent talked to from a shell?


@command(
    "chat",
    'omoide chat "what should I call you?" --model openai:gpt-5-mini',
    "omoide chat --spec ada.json --session conv-1",
    "omoide chat --session conv-1 --resume",
)
@click.argument("message", required=False)
@agent_options
@click.option("--preflight", is_flag=True, help="Show what would be sent for MESSAGE, and stop.")
@click.option("--events", is_flag=True, help="Tell what happens, on standard error.")
@click.option("--resume", is_flag=True, help="First go on with the turn that did not finish.")
@click.option("--cancel", is_flag=True, help="First give up the turn that did not finish.")
def chat_command(
    shell: CommandContext,
    message: str | None,
    preflight: bool,
    events: bool,
    resume: bool,
    cancel: bool,
    **given: Any,
) -> int:
    """Talk to an agent that remembers; with MESSAGE, only about that.

    What is said is kept in a session, which --session goes on with, and remembered for all of them. Without a
    model a script answers with what it remembers.
    """
    _check_options(shell, message, preflight, resume, cancel)
    if preflight and message is not None:
        run_preflight(shell, message, given)
        return OK

    with shell.open_store(create=True, load_embedder=True) as store, event_loop() as loop:
        spec = loop.run(load_spec, shell, store, given)
        with loop.enter(open_model(spec)) as llm:  # a model that cannot be used leaves no session behind
            session = loop.run(_open_session, shell, store, spec, resume or cancel)
            if not shell.json:
                _greet(shell, session, interactive=message is None)
            if cancel:
                loop.run(session.cancel, CANCEL_REASON)
            talk = TerminalChat(session, store, loop, llm, events=events, quiet=shell.json)
            try:
                return _run_chat(shell, talk, message, resume=resume)
            finally:
                loop.run(session.close)


def _check_options(
    shell: CommandContext, message: str | None, preflight: bool, resume: bool, cancel: bool
) -> None:
    if message is None and (preflight or (shell.json and not resume)):
        option = "--preflight" if preflight else "--json"
        raise Invalid("message", f"is missing, and {option} is about one", "say something")
    if resume and cancel:
        raise Invalid("--resume", "comes with --cancel", "choose one of them")
    if (resume or cancel) and shell.settings.session.value is None:
        raise Invalid("--session", "is missing", "name the session whose turn it is about")


async def _open_session(
    shell: CommandContext, store: AsyncStore, spec: AgentSpec, must_exist: bool
) -> Session:
    """The session that is named, or a new one."""
    from omoide.sessions.session import Session
    from omoide.sessions.storage import session_not_found

    session = await find_session(shell, store, spec)
    if session is not None:
        return session
    named = shell.settings.session.value
    if must_exist:
        raise session_not_found(str(named))
    project = shell.settings.project.value
    return await Session.start(spec, named, store=store, project_id=project, **turn_options(shell, spec))


def _greet(shell: CommandContext, session: Session, *, interactive: bool) -> None:
    if shell.settings.session.value is None:
        click.echo(f"session {session.id}; --session {session.id} goes on with it", err=True)
    if session.spec.model is None:
        click.echo(NO_MODEL_NOTICE, err=True)
    if session.status == "error" and session.error is not None:
        click.echo(f"Its last turn failed: {sanitize(session.error['message'])}", err=True)
    if interactive:
        click.echo("/help tells what can be done beside talking.", err=True)


def _run_chat(shell: CommandContext, chat: TerminalChat, message: str | None, *, resume: bool) -> int:

    session = chat.session
    answer = chat.resume() if resume else None
    pending = session.status in ("running", "hibernated", "waiting")
    if message is None:
        if shell.json and answer is not None:
            shell.print_result(_turn_to_dict(session, answer), lambda: None)
            return OK
        if pending:
            click.echo(sanitize(format_error(pending_turn_error(session, "/resume", "/cancel"))), err=True)
        return chat.run()
    if pending:
        raise pending_turn_error(session)
    answer = chat.send(message)
    shell.print_result(_turn_to_dict(session, answer), lambda: None)
    return OK


def _turn_to_dict(session: Session, answer: TurnResult) -> dict[str, Any]:
    """What came of a turn, for a program."""
    from omoide.core.frozen import thaw

    found = None if answer.prompt is None else answer.prompt.memory
    return {
        "session": session.id,
        "request_id": answer.request_id,
        "status": answer.status,
        "content": answer.content,
        "memories": [] if found is None else thaw(found["entries"]),
        "captured": None if answer.memory is None else answer.memory.id,
        "usage": answer.usage,
        "events": answer.events,
        "reviews": answer.reviews,
        "notices": answer.notices,
    }


# talking: How does a conversation go on in a terminal?


USER_PROMPT = "you> "
CANCEL_REASON = "given up by the user"
CHAT_HELP = """\
/preflight TEXT  what the model would be sent for TEXT
/remember TEXT   keep TEXT as a memory
/forget ID       take a memory out of recall
/session         which conversation this is
/resume          go on with the turn that did not finish
/cancel          give up the turn that did not finish
/quit            end; so does the end of the input
Ctrl-C stops an answer. A line that begins with a space is never a command."""


class TerminalChat:
    """A conversation, with somebody who types. One that is quiet shows no answers."""

    def __init__(
        self,
        session: Session,
        store: AsyncStore,
        loop: EventLoopThread,
        llm: Any,
        *,
        events: bool = False,
        quiet: bool = False,
    ) -> None:
        self.session = session
        self._llm = llm
        self._store = store
        self._loop = loop
        self._events = events
        self._quiet = quiet
        self._has_output = self._mid_line = False

    def send(self, message: str) -> TurnResult:
        """The answer to a message, shown as it comes; Ctrl-C gives the turn up."""
        return self._run_turn(partial(self._stream, message))

    def resume(self) -> TurnResult:
        """The answer that is still owed."""
        return self._run_turn(partial(self.session.resume, llm=self._llm))

    def cancel(self) -> None:
        """Give up the turn that did not finish."""
        self._loop.run(self.session.cancel, CANCEL_REASON)

    def run(self) -> int:
        """Answer line after line; the exit code of the last one."""
        code = OK
        while (line := _read_line()) is not None:
            try:
                if line.startswith("/"):
                    if not self._run_command(*_split_command(line)):
                        break
                elif line.strip():
                    self.send(line.strip())
                code = OK
            except TurnPending as error:
                code = _report_error(
                    format_error(pending_turn_error(self.session, "/resume", "/cancel")), exit_code(error)
                )
            except OmoideError as error:
                code = _report_error(format_error(error), exit_code(error))
            except KeyboardInterrupt:
                if not is_terminal():
                    raise
                click.echo("stopped; /quit ends", err=True)
        return code

    # One turn

    def _run_turn(self, run: Callable[[], Awaitable[TurnResult]]) -> TurnResult:
        self._has_output = False
        try:
            result = self._loop.run(run)
            if not self._has_output and result.content:
                self._print_answer(result.content)
        except KeyboardInterrupt:
            self._end_line()
            self.cancel()
            raise
        finally:
            self._end_line()
        for review in result.reviews:
            click.echo(f"waits for a decision: {sanitize(review.question)} ({sanitize(review.id)})", err=True)
        for notice in result.notices:
            click.echo(sanitize(notice), err=True)
        return result

    async def _stream(self, message: str) -> TurnResult:
        async with self.session.stream(message, llm=self._llm) as coming:
            async for event in coming:
                self._show_event(event)
        return coming.result

    def _show_event(self, event: talking_Event) -> None:
        if event.kind == "text":
            self._print_answer(event.data["text"])
        elif self._events:
            self._end_line()
            click.echo(click.style(sanitize(str(event)), dim=True), err=True)

    def _print_answer(self, text: str) -> None:
        if self._quiet:
            return
        if not self._has_output and is_terminal():
            click.echo(f"{sanitize(self.session.spec.id)}> ", nl=False)
        self._has_output = self._mid_line = True
        click.echo(sanitize_text(text), nl=False)

    def _end_line(self) -> None:
        if self._mid_line:
            click.echo()
        self._mid_line = False

    # What can be done beside talking

    def _run_command(self, word: str, rest: str) -> bool:
        """Do what a line with a slash says; whether the conversation goes on."""
        match word, bool(rest):
            case "/quit" | "/exit", _:
                return False
            case "/help", _:
                click.echo(CHAT_HELP, err=True)
            case "/session", _:
                turns = format_count(self.session.record.turns, "turn", "turns")
                click.echo(f"{self.session.id}  {self.session.status}, {turns}")
            case "/resume", _:
                self.resume()
            case "/cancel", _:
                self.cancel()
            case "/preflight", True:
                print_preflight(self._loop.run(self.session.preflight, rest))
            case "/remember", True:
                receipt = self._loop.run(self.session.remember, rest)
                click.echo(f"{receipt.entry.id}  {receipt.outcome}, rev {receipt.entry.rev}")
            case "/forget", True:
                place = Scope(namespace=self.session.record.namespace, agent_id=self.session.spec.id)
                entry = blocking.forget(self._store, rest, place)
                click.echo(f"{entry.id}  forgotten, rev {entry.rev}: {truncate(entry.content, 60)}")
            case _:
                raise Invalid("command", f"is {word!r}", "see /help, or begin the line with a space")
        return True


def is_terminal() -> bool:
    """Whether somebody types, and reads along."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def pending_turn_error(session: Session, resume: str = "--resume", cancel: str = "--cancel") -> Invalid:
    """The error for a message to a session whose turn did not finish."""
    problem = f"{session.id!r} has a turn that did not finish ({session.status})"
    return Invalid("session", problem, f"{resume} goes on with it, {cancel} gives it up")


def _split_command(line: str) -> tuple[str, str]:
    word, _, rest = line.partition(" ")
    return word.strip(), rest.strip()


def _read_line() -> str | None:
    """The next line; None where there are no more."""
    try:
        if not is_terminal():
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        with suppress(ImportError):  # with it, lines can be edited and called back
            import readline  # noqa: F401
        return input(USER_PROMPT)
    except UnicodeDecodeError as error:
        raise Invalid("standard input", "is not UTF-8", "convert it first") from error
    except EOFError:
        click.echo()
        return None
    except KeyboardInterrupt:
        if not is_terminal():
            raise
        click.echo("\n/quit ends", err=True)
        return ""


def _report_error(line: str, code: int) -> int:
    click.echo(f"omoide: {sanitize(line)}", err=True)
    return code
