"""AgentServer: one agent's task.

An agent that is asked so answers from a snapshot of its identity. Nothing about it changes, and no route is
needed; one without an identity says what its plugins offer.

One task takes its letters in order: plugins look at a signal, routes lead it to actions, `cmd` makes another
agent of it, and then its directives are carried out, one after the other. Whatever takes time goes on beside
that and comes back as another letter, so an agent never waits for the world.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, Event, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint

from omoide import identity
from omoide.core.action import Directive, Emit, Error, Stop
from omoide.core.agent import Agent, all_actions, receive
from omoide.core.execution import failure, outcome
from omoide.core.frozen import FrozenMap
from omoide.core.identity import Identity
from omoide.core.signal import Signal
from omoide.core.state import Context
from omoide.errors import Dropped, TimedOut, Unrouted, WrongType
from omoide.runtime.mailbox import Change, Letter, Mailbox, Reply, Save, is_unrouted, unheard
from omoide.runtime.persistence import Hold, Keeping
from omoide.runtime.policy import Terms, is_report, note
from omoide.runtime.providers.protocol import is_cancelled
from omoide.runtime.tasks import SHUTDOWN, Exit, Life, Tag, Waiting, Work, guarded, run

if TYPE_CHECKING:
    from omoide.runtime.providers.resolver import Adapters
    from omoide.runtime.runtime import Runtime


# capabilities: Who are you, and what can you do?


REQUEST = "jido.identity.capabilities.request"
RESPONSE = "jido.identity.capabilities.response"


def answer(server: AgentServer, request: Signal) -> list[Directive]:
    """The response, sent to whom the request says, else the agent's usual way, else over the bus."""
    data = request.data if isinstance(request.data, FrozenMap) else {}
    wanted = data.get("reply_to")
    dispatch = server.terms.dispatch or FrozenMap({"bus": True})
    if isinstance(wanted, str) and wanted:
        dispatch = FrozenMap({"to": wanted})
    return [Emit(signal=response(server.agent, request), dispatch=dispatch)]


def response(agent: Agent, request: Signal) -> Signal:
    """What an agent shows of itself, in answer to a request."""
    shown = identity.snapshot(agent)
    if shown is None:
        bare = Identity()
        shown = bare.snapshot().set(
            "capabilities", bare.capabilities.set("actions", all_actions(agent, bare))
        )
    data: dict[str, Any] = {
        "request_id": request.id,
        "agent_id": agent.id,
        "name": agent.name,
        **shown,
    }
    return Signal(type=RESPONSE, data=data, source=f"/omoide/agents/{agent.id}", subject=request.id)


# server: How does one agent live?


log = logging.getLogger("omoide.runtime")

AGAIN = "the agent was started again"
AT_ONCE = 16
"""How many letters an agent takes before others have their turn."""

About = tuple[Signal | None, bool]
"""The signal that something is about, and whether it is what the error policy wants."""
Queued = tuple[Directive, Signal | None, bool]


