"""How does a conversation go on in a terminal?

The answer goes to standard output, piece by piece as it comes; everything else goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from omoide import blocking
from omoide.cli.asking import visible
from omoide.cli.failing import OK, code_of, line_of
from omoide.cli.looping import Loop
from omoide.cli.preflighting import show_preflight
from omoide.cli.printing import clipped, counted, safe
from omoide.core.scope import Scope
from omoide.errors import Invalid, OmoideError, TurnPending

if TYPE_CHECKING:
    from omoide.sessions.session import Session
    from omoide.stores.local import LocalStore
    from omoide.turns.events import Event
    from omoide.turns.result import TurnResult

YOU = "you> "
GIVEN_UP = "given up by the user"
HELP = """\
/preflight TEXT  what the model would be sent for TEXT
/remember TEXT   keep TEXT as a memory
/forget ID       take a memory out of recall
/session         which conversation this is
/resume          go on with the turn that did not finish
/cancel          give up the turn that did not finish
/quit            end; so does the end of the input
Ctrl-C stops an answer. A line that begins with a space is never a command."""


class Talk:
    """A conversation, with somebody who types. One that is quiet shows no answers."""

    def __init__(
        self,
        session: Session,
        store: LocalStore,
        loop: Loop,
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
        self._said = self._mid_line = False

    def say(self, message: str) -> TurnResult:
        """The answer to a message, shown as it comes; Ctrl-C gives the turn up."""
        return self._turn(partial(self._streamed, message))

    def resume(self) -> TurnResult:
        """The answer that is still owed."""
        return self._turn(partial(self.session.resume, llm=self._llm))

    def cancel(self) -> None:
        """Give up the turn that did not finish."""
        self._loop.wait(self.session.cancel, GIVEN_UP)

    def go_on(self) -> int:
        """Answer line after line; the exit code of the last one."""
        code = OK
        while (line := _read()) is not None:
            try:
                if line.startswith("/"):
                    if not self._command(*_parted(line)):
                        break
                elif line.strip():
                    self.say(line.strip())
                code = OK
            except TurnPending as error:
                code = _failed(line_of(unfinished(self.session, "/resume", "/cancel")), code_of(error))
            except OmoideError as error:
                code = _failed(line_of(error), code_of(error))
            except KeyboardInterrupt:
                if not at_terminal():
                    raise
                click.echo("stopped; /quit ends", err=True)
        return code

    # One turn

    def _turn(self, run: Callable[[], Awaitable[TurnResult]]) -> TurnResult:
        self._said = False
        try:
            result = self._loop.wait(run)
            if not self._said and result.content:
                self._answer(result.content)
        except KeyboardInterrupt:
            self._end_line()
            self.cancel()
            raise
        finally:
            self._end_line()
        for review in result.reviews:
            click.echo(f"waits for a decision: {safe(review.question)} ({safe(review.id)})", err=True)
        for notice in result.notices:
            click.echo(safe(notice), err=True)
        return result

    async def _streamed(self, message: str) -> TurnResult:
        async with self.session.stream(message, llm=self._llm) as coming:
            async for event in coming:
                self._show(event)
        return coming.result

    def _show(self, event: Event) -> None:
        if event.kind == "text":
            self._answer(event.data["text"])
        elif self._events:
            self._end_line()
            click.echo(click.style(safe(str(event)), dim=True), err=True)

    def _answer(self, text: str) -> None:
        if self._quiet:
            return
        if not self._said and at_terminal():
            click.echo(f"{safe(self.session.spec.id)}> ", nl=False)
        self._said = self._mid_line = True
        click.echo(visible(text), nl=False)

    def _end_line(self) -> None:
        if self._mid_line:
            click.echo()
        self._mid_line = False

    # What can be done beside talking

    def _command(self, word: str, rest: str) -> bool:
        """Do what a line with a slash says; whether the conversation goes on."""
        match word, bool(rest):
            case "/quit" | "/exit", _:
                return False
            case "/help", _:
                click.echo(HELP, err=True)
            case "/session", _:
                turns = counted(self.session.record.turns, "turn", "turns")
                click.echo(f"{self.session.id}  {self.session.status}, {turns}")
            case "/resume", _:
                self.resume()
            case "/cancel", _:
                self.cancel()
            case "/preflight", True:
                show_preflight(self._loop.wait(self.session.preflight, rest))
            case "/remember", True:
                receipt = self._loop.wait(self.session.remember, rest)
                click.echo(f"{receipt.entry.id}  {receipt.outcome}, rev {receipt.entry.rev}")
            case "/forget", True:
                place = Scope(namespace=self.session.record.namespace, agent_id=self.session.spec.id)
                entry = blocking.forget(self._store, rest, place)
                click.echo(f"{entry.id}  forgotten, rev {entry.rev}: {clipped(entry.content, 60)}")
            case _:
                raise Invalid("command", f"is {word!r}", "see /help, or begin the line with a space")
        return True


def at_terminal() -> bool:
    """Whether somebody types, and reads along."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def unfinished(session: Session, resume: str = "--resume", cancel: str = "--cancel") -> Invalid:
    """The error for a message to a session whose turn did not finish."""
    problem = f"{session.id!r} has a turn that did not finish ({session.status})"
    return Invalid("session", problem, f"{resume} goes on with it, {cancel} gives it up")


def _parted(line: str) -> tuple[str, str]:
    word, _, rest = line.partition(" ")
    return word.strip(), rest.strip()


def _read() -> str | None:
    """The next line; None where there are no more."""
    try:
        if not at_terminal():
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        with suppress(ImportError):  # with it, lines can be edited and called back
            import readline  # noqa: F401
        return input(YOU)
    except UnicodeDecodeError as error:
        raise Invalid("standard input", "is not UTF-8", "convert it first") from error
    except EOFError:
        click.echo()
        return None
    except KeyboardInterrupt:
        if not at_terminal():
            raise
        click.echo("\n/quit ends", err=True)
        return ""


def _failed(line: str, code: int) -> int:
    click.echo(f"omoide: {safe(line)}", err=True)
    return code
