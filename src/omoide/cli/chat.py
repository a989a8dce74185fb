"""The `chat` and `preflight` commands.

Options override the spec file, or the spec that the session was started with, and those override the
defaults. The event loop runs in a thread of its own for the whole command: connections to a model stay open
between turns, and the main thread can handle Ctrl-C. The reply goes to standard output as it streams,
everything else to standard error.
"""

from __future__ import annotations

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
from omoide.cli.shell import (
    OK,
    REPOSITORY,
    CliSetting,
    CommandContext,
    command,
    exit_code,
    format_count,
    format_error,
    report_error,
    run_async,
    sanitize,
    sanitize_text,
    truncate,
)
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Scope, is_captured, passages_of
from omoide.errors import Invalid, NotFound, OmoideError, TurnPending

if TYPE_CHECKING:
    from omoide.sessions.session import Session
    from omoide.stores.async_store import AsyncStore
    from omoide.turns.journal import Event as talking_Event
    from omoide.turns.journal import Journal
    from omoide.turns.model import Request
    from omoide.turns.preview import Preflight
    from omoide.turns.runner import TurnResult
    from omoide.turns.spec import AgentSpec


DEFAULT_SPEC = {"id": "default", "memory": {"capture": "conversation"}}
NO_MODEL_NOTICE = "No model is named: a script answers, and only tells what it remembers. See --model."

_MAX_CONTENT = 100
_MAX_LISTED = 5


def agent_options(function: Any) -> Any:
    """Add the options that select and configure the agent."""
    for option in (
        click.option("--no-capture", is_flag=True, help="Remember nothing of what is said."),
        click.option(
            "--capture",
            type=click.Choice(("messages", "conversation", "user", "off")),
            is_flag=False,
            flag_value="conversation",
            help="What is remembered of each turn; alone: conversation.",
        ),
        click.option(
            "--scope",
            type=click.Choice(("agent", "session", "project", "user")),
            help="Whose memory: the agent's or the session's, or of all agents the project's or the user's.",
        ),
        click.option("--instructions", metavar="TEXT", help="Instructions for the agent."),
        click.option(
            "--base-url", metavar="URL", help="Where the model is reached, if not where it usually is."
        ),
        click.option("--model", metavar="NAME", help="provider:model; '' for the script."),
        click.option("--spec", type=click.Path(path_type=Path), help="The agent: a .json or .yaml file."),
    ):
        function = option(function)
    return function