class AgentServer:
    """One agent that lives. Others talk to it through the `Runtime`."""

    __slots__ = (
        "_adapters",
        "_capturing",
        "_directives",
        "_draining",
        "_exit",
        "_parting",
        "_policy",
        "_remedying",
        "_saving",
        "_sleeper",
        "agent",
        "at",
        "children",
        "ended",
        "errors",
        "handled",
        "keeping",
        "life",
        "mailbox",
        "origin",
        "parent",
        "restarts",
        "runtime",
        "scope",
        "terms",
    )

    def __init__(
        self, runtime: Runtime, agent: Agent, terms: Terms, *, rev: int = 0, hold: Hold | None = None
    ) -> None:
        self.runtime = runtime
        self.agent = self.origin = agent
        self.terms = terms
        self.keeping = Keeping(rev, hold)
        self.parent: tuple[str, str] | None = None
        """Its parent, and the tag it has there."""
        self.children: dict[str, str] = {}
        """Its children, by their tags."""
        self.mailbox = Mailbox(terms.mailbox)
        self.life = Life()
        self.at: Signal | None = None
        """The signal that it is about."""
        self.errors = 0
        self.handled = 0
        self.restarts: deque[float] = deque(maxlen=terms.max_restarts + 1)
        self.scope = CancelScope()
        self.ended = Event()
        self._policy = terms.policy
        # Asked once: to ask whether something follows a protocol takes longer than to handle a signal.
        self._capturing: tuple[Any, ...] = tuple(
            plugin for plugin in agent.definition.plugins if hasattr(plugin, "capture")
        )
        self._directives: deque[Queued] = deque()
        self._draining = False
        self._remedying = False
        self._exit: Exit | None = None
        self._saving = False
        self._sleeper: Reply | None = None
        self._parting = SHUTDOWN
        self._adapters: Adapters | None = None

    @property
    def id(self) -> str:
        """The id of its agent."""
        return self.agent.id

    @property
    def source(self) -> str:
        """Where its signals say that they come from."""
        return f"/omoide/agents/{self.agent.id}"

    def __repr__(self) -> str:
        return f"<agent {self.id!r}, {len(self.mailbox)} letters waiting>"

    # One life

    async def live(self) -> Exit:
        """Take letters until the end; what goes wrong is a reason, never an exception."""
        with self.scope:
            try:
                self._begin()
                return await self._live()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a SystemExit, too, ends this agent and no other
                if isinstance(error, get_cancelled_exc_class()) and is_cancelled():
                    raise
                log.warning("agent %s: crashed with %s", self.id, type(error).__name__)
                return Exit(f"crashed: {type(error).__name__}")
        return self._exit or Exit("killed", asked=True)

    async def _live(self) -> Exit:
        taken, keeping, every = 0, self.keeping, self.terms.save_every
        while self._exit is None:
            if not keeping.held:
                return Exit("its lease ended", asked=True)
            item = self.mailbox.take()
            if item is None:
                if not self.mailbox.closed or self.life.busy:
                    if keeping.is_due(every, idle=True):
                        await self.save()
                        continue
                    await self.mailbox.wait()
                    continue
                sleeper = self._sleeper
                saved = not self._saving or await self.save(sleeper)
                if sleeper is not self._sleeper:
                    continue  # nobody waits for that any more, and it lives on
                if saved or sleeper is None:
                    return Exit(self._parting, asked=True)
                self._stay()
                continue
            if isinstance(item, Letter):
                self._handle(item)
            elif isinstance(item, Save):
                await self.save(item.reply)
            else:
                self._change(item)
            if keeping.is_due(every, letter=isinstance(item, Letter)):
                await self.save()
            taken += 1
            if taken % AT_ONCE == 0:
                await checkpoint()
        return self._exit

    def _begin(self) -> None:
        """What comes before the first letter: the strategy's init, and what plugins declare."""
        strategy = self.agent.definition.strategy
        result = strategy.init(self.agent, Context(self.agent))
        self.agent, directives = outcome(result, "the strategy's init", self.agent)
        self.runtime.begun(self)
        self.carry_out(directives)

    def _handle(self, letter: Letter) -> None:
        signal = self.at = letter.signal
        try:
            directives = self._received(signal)
        except BaseException as error:
            self.runtime.drop(self.id, letter, f"the agent crashed with {type(error).__name__}")
            raise
        self.handled += 1
        self.keeping.note(signal, own=letter.own)
        lost = next((one for one in directives if is_unrouted(one)), None)
        if lost is not None and letter.own:
            directives, lost = unheard(signal), None
        if letter.reply is not None:
            self._answer(letter.reply, signal, lost)
        if self._capturing and not is_report(signal, self):
            directives += self._captured(signal)
        if directives:
            self.carry_out(directives)
        self.at = None

    def _received(self, signal: Signal) -> list[Directive]:
        if signal.type == REQUEST:
            return answer(self, signal)
        self.agent, directives = receive(self.agent, signal)
        return directives

    def _answer(self, reply: Reply, signal: Signal, lost: Directive | None) -> None:
        if isinstance(lost, Error):
            reply.fail(Unrouted(self.id, signal.type, lost.message))
        elif self.terms.save_every == 1:
            self.keeping.owe(reply)
        else:
            reply.give(self.agent)

    def _captured(self, signal: Signal) -> list[Directive]:
        """What plugins make of a signal that was handled; their errors never come in its way."""
        found: list[Directive] = []
        for plugin in self._capturing:
            try:
                found += plugin.capture(signal, Context(self.agent, signal, plugin.config))
            except Exception as error:
                self.report(failure(error, "capture"))
        return found

    def _change(self, change: Change) -> None:
        try:
            self.agent, directives = change(self.agent)
        except Exception as error:
            self.report(failure(error, "result"))
        else:
            self.keeping.unsaved += 1
            self.carry_out(directives)

    # What it asks for

    def carry_out(self, directives: Iterable[Directive]) -> None:
        """Carry directives out, after those that wait already."""
        over = 0
        for directive in directives:
            if len(self._directives) >= self.terms.max_directives:
                over += 1
                self.runtime.refused(self, directive, "queue_overflow")
            else:
                self._directives.append((directive, self.at, False))
        if over:
            message = f"queue_overflow: {over} directives beyond {self.terms.max_directives} were dropped"
            self.report(Error(message=message, context="directive", kind="QueueOverflow"))
        self._carry_on()

    def _remedy(self, directive: Directive) -> None:
        """Carry out what the policy wants; there is room for that beyond the limit, but not without end."""
        if len(self._directives) < 2 * self.terms.max_directives:
            self._directives.append((directive, self.at, True))
        self._carry_on()

    def _carry_on(self) -> None:
        if not self._draining:
            self._draining = True
            self._drain()

    def _drain(self) -> None:
        before = self.at
        while self._directives and self._exit is None:
            directive, self.at, self._remedying = self._directives.popleft()
            waiting = self._execute(directive)
            if waiting is not None:
                about = self.at, self._remedying
                self.job(partial(self._go_on, waiting, self.life, about), "directive")
                self.at, self._remedying = before, False
                return
        self.at, self._remedying, self._draining = before, False, False

    async def _go_on(self, waiting: Waiting, life: Life, about: About) -> None:
        """Carry on with the directives once one of them is done that the others wait for."""
        try:
            await guarded(waiting.work())
        except Exception as error:
            if not life.over:
                self.failed(error, "directive", about)
        if not life.over:
            self._blame(self._drain)

    def _execute(self, directive: Directive) -> Waiting | None:
        executor = self.runtime.known.executor(directive)
        if executor is None:
            log.warning("agent %s: ignored a directive of type %s", self.id, type(directive).__name__)
            return None
        try:
            if iscoroutinefunction(executor):
                self.job(partial(executor, directive, self), "directive")
                return None
            answer = executor(directive, self)
        except Exception as error:
            self.report(failure(error, "directive"))
            return None
        match answer:
            case Stop():
                self.stop(answer.reason)
            case Waiting():
                return answer
            case Awaitable():
                self.job(partial(_awaited, answer), "directive")
            case _:
                pass
        return None

    def report(self, error: Error) -> None:
        """Have the policy decide about an error."""
        self.errors += 1
        if self._remedying:  # to ask again about its own answer could go on for ever
            note(error, self)
            return
        wanted = self._policy(error, self)
        if wanted is None:
            return
        if not isinstance(wanted, Directive) or isinstance(wanted, Error):
            raise WrongType("the answer of on_error", "None or a directive that is no Error", wanted)
        if isinstance(wanted, Stop):
            self.stop(wanted.reason)
        else:
            self._remedy(wanted)

    def stop(self, reason: str) -> None:
        """End this life now; what waits is not carried out any more."""
        if self._exit is None:
            self._exit = Exit(reason)
        self.mailbox.wake()

    def job(self, work: Work, context: str, *, tag: Tag | None = None) -> CancelScope:
        """Do something beside the letters; a job with a tag is not waited for in the end."""
        life, scope = self.life, self.life.begin(tag)
        about = self.at, self._remedying

        def failed(error: BaseException) -> None:
            if isinstance(error, Exception):
                self.failed(error, context, about)
            else:
                self.stop(f"crashed: {type(error).__name__}")

        async def done() -> None:
            try:
                await run(life, scope, work, failed, tag)
            finally:
                self.mailbox.wake()

        self.runtime.spawn(done)
        return scope

    def failed(self, error: Exception, context: str, about: About, action: str | None = None) -> None:
        """Report what went wrong beside the letters."""
        before = self.at, self._remedying
        self.at, self._remedying = about
        self._blame(lambda: self.report(failure(error, context, action)))
        self.at, self._remedying = before

    def _blame(self, doing: Callable[[], None]) -> None:
        """A policy that fails ends the life, also where no letter is being taken."""
        try:
            doing()
        except Exception as error:
            self.stop(f"crashed: {type(error).__name__}")

    # What it is told

    def tell(self, signal: Signal, *, own: bool = False) -> None:
        """Put a signal of its own into its mailbox."""
        self._push(Letter(signal, own=own))

    def change(self, change: Change) -> None:
        """Have the agent changed, in its turn."""
        if not self.mailbox.push(change):
            self._overflowed("the result of a job")

    def _push(self, letter: Letter) -> None:
        if self.mailbox.push(letter):
            self.runtime.accepted += 1
        else:
            self.runtime.drop(self.id, letter, "queue_overflow", accepted=False)
            self._overflowed(f"signal {letter.signal.type!r}")

    def _overflowed(self, what: str) -> None:
        message = f"queue_overflow: {what} was dropped; {len(self.mailbox)} letters wait already"
        error = Error(message=message, context="mailbox", kind="QueueOverflow")
        self._blame(lambda: self.report(error))

    # How it is kept

    async def save(self, reply: Reply | None = None) -> bool:
        """Put the agent into the vault; whether that was done. Those who wait for it are told."""
        if reply is not None:
            self.keeping.owe(reply)
        return await self.keeping.save(self)

    async def put_to_sleep(self, seconds: float | None) -> None:
        """Finish what is here, be saved, and end; raises what keeps it from that, and then lives on."""
        self._sleeper = sleeper = self._sleeper or Reply()
        self.close(save=True)
        with move_on_after(seconds):
            await sleeper.wait()
            await self.ended.wait()
            return
        self._stay()
        raise TimedOut(f"hibernating agent {self.id!r}", seconds or 0.0)

    def _stay(self) -> None:
        """Live on, though it was to end."""
        if self._sleeper is not None:
            self._sleeper.fail(Dropped(self.id, "hibernate", "the agent lives on"))
        self._sleeper, self._saving = None, False
        self.life.end()
        self.life, self._draining = Life(), False
        if self._adapters is not None:
            self._adapters.give_up(self, AGAIN)
        self.mailbox.reopen()
        self._blame(self._begin)

    def close(self, *, save: bool, reason: str = SHUTDOWN) -> None:
        """Let nobody in any more, finish what is here, and end; saved in the end, if that is wanted."""
        self._saving = save or self._saving or self.terms.save_every is not None
        self._parting = reason
        self.life.quieten()
        self.mailbox.close()

    def kill(self) -> None:
        """End now, whatever is going on."""
        self.scope.cancel()

    def clear(self, exit: Exit, *, again: bool) -> None:
        """After a life: end what went on beside it, and answer those who wait in vain."""
        self.life.end()
        self._exit, self.at, self._remedying = exit, None, False
        gone = Dropped(self.id, "?", f"the agent ended ({exit.reason})")
        for one in self.keeping.settled():
            one.fail(gone)
        if self._sleeper is not None and not again:
            self._sleeper.fail(gone)
        if again:
            if self._adapters is not None:
                self._adapters.give_up(self, AGAIN)
            for directive, _, _ in [*self._directives]:
                self.runtime.refused(self, directive, AGAIN)
        self._directives.clear()

    def renew(self, agent: Agent) -> None:
        """Begin another life, with the letters that still wait."""
        self.agent = agent
        self.life, self.scope = Life(), CancelScope()
        self.errors, self.keeping.unsaved = 0, 0
        if self.keeping.hold is not None:
            self.keeping.hold.revert()
        self._exit, self._draining = None, False

    @property
    def adapters(self) -> Adapters:
        """The memory providers that it uses."""
        if self._adapters is None:
            from omoide.runtime.providers.resolver import Adapters

            self._adapters = Adapters()
        return self._adapters


async def _awaited(answer: Awaitable[Any]) -> None:
    await answer
