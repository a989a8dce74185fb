"""Sessions, context, promote."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from omoide.cli.chat import sanitize_text, turn_options
from omoide.cli.output import format_count, format_time, print_table, sanitize
from omoide.cli.shell import (
    COUNT,
    FAILED,
    NOT_FOUND,
    OK,
    REPOSITORY,
    CliSetting,
    CommandContext,
    apply_options,
    command,
    common_options,
    format_examples,
)
from omoide.core import codec
from omoide.core.value import check_unit

if TYPE_CHECKING:
    from omoide.core.thread import ThreadEntry
    from omoide.promotion.plan import PromotionRun
    from omoide.promotion.promoter import Promotion
    from omoide.sessions.context import SessionContext
    from omoide.sessions.session import Session
    from omoide.sessions.storage import SessionRecord
    from omoide.stores.async_store import AsyncStore


# promoting: What does a session know, and what of it becomes lasting memory?


REACHES = ("session", "project", "agent")


@command(
    "promote",
    "omoide promote conv-1",
    "omoide promote conv-1 --threshold 0.5 --apply",
)
@click.argument("id", metavar="SESSION")
@click.option("--threshold", type=float, metavar="X", help="What is enough, from 0 to 1; 0.6 usually.")
@apply_options
def promote_command(shell: CommandContext, id: str, threshold: float | None, apply: bool) -> int:
    """Show what of a session's short-term memory would become lasting, and why; --apply promotes it.

    `omoide undo-promotion` takes a promotion back.
    """
    import anyio

    if threshold is not None:
        check_unit(threshold, "--threshold")

    async def promote(store: AsyncStore) -> tuple[Promotion, tuple[str, ...]]:
        loaded = await _load_session(shell, store, id)
        if not apply:
            return await loaded.promote(dry_run=True, threshold=threshold), loaded.notices
        loaded.set_promotion(enabled=False)  # what is asked for is promoted, and nothing more on leaving
        async with loaded:
            return await loaded.promote(threshold=threshold), loaded.notices

    with shell.open_store(load_embedder=apply) as store:
        done, notices = anyio.run(promote, store)
    answer = {
        "dry_run": done.dry_run,
        "threshold": done.plan.threshold,
        "candidates": done.plan.candidates,
        "run": done.run,
        "notices": notices,
    }
    shell.print_result(answer, lambda: _print_promotion(done, notices))
    return FAILED if done.run is not None and done.run.failed else OK


@command(
    "undo-promotion",
    "omoide undo-promotion conv-1",
    "omoide undo-promotion conv-1 prm_0123",
)
@click.argument("id", metavar="SESSION")
@click.argument("run", required=False)
def undo_promotion_command(shell: CommandContext, id: str, run: str | None) -> None:
    """Take the last promotion of a session back, or the one that is named.

    Its memories are forgotten, and what they replaced counts again.
    """
    import anyio

    async def undo(store: AsyncStore) -> PromotionRun:
        loaded = await _load_session(shell, store, id)
        loaded.set_promotion(enabled=False)
        async with loaded:
            return await loaded.undo_promotion(run)

    with shell.open_store() as store:
        undone = anyio.run(undo, store)

    def show() -> None:
        made = [one.id for one in undone.promoted if one.made]
        click.echo(f"{undone.id}  undone, {format_count(len(made), 'memory', 'memories')}")
        for one in made:
            click.echo(sanitize(one))

    shell.print_result(undone, show)


@command(
    "context",
    "omoide context conv-1",
    'omoide context conv-1 --hint "which database?" --budget 4000',
)
@click.argument("id", metavar="SESSION")
@click.option("--hint", metavar="TEXT", help="What it is about; memories that fit are chosen.")
@click.option(
    "--budget", type=COUNT, default=32_000, show_default=True, metavar="N", help="In so many tokens."
)
@click.option("--reach", type=click.Choice(REACHES), help="How far memory is searched.")
def context_command(shell: CommandContext, id: str, hint: str | None, budget: int, reach: str | None) -> None:
    """Show what a model should know about a session: what it understands, remembers, and what was said."""
    import anyio

    async def assemble(store: AsyncStore) -> SessionContext:
        loaded = await _load_session(shell, store, id)
        return await loaded.assemble_context(hint, budget, reach=reach)

    with shell.open_store(load_embedder=hint is not None) as store:
        context = anyio.run(assemble, store)

    def show() -> None:
        if context.text:
            click.echo(sanitize_text(context.text), nl=not context.text.endswith("\n"))
        counts = context.token_counts
        parts = ", ".join(f"{name} {counts[name]:,}" for name in ("working", "long_term", "conversation"))
        click.echo(f"{counts['total']:,} tokens of {budget:,}: {parts}", err=True)
        for notice in context.notices:
            click.echo(sanitize(notice), err=True)

    shell.print_result(context, show)


async def _load_session(shell: CommandContext, store: AsyncStore, id: str) -> Session:
    """The session of an id, with the agent it was begun with."""
    from omoide.sessions.session import Session
    from omoide.sessions.storage import spec_of

    namespace = shell.scope.namespace
    spec = await spec_of(store, id, namespace)
    return await Session.load(id, spec, store=store, namespace=namespace, **turn_options(shell, spec))


def _print_promotion(promotion: Promotion, notices: tuple[str, ...]) -> None:
    plan, run = promotion.plan, promotion.run
    print_table(
        ("verdict", "score", "type", "content", "why"),
        [
            (one.verdict, f"{one.score:.3f}", one.entry.type or "", one.entry.content, one.why)
            for one in plan.candidates
        ],
    )
    if run is None:
        share = f"{len(plan.to_promote)} of {len(plan.candidates)}"
        click.echo(f"{share} would be promoted; {plan.threshold:g} is enough.", err=True)
        if plan.to_promote:
            click.echo("--apply promotes them.", err=True)
    else:
        click.echo(f"{run.id}  {format_count(len(run.promoted), 'memory', 'memories')} promoted")
        for one in run.failed:
            click.echo(f"not promoted: {sanitize(one.id)}: {sanitize(one.problem)}", err=True)
    for notice in notices:
        click.echo(sanitize(notice), err=True)


# sessions: Which conversations are kept, and what was said in them?


_SUMMARY_FIELDS = (
    "session_id",
    "agent_id",
    "project_id",
    "status",
    "turns",
    "created_at",
    "updated_at",
    "last_request_id",
    "error",
    "pending_reviews",
)


@click.group(
    "sessions",
    invoke_without_command=True,
    epilog=format_examples("omoide sessions", "omoide sessions show conv-1"),
)
@click.pass_context
def sessions_command(context: click.Context) -> Any:
    """See which conversations there are, and what was said."""
    return None if context.invoked_subcommand else context.invoke(list_command)


@command(
    "list",
    "omoide sessions list --agent ada",
)
def list_command(shell: CommandContext) -> int:
    """List the sessions of the namespace, the one that was used last first.

    Those of all agents and projects, unless one is named.
    """
    import anyio

    from omoide.sessions.storage import sessions

    agent, project = _explicit_value(shell.settings.agent), _explicit_value(shell.settings.project)
    with shell.open_store() as store:
        listed = partial(sessions, store, agent_id=agent, namespace=shell.scope.namespace)
        found = [one for one in anyio.run(listed) if project in (None, one.project_id)]
    found.sort(key=lambda one: one.updated_at, reverse=True)

    def show() -> None:
        titles = ("id", "agent", "status", "turns", "used last")
        print_table(
            titles,
            [
                (one.session_id, one.agent_id, one.status, str(one.turns), format_time(one.updated_at))
                for one in found
            ],
        )
        if not found:
            click.echo("Nothing found.", err=True)

    shell.print_result({"sessions": [_summary(one) for one in found]}, show)
    return OK if found else NOT_FOUND


@command(
    "show",
    "omoide sessions show conv-1",
)
@click.argument("id")
def show_command(shell: CommandContext, id: str) -> None:
    """Show what was said in a session, and where it stands."""
    import anyio

    from omoide.sessions.storage import SessionStore, session_not_found

    with shell.open_store() as store:
        kept = anyio.run(SessionStore(store, id, shell.scope.namespace).load)
    if kept is None:
        raise session_not_found(id)
    header, thread = kept

    def show() -> None:
        for entry in thread.entries:
            for line in _entry_lines(entry):
                click.echo(sanitize_text(line))
        for review in header.pending_reviews:
            click.echo(f"waits for a decision: {sanitize(review.question)} ({sanitize(review.id)})")
        click.echo(f"{header.status}, {format_time(header.updated_at)}", err=True)

    shell.print_result({"session": _summary(header), "entries": [*thread.entries]}, show)


def _explicit_value(setting: CliSetting) -> str | None:
    """A value that somebody asked for."""
    return None if setting.origin in ("default", REPOSITORY) else setting.value


def _summary(header: SessionRecord) -> dict[str, Any]:
    written = codec.to_builtins(header)
    return {name: written.get(name) for name in _SUMMARY_FIELDS}


def _entry_lines(entry: ThreadEntry) -> Iterator[str]:
    """What an entry says, for a person; notes of actions are not shown."""
    said = entry.payload
    match entry.kind:
        case "message":
            if said.get("content"):
                yield f"{said.get('role')}> {said['content']}"
        case "tool_call":
            yield f"  → {said.get('name')} {codec.encode(said.get('params')).decode()}"
        case "tool_result":
            yield f"  ← {said.get('name')}: {said.get('content')}"
        case "error":
            yield f"  ! {said.get('problem') or said.get('error')}"
        case _:
            pass


sessions_command.params += common_options()
sessions_command.add_command(list_command)
sessions_command.add_command(show_command)
