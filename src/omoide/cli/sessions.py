"""The commands for sessions: list, show, context and promotion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from omoide.cli.chat import turn_options
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
    format_count,
    format_examples,
    format_time,
    print_table,
    run_async,
    sanitize,
    sanitize_text,
)
from omoide.core import codec
from omoide.core.value import check_unit
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.core.thread import ThreadEntry
    from omoide.promotion.plan import PromotionRun
    from omoide.promotion.promoter import Promotion
    from omoide.sessions.context import SessionContext
    from omoide.sessions.session import Session
    from omoide.sessions.storage import SessionRecord
    from omoide.stores.async_store import AsyncStore


REACHES = ("session", "project", "user", "agent")


@command(
    "promote",
    "omoide promote conv-1",
    "omoide promote conv-1 --threshold 0.5 --apply",
    "omoide promote conv-1 --extract --apply",
)
@click.argument("id", metavar="SESSION")
@click.option("--threshold", type=float, metavar="X", help="The score needed, from 0 to 1; default: 0.6.")
@click.option(
    "--extract",
    is_flag=True,
    help="First ask the agent's model for memories in new messages; this costs tokens.",
)
@apply_options
def promote_command(ctx: CommandContext, id: str, threshold: float | None, extract: bool, apply: bool) -> int:
    """Show what of a session's short-term memory would become lasting, and why; --apply promotes it.

    `omoide undo-promotion` takes a promotion back.
    """
    if threshold is not None:
        check_unit(threshold, "--threshold")

    async def promote(store: AsyncStore) -> tuple[Promotion, tuple[str, ...]]:
        session = await _load_session(ctx, store, id)
        if extract and session.spec.model is None:
            raise Invalid("--extract", "needs a model, and the agent of the session has none", "name one")
        if not apply:
            promotion = await session.promote(dry_run=True, threshold=threshold, extract=extract)
            return promotion, session.notices
        session.set_promotion(enabled=False)  # leaving the session would promote again
        async with session:
            return await session.promote(threshold=threshold, extract=extract), session.notices

    with ctx.open_store(load_embedder=apply or extract) as store:
        promotion, notices = run_async(promote, store)
    answer = {
        "dry_run": promotion.dry_run,
        "threshold": promotion.plan.threshold,
        "candidates": promotion.plan.candidates,
        "run": promotion.run,
        "extraction": promotion.extraction,
        "notices": notices,
    }
    ctx.print_result(answer, lambda: _print_promotion(promotion, notices))
    return FAILED if promotion.run is not None and promotion.run.failed else OK


@command("undo-promotion", "omoide undo-promotion conv-1", "omoide undo-promotion conv-1 prm_0123")
@click.argument("id", metavar="SESSION")
@click.argument("run", required=False)
def undo_promotion_command(ctx: CommandContext, id: str, run: str | None) -> None:
    """Take the last promotion of a session back, or the one that is named.

    Its memories are forgotten, and what they replaced counts again.
    """

    async def undo(store: AsyncStore) -> PromotionRun:
        session = await _load_session(ctx, store, id)
        session.set_promotion(enabled=False)
        async with session:
            return await session.undo_promotion(run)

    with ctx.open_store() as store:
        undone_run = run_async(undo, store)

    def show() -> None:
        created = [one.id for one in undone_run.promoted if one.made]
        click.echo(f"{undone_run.id}  undone, {format_count(len(created), 'memory', 'memories')}")
        for one in created:
            click.echo(sanitize(one))

    ctx.print_result(undone_run, show)


@command("context", "omoide context conv-1", 'omoide context conv-1 --hint "which database?" --budget 4000')
@click.argument("id", metavar="SESSION")
@click.option("--hint", metavar="TEXT", help="What it is about; memories that fit are chosen.")
@click.option(
    "--budget", type=COUNT, default=32_000, show_default=True, metavar="N", help="In so many tokens."
)
@click.option("--reach", type=click.Choice(REACHES), help="How far memory is searched.")
def context_command(ctx: CommandContext, id: str, hint: str | None, budget: int, reach: str | None) -> None:
    """Show what a model should know about a session: what it understands, remembers, and what was said."""

    async def assemble(store: AsyncStore) -> SessionContext:
        session = await _load_session(ctx, store, id)
        return await session.assemble_context(hint, budget, reach=reach)

    with ctx.open_store(load_embedder=hint is not None) as store:
        context = run_async(assemble, store)

    def show() -> None:
        if context.text:
            click.echo(sanitize_text(context.text), nl=not context.text.endswith("\n"))
        counts = context.token_counts
        parts = ", ".join(f"{name} {counts[name]:,}" for name in ("working", "long_term", "conversation"))
        click.echo(f"{counts['total']:,} tokens of {budget:,}: {parts}", err=True)
        for notice in context.notices:
            click.echo(sanitize(notice), err=True)

    ctx.print_result(context, show)


async def _load_session(ctx: CommandContext, store: AsyncStore, id: str) -> Session:
    """Load a session with the spec it was started with."""
    from omoide.sessions.session import Session
    from omoide.sessions.storage import spec_of

    namespace = ctx.scope.namespace
    spec = await spec_of(store, id, namespace)
    session = await Session.load(id, spec, store=store, namespace=namespace, **turn_options(ctx, spec))
    _check_owner(ctx, session.record)
    return session


def _check_owner(ctx: CommandContext, record: SessionRecord) -> None:
    """Raise `NotFound` unless a session is of the user and agent that are named, if any are."""
    from omoide.sessions.storage import session_not_found

    settings = ctx.settings
    for setting, owner in ((settings.user, record.user_id), (settings.agent, record.agent_id)):
        if _explicit_value(setting) not in (None, owner):
            raise session_not_found(record.session_id, ctx.scope.namespace)


def _print_promotion(promotion: Promotion, notices: tuple[str, ...]) -> None:
    plan, run = promotion.plan, promotion.run
    print_table(
        ("verdict", "score", "type", "content", "why"),
        [
            (
                candidate.verdict,
                f"{candidate.score:.3f}",
                candidate.entry.type or "",
                candidate.entry.content,
                candidate.why,
            )
            for candidate in plan.candidates
        ],
    )
    if (found := promotion.extraction) is not None:
        read = format_count(found.messages, "message", "messages")
        tokens = f"{found.input_tokens:,} tokens in, {found.output_tokens:,} out"
        click.echo(f"{found.memories} found in {read}; {tokens}.", err=True)
    if run is None:
        share = f"{len(plan.to_promote)} of {len(plan.candidates)}"
        click.echo(f"{share} would be promoted; {plan.threshold:g} is enough.", err=True)
        if plan.to_promote:
            click.echo("--apply promotes them.", err=True)
    else:
        click.echo(f"{run.id}  {format_count(len(run.promoted), 'memory', 'memories')} promoted")
        for candidate in run.failed:
            click.echo(f"not promoted: {sanitize(candidate.id)}: {sanitize(candidate.problem)}", err=True)
    for notice in notices:
        click.echo(sanitize(notice), err=True)


_SUMMARY_FIELDS = (
    "session_id",
    "agent_id",
    "user_id",
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


@command("list", "omoide sessions list --agent ada")
def list_command(ctx: CommandContext) -> int:
    """List the sessions of the namespace, the one that was used last first.

    Those of all users, agents and projects, unless one is named.
    """
    from omoide.sessions.storage import sessions

    agent, project = _explicit_value(ctx.settings.agent), _explicit_value(ctx.settings.project)
    with ctx.open_store() as store:
        stored = run_async(
            sessions, store, agent_id=agent, user_id=ctx.scope.user_id, namespace=ctx.scope.namespace
        )
    headers = [header for header in stored if project in (None, header.project_id)]
    headers.sort(key=lambda header: header.updated_at, reverse=True)

    def show() -> None:
        rows = [
            (row.session_id, row.agent_id, row.status, str(row.turns), format_time(row.updated_at))
            for row in headers
        ]
        print_table(("id", "agent", "status", "turns", "used last"), rows)
        if not headers:
            click.echo("Nothing found.", err=True)

    ctx.print_result({"sessions": [_summary(header) for header in headers]}, show)
    return OK if headers else NOT_FOUND


@command("show", "omoide sessions show conv-1")
@click.argument("id")
def show_command(ctx: CommandContext, id: str) -> None:
    """Show what was said in a session, and where it stands."""
    from omoide.sessions.storage import SessionStore, session_not_found

    with ctx.open_store() as store:
        stored = run_async(SessionStore(store, id, ctx.scope.namespace).load)
    if stored is None:
        raise session_not_found(id, ctx.scope.namespace)
    header, thread = stored
    _check_owner(ctx, header)

    def show() -> None:
        for entry in thread.entries:
            for line in _entry_lines(entry):
                click.echo(sanitize_text(line))
        for review in header.pending_reviews:
            click.echo(f"waits for a decision: {sanitize(review.question)} ({sanitize(review.id)})")
        click.echo(f"{header.status}, {format_time(header.updated_at)}", err=True)

    ctx.print_result({"session": _summary(header), "entries": [*thread.entries]}, show)


def _explicit_value(setting: CliSetting) -> str | None:
    """Return the value of a setting if it was given explicitly."""
    return None if setting.origin in ("default", REPOSITORY) else setting.value


def _summary(header: SessionRecord) -> dict[str, Any]:
    fields = codec.to_builtins(header)
    return {name: fields.get(name) for name in _SUMMARY_FIELDS}


def _entry_lines(entry: ThreadEntry) -> Iterator[str]:
    """Yield an entry of a thread as lines for a person; other kinds are not shown."""
    payload = entry.payload
    match entry.kind:
        case "message":
            if payload.get("content"):
                yield f"{payload.get('role')}> {payload['content']}"
        case "tool_call":
            yield f"  → {payload.get('name')} {codec.encode(payload.get('params')).decode()}"
        case "tool_result":
            yield f"  ← {payload.get('name')}: {payload.get('content')}"
        case "error":
            yield f"  ! {payload.get('problem') or payload.get('error')}"
        case _:
            pass


sessions_command.params += common_options()
sessions_command.add_command(list_command)
sessions_command.add_command(show_command)
