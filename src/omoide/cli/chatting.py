"""How is an agent talked to from a shell?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omoide.cli.asking import NO_MODEL, agent_options, connected, known_session, options_for, spec_for
from omoide.cli.failing import OK, line_of
from omoide.cli.preflighting import put_preflight
from omoide.cli.printing import safe
from omoide.cli.shell import Shell, command
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.cli.talking import Talk
    from omoide.sessions.session import Session
    from omoide.stores.local import LocalStore
    from omoide.turns.result import TurnResult
    from omoide.turns.spec import AgentSpec


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
    shell: Shell,
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
    _check(shell, message, preflight, resume, cancel)
    if preflight and message is not None:
        put_preflight(shell, message, given)
        return OK
    from omoide.cli.looping import event_loop
    from omoide.cli.talking import GIVEN_UP, Talk

    with shell.store(create=True, embeds=True) as store, event_loop() as loop:
        spec = loop.wait(spec_for, shell, store, given)
        with loop.held(connected(spec)) as llm:  # a model that cannot be used leaves no session behind
            session = loop.wait(_opened, shell, store, spec, resume or cancel)
            if not shell.json:
                _greet(shell, session, loops=message is None)
            if cancel:
                loop.wait(session.cancel, GIVEN_UP)
            talk = Talk(session, store, loop, llm, events=events, quiet=shell.json)
            try:
                return _talked(shell, talk, message, resume=resume)
            finally:
                loop.wait(session.close)


def _check(shell: Shell, message: str | None, preflight: bool, resume: bool, cancel: bool) -> None:
    if message is None and (preflight or (shell.json and not resume)):
        option = "--preflight" if preflight else "--json"
        raise Invalid("message", f"is missing, and {option} is about one", "say something")
    if resume and cancel:
        raise Invalid("--resume", "comes with --cancel", "choose one of them")
    if (resume or cancel) and shell.settings.session.value is None:
        raise Invalid("--session", "is missing", "name the session whose turn it is about")


async def _opened(shell: Shell, store: LocalStore, spec: AgentSpec, known: bool) -> Session:
    """The session that is named, or a new one."""
    from omoide.sessions.listing import missing
    from omoide.sessions.session import Session

    session = await known_session(shell, store, spec)
    if session is not None:
        return session
    named = shell.settings.session.value
    if known:
        raise missing(str(named))
    project = shell.settings.project.value
    return await Session.start(spec, named, store=store, project_id=project, **options_for(shell, spec))


def _greet(shell: Shell, session: Session, *, loops: bool) -> None:
    if shell.settings.session.value is None:
        click.echo(f"session {session.id}; --session {session.id} goes on with it", err=True)
    if session.spec.model is None:
        click.echo(NO_MODEL, err=True)
    if session.status == "error" and session.error is not None:
        click.echo(f"Its last turn failed: {safe(session.error['message'])}", err=True)
    if loops:
        click.echo("/help tells what can be done beside talking.", err=True)


def _talked(shell: Shell, talk: Talk, message: str | None, *, resume: bool) -> int:
    from omoide.cli.talking import unfinished

    session = talk.session
    answer = talk.resume() if resume else None
    pending = session.status in ("running", "hibernated", "waiting")
    if message is None:
        if shell.json and answer is not None:
            shell.put(_as_data(session, answer), lambda: None)
            return OK
        if pending:
            click.echo(safe(line_of(unfinished(session, "/resume", "/cancel"))), err=True)
        return talk.go_on()
    if pending:
        raise unfinished(session)
    answer = talk.say(message)
    shell.put(_as_data(session, answer), lambda: None)
    return OK


def _as_data(session: Session, answer: TurnResult) -> dict[str, Any]:
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