async def load_spec(ctx: CommandContext, store: AsyncStore, options: dict[str, Any]) -> AgentSpec:
    """Return the agent's spec with the options applied."""
    from omoide.turns.spec import AgentSpec

    settings = ctx.settings
    if options["spec"] is not None:
        spec = AgentSpec.from_file(options["spec"])
    else:
        spec = await _session_spec(ctx, store) or AgentSpec.new(
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
    """Return the memory policy with the options applied; None if the agent has no memory.

    An agent without memory gets a policy if one of the options needs it.
    """
    from omoide.turns.spec import MemoryPolicy

    changes: dict[str, Any] = {}
    if options["scope"] is not None:
        changes["scope"] = options["scope"]
    if options["capture"] is not None or options["no_capture"]:
        changes["capture"] = "off" if options["no_capture"] else options["capture"]
    if spec.memory is None and not changes:
        return None
    policy = spec.memory or MemoryPolicy()
    if policy.namespace is None or namespace.origin == "--namespace":
        changes["namespace"] = None if namespace.value in (None, DEFAULT_NAMESPACE) else namespace.value
    return policy.replace(**changes)


async def _session_spec(ctx: CommandContext, store: AsyncStore) -> AgentSpec | None:
    from omoide.sessions.storage import spec_of

    session = ctx.settings.session.value
    if session is None:
        return None
    try:
        return await spec_of(store, session, ctx.scope.namespace)
    except NotFound:
        return None


def turn_options(ctx: CommandContext, spec: AgentSpec) -> dict[str, Any]:
    """Return the keyword arguments of a turn."""
    namespace = None if spec.memory is None else spec.memory.namespace
    context = {namespace[1]: ctx.scope.namespace} if isinstance(namespace, tuple) else {}
    return {"context": context, "model": None if spec.model else scripted_model}


def open_model(spec: AgentSpec) -> AbstractAsyncContextManager[Any]:
    """Return a context manager of the model, whose connections stay open for the whole conversation."""
    if spec.model is None:
        return nullcontext(scripted_model)
    from omoide.turns.provider import ProviderModel

    return ProviderModel(spec.model, base_url=spec.base_url).connect()


async def find_session(ctx: CommandContext, store: AsyncStore, spec: AgentSpec) -> Session | None:
    """Return the session of the settings, or None if it does not exist.

    It keeps its project unless an option or a variable names another one.
    """
    from omoide.sessions.session import Session

    id, project = ctx.settings.session.value, ctx.settings.project
    if id is None:
        return None
    project_id = None if project.origin in (REPOSITORY, "default") else project.value
    try:
        return await Session.load(
            id,
            spec,
            store=store,
            user_id=ctx.settings.user.value,
            project_id=project_id,
            **turn_options(ctx, spec),
        )
    except NotFound:
        return None


def scripted_model(request: Request, journal: Journal) -> str:
    """Reply without a model: list the recalled memories that match the message."""
    recalled = journal.recalled
    hits = () if recalled is None or recalled.weak else recalled.hits
    matching = [hit.entry for hit in hits if hit.score > 0]
    lines = dict.fromkeys(_memory_line(entry) for entry in matching if not _is_answer(entry))
    if not lines:
        return "[script] I remember nothing about that."
    return "\n".join(["[script] I remember:", *(f"- {line}" for line in [*lines][:_MAX_LISTED])])


def _memory_line(entry: Entry) -> str:
    """Return a memory on one line.

    Of a captured conversation only the user's part is shown, or replies would quote earlier replies.
    """
    passages = passages_of(entry)
    content = passages[0].text if passages else entry.content
    return truncate(f"you said: {content}" if is_captured(entry) else content, _MAX_CONTENT)


def _is_answer(entry: Entry) -> bool:
    """Return True for what an assistant said: replies would quote earlier replies."""
    return is_captured(entry) and entry.message is not None and entry.message.role == "assistant"


T = TypeVar("T")


class EventLoopThread:
    """Event loop in another thread."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    def run(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a coroutine function and return its result.

        Ctrl-C cancels it, and is raised again when its cleanup has finished.
        """
        finished = Event()

        async def work_and_signal() -> T:
            try:
                return await work(*args)
            finally:
                finished.set()

        future: Future[T] | None = None
        try:
            future = self._portal.start_task_soon(work_and_signal)
            return future.result()
        except KeyboardInterrupt:
            if future is not None:
                future.cancel()
                finished.wait()
            raise

    def enter(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Return a context manager that enters an asynchronous one on the loop."""
        return self._portal.wrap_async_context_manager(manager)


@contextmanager
def event_loop() -> Iterator[EventLoopThread]:
    """Run an event loop in another thread for the duration of the block."""
    with start_blocking_portal() as portal:
        yield EventLoopThread(portal)


@command(
    "preflight",
    'omoide preflight "what should I call the user?"',
    'omoide preflight "and then?" --spec ada.json --session conv-1 --json',
)
@click.argument("message")
@agent_options
def preflight_command(ctx: CommandContext, message: str, **options: Any) -> None:
    """Show what a model would be sent for MESSAGE, and why.

    Nothing is asked of a model, and nothing is written.
    """
    run_preflight(ctx, message, options)


def run_preflight(ctx: CommandContext, message: str, options: dict[str, Any]) -> None:
    """Print what a turn would send."""
    with ctx.open_store(load_embedder=True) as store:
        preflight = run_async(_preview, ctx, store, message, options)
    ctx.print_result(preflight, lambda: print_preflight(preflight))


def print_preflight(preflight: Preflight) -> None:
    """Print a preflight for a person."""
    click.echo(sanitize_text(str(preflight)).rstrip("\n"))


async def _preview(
    ctx: CommandContext, store: AsyncStore, message: str, options: dict[str, Any]
) -> Preflight:
    from omoide.turns.preview import preflight

    spec = await load_spec(ctx, store, options)
    session = await find_session(ctx, store, spec)
    if session is not None:
        return await session.preflight(message)
    return await preflight(
        spec,
        message,
        store=store,
        session_id=ctx.settings.session.value or ids.new("sess_"),  # as a new session would get
        user_id=ctx.settings.user.value,
        project_id=ctx.settings.project.value,
        **turn_options(ctx, spec),
    )


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
    ctx: CommandContext,
    message: str | None,
    preflight: bool,
    events: bool,
    resume: bool,
    cancel: bool,
    **options: Any,
) -> int:
    """Talk to an agent that remembers; with MESSAGE, only about that.

    What is said is kept in a session, which --session goes on with, and remembered for all of them. Without a
    model a script answers with what it remembers.
    """
    _check_options(ctx, message, preflight, resume, cancel)
    if preflight and message is not None:
        run_preflight(ctx, message, options)
        return OK

    with ctx.open_store(create=True, load_embedder=True) as store, event_loop() as loop:
        spec = loop.run(load_spec, ctx, store, options)
        with loop.enter(open_model(spec)) as model:  # opened first: if it fails, no session is created
            session = loop.run(_open_session, ctx, store, spec, resume or cancel)
            if not ctx.json:
                _greet(ctx, session, interactive=message is None)
            if cancel:
                loop.run(session.cancel, CANCEL_REASON)
            chat = TerminalChat(session, store, loop, model, events=events, quiet=ctx.json)
            try:
                return _run_chat(ctx, chat, message, resume=resume)
            finally:
                loop.run(session.close)


def _check_options(
    ctx: CommandContext, message: str | None, preflight: bool, resume: bool, cancel: bool
) -> None:
    if message is None and (preflight or (ctx.json and not resume)):
        option = "--preflight" if preflight else "--json"
        raise Invalid("message", f"is missing, and {option} is about one", "say something")
    if resume and cancel:
        raise Invalid("--resume", "comes with --cancel", "choose one of them")
    if (resume or cancel) and ctx.settings.session.value is None:
        raise Invalid("--session", "is missing", "name the session whose turn it is about")


async def _open_session(ctx: CommandContext, store: AsyncStore, spec: AgentSpec, must_exist: bool) -> Session:
    """Return the session of the settings, or start a new one."""
    from omoide.sessions.session import Session
    from omoide.sessions.storage import session_not_found

    session = await find_session(ctx, store, spec)
    if session is not None:
        return session
    id = ctx.settings.session.value
    if must_exist:
        raise session_not_found(str(id), ctx.scope.namespace)
    return await Session.start(
        spec,
        id,
        store=store,
        user_id=ctx.settings.user.value,
        project_id=ctx.settings.project.value,
        **turn_options(ctx, spec),
    )


def _greet(ctx: CommandContext, session: Session, *, interactive: bool) -> None:
    if ctx.settings.session.value is None:
        click.echo(f"session {session.id}; --session {session.id} goes on with it", err=True)
    if session.spec.model is None:
        click.echo(NO_MODEL_NOTICE, err=True)
    if session.status == "error" and session.error is not None:
        click.echo(f"Its last turn failed: {sanitize(session.error['message'])}", err=True)
    if interactive:
        click.echo("/help tells what can be done beside talking.", err=True)


def _run_chat(ctx: CommandContext, chat: TerminalChat, message: str | None, *, resume: bool) -> int:
    session = chat.session
    result = chat.resume() if resume else None
    pending = session.status in ("running", "hibernated", "waiting")
    if message is None:
        if ctx.json and result is not None:
            ctx.print_result(_turn_to_dict(session, result), lambda: None)
            return OK
        if pending:
            click.echo(sanitize(format_error(pending_turn_error(session, "/resume", "/cancel"))), err=True)
        return chat.run()
    if pending:
        raise pending_turn_error(session)
    result = chat.send(message)
    ctx.print_result(_turn_to_dict(session, result), lambda: None)
    return OK


def _turn_to_dict(session: Session, result: TurnResult) -> dict[str, Any]:
    """Return the result of a turn as JSON data."""
    from omoide.core.frozen import thaw

    memory = None if result.prompt is None else result.prompt.memory
    return {
        "session": session.id,
        "request_id": result.request_id,
        "status": result.status,
        "content": result.content,
        "memories": [] if memory is None else thaw(memory["entries"]),
        "captured": None if result.memory is None else result.memory.id,
        "usage": result.usage,
        "events": result.events,
        "reviews": result.reviews,
        "notices": result.notices,
    }


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
    """Conversation in a terminal; a quiet one prints no replies."""

    def __init__(
        self,
        session: Session,
        store: AsyncStore,
        loop: EventLoopThread,
        model: Any,
        *,
        events: bool = False,
        quiet: bool = False,
    ) -> None:
        self.session = session
        self._model = model
        self._store = store
        self._loop = loop
        self._events = events
        self._quiet = quiet
        self._has_output = self._mid_line = False

    def send(self, message: str) -> TurnResult:
        """Send a message and print the reply as it streams; Ctrl-C cancels the turn."""
        return self._run_turn(partial(self._stream, message))

    def resume(self) -> TurnResult:
        """Resume the pending turn, and return its result."""
        return self._run_turn(partial(self.session.resume, model=self._model))

    def cancel(self) -> None:
        """Cancel the pending turn."""
        self._loop.run(self.session.cancel, CANCEL_REASON)

    def run(self) -> int:
        """Read and handle lines until the end of input; return the exit code of the last one."""
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
                code = report_error(
                    format_error(pending_turn_error(self.session, "/resume", "/cancel")), exit_code(error)
                )
            except OmoideError as error:
                code = report_error(format_error(error), exit_code(error))
            except KeyboardInterrupt:
                if not is_terminal():
                    raise
                click.echo("stopped; /quit ends", err=True)
        return code

    # Turns

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
        async with self.session.stream(message, model=self._model) as stream:
            async for event in stream:
                self._show_event(event)
        return stream.result

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

    # Slash commands

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
                scope = Scope(namespace=self.session.record.namespace, agent_id=self.session.spec.id)
                entry = blocking.forget(self._store, rest, scope)
                click.echo(f"{entry.id}  forgotten, rev {entry.rev}: {truncate(entry.content, 60)}")
            case _:
                raise Invalid("command", f"is {word!r}", "see /help, or begin the line with a space")
        return True


def is_terminal() -> bool:
    """Return True if both standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def pending_turn_error(session: Session, resume: str = "--resume", cancel: str = "--cancel") -> Invalid:
    """Return the error for a message to a session with a pending turn."""
    problem = f"{session.id!r} has a turn that did not finish ({session.status})"
    return Invalid("session", problem, f"{resume} goes on with it, {cancel} gives it up")


def _split_command(line: str) -> tuple[str, str]:
    word, _, rest = line.partition(" ")
    return word.strip(), rest.strip()


def _read_line() -> str | None:
    """Read the next line; return None at the end of input."""
    try:
        if not is_terminal():
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        with suppress(ImportError):  # adds line editing and history to input()
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
