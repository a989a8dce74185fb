"""The commands that write, find, show, forget and erase memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from omoide import clock
from omoide.cli import shell
from omoide.cli.shell import (
    COUNT,
    DEFAULT_AGENT,
    FAILED,
    NOT_FOUND,
    OK,
    REPOSITORY,
    ROW_WIDTH,
    CliSetting,
    CommandContext,
    command,
    content_with_status,
    describe_hit,
    explanation_tree,
    format_count,
    format_time,
    print_fields,
    print_table,
    print_tree,
    read_stdin,
    run_async,
    sanitize,
    supersession_text,
    truncate,
)
from omoide.core.entry import (
    MEMORY_TYPES,
    SOURCES,
    Entry,
    Filter,
    RecallResult,
    Scope,
    about_tags,
    check_type,
)
from omoide.errors import Corrupted, Invalid
from omoide.stores.records import Query, Version

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from omoide.stores.async_store import AsyncStore
    from omoide.stores.records import EraseReceipt


_MAX_LISTED = 20


@command(
    "erase",
    'omoide erase mem_0123 --reason "asked for by the user"',
    "omoide erase --all --session conv-1 --dry-run",
    'omoide erase --user ann --reason "the account was closed"',
)
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Everything in the namespace, user, agent, project and session.",
)
@click.option("--reason", help="Why; it stays with the id.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase_command(
    ctx: CommandContext, ids: tuple[str, ...], everything: bool, reason: str | None, dry_run: bool, yes: bool
) -> None:
    """Erase memories permanently, with everything derived from them.

    Versions, vectors, links and index terms go; only the id, the time and the reason are kept. What
    `omoide forget` does can be undone, this cannot.

    With --user alone, all that the namespace holds of the user goes: of every agent, project and session,
    transcripts included.
    """
    from omoide import blocking

    user = ctx.settings.user
    if not ids and not everything and user.value is not None and user.origin == "--user":
        ctx, everything = _with_whole_user(ctx), True
    if bool(ids) == everything:
        raise Invalid("ids", "must be given, or --all", "name the memories, or the scope with --all")
    if everything and ctx.settings.project.origin == REPOSITORY:
        click.echo("Only the repository you are in is meant; --project '' means all projects.", err=True)
    unique = list(dict.fromkeys(ids))
    with ctx.open_store() as store:
        entries = _readable(store, unique, ctx) if unique else store.sync.list_entries(ctx.scope)
        documents = 0 if unique else _count_documents(store.sync, ctx.scope)
        if dry_run:
            answer = {"dry_run": True, "scope": ctx.scope, "entries": entries, "documents": documents}
            ctx.print_result(answer, lambda: _print_entries(entries, documents, ctx))
            return
        if not yes:
            _print_entries(entries, documents, ctx, err=True)
            click.confirm("Erase them permanently?", abort=True, err=True)
        # Of everything, only one agent's is erased; what an id names, whoever has it.
        scope = ctx.read_scope if unique else ctx.scope
        receipt = blocking.erase(store, scope, id=unique or None, reason=reason)
    answer = {"dry_run": False, "scope": ctx.scope, "receipts": [receipt]}
    ctx.print_result(answer, lambda: _print_receipt(receipt, ctx, everything=everything))


def _with_whole_user(ctx: CommandContext) -> CommandContext:
    """Return a context for all that its namespace holds of its user."""
    settings = ctx.settings
    for name in ("agent", "project", "session"):
        if getattr(settings, name).origin == f"--{name}" and getattr(settings, name).value is not None:
            raise Invalid(name, "is given beside --user", "add --all to erase this part of what is theirs")
    every = CliSetting(None, "--user")
    return ctx._replace(settings=settings._replace(agent=every, project=every, session=every))


def _count_documents(store: Any, scope: Scope) -> int:
    """Return the number of documents in a scope, such as sessions and their transcripts."""
    count = 0
    for kind in store.kinds(scope.namespace) if scope.project_id is None else ():
        after: str | None = None
        while page := store.documents(kind, scope, after=after):
            count += len(page)
            after = page[-1].id
    return count


def _readable(store: AsyncStore, wanted: Sequence[str], ctx: CommandContext) -> list[Entry]:
    """Return memories by id; those that are damaged are only named, and can be erased all the same."""
    entries = []
    for id in wanted:
        try:
            entries.append(store.sync.get(id, ctx.read_scope))
        except Corrupted:
            click.echo(f"{sanitize(id)} is damaged and cannot be shown", err=True)
    return entries


@command("scrub", "omoide scrub")
def scrub_command(ctx: CommandContext) -> int:
    """Clear what erased memories may have left in the files of the store.

    Erasing does so itself, unless another program reads just then or a SQLite file is larger than 64 MB. The
    whole file is rewritten, while other writers wait. Where something is still left, the code is 4.
    """
    with ctx.open_store() as store:
        receipt = store.sync.scrub()

    def show() -> None:
        if receipt.scrubbed:
            click.echo("scrubbed")
        _print_unreached(receipt)

    ctx.print_result(receipt, show)
    return OK if receipt.scrubbed else FAILED


def _format_found(memories: int, documents: int) -> str:
    """Return how many memories there are, and how many documents if there are any."""
    found = format_count(memories, "memory", "memories")
    return f"{found} and {format_count(documents, 'document', 'documents')}" if documents else found


def _print_entries(entries: list[Entry], documents: int, ctx: CommandContext, *, err: bool = False) -> None:
    click.echo(f"{_format_found(len(entries), documents)} of {ctx.scope_text()}:", err=err)
    for entry in entries[:_MAX_LISTED]:
        click.echo(f"  {entry.id}  {truncate(entry.content, 70)}", err=err)
    if len(entries) > _MAX_LISTED:
        click.echo(f"  … and {len(entries) - _MAX_LISTED} more", err=err)


def _print_receipt(receipt: EraseReceipt, ctx: CommandContext, *, everything: bool) -> None:
    erased = f"erased, in {format_count(receipt.versions, 'version', 'versions')}"
    if everything:
        click.echo(f"{_format_found(len(receipt.ids), receipt.documents)} of {ctx.scope_text()} {erased}")
    else:
        click.echo(f"{', '.join(receipt.ids)}  {erased}")
    _print_unreached(receipt)


def _print_unreached(receipt: EraseReceipt) -> None:
    for unreached in dict.fromkeys((*receipt.pending, *receipt.unreachable)):
        click.echo(f"not reached: {sanitize(unreached)}", err=True)


_MAX_CONTENT = 500
"""Number of characters of a memory that are shown."""


class MemoryType(click.ParamType[str]):
    """Command-line type of a memory type, or of an everyday word that stands for one."""

    name = "type"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return check_type(value, "--type")

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in MEMORY_TYPES if name.startswith(incomplete)]


types_option = click.option(
    "--type",
    "types",
    multiple=True,
    type=MemoryType(),
    help="Of this type; repeated: of any of them.",
)


ABOUT_HELP = "About this file; or module:NAME, artifact:NAME. May be repeated."


def filter_options(function: Any) -> Any:
    """Add the options that filter memories."""
    for option in (
        click.option(
            "--min-confidence", type=float, metavar="X", help="Their confidence at least, from 0 to 1."
        ),
        click.option("--until", metavar="WHEN", help="Not after: a date (all of that day), a time, or 7d."),
        click.option("--since", metavar="WHEN", help="Not before: a date, a time, or 7d for a week ago."),
        click.option("--key", metavar="KEY", help="With this key."),
        click.option("--about", multiple=True, metavar="NAME", help=ABOUT_HELP),
        click.option("--tag", "tags", multiple=True, help="With this tag; repeated: with all of them."),
        types_option,
    ):
        function = option(function)
    return function


def build_filter(options: dict[str, Any], **more: Any) -> Filter:
    """Return the filter of the options, which are removed from `options`."""
    now = clock.now()
    since, until = options.pop("since"), options.pop("until")
    min_confidence = options.pop("min_confidence")
    return Filter(
        types=options.pop("types"),
        tags=(*options.pop("tags"), *about_tags(options.pop("about"))),
        key=options.pop("key"),
        min_confidence=0.0 if min_confidence is None else min_confidence,
        since=None if since is None else shell.parse_past_time(since, now, "--since"),
        until=None if until is None else shell.parse_end_time(until, now, "--until"),
        **more,
    )


@command(
    "recall",
    'omoide recall "what should I call the user?"',
    'omoide recall "why postgres?" --type decision --since 30d --explain',
)
@click.argument("query")
@click.option("--limit", type=COUNT, default=5, show_default=True, metavar="N", help="At most so many.")
@filter_options
@click.option("--max-tokens", type=COUNT, metavar="N", help="What they may take up where a model reads them.")
@click.option(
    "--min-relevance", type=float, metavar="X", help="How likely each one helps to answer at least, 0 to 1."
)
@click.option("--explain", is_flag=True, help="Say why each one is there.")
@click.option("--numbers", is_flag=True, help="The same with what each part adds to its score.")
def recall_command(
    ctx: CommandContext,
    query: str,
    limit: int,
    max_tokens: int | None,
    min_relevance: float | None,
    explain: bool,
    numbers: bool,
    **options: Any,
) -> int:
    """Find the memories that answer QUERY, best first.

    Of a long one the beginning is shown; `omoide show ID` and --json tell all of it.
    """
    from omoide import blocking

    filter = build_filter(options)
    with ctx.open_store(load_embedder=True) as store:
        result = blocking.recall(
            store,
            query,
            _recalled_scope(ctx, store),
            limit=limit,
            filter=filter,
            max_tokens=max_tokens,
            min_relevance=min_relevance,
        )
        if not result.hits and not result.withheld:
            result = result.replace(notices=(*result.notices, *ctx.elsewhere(store)))
    answer = {
        "hits": result.hits,
        "withheld": result.withheld,
        "weak": result.weak,
        "notices": result.notices,
    }
    ctx.print_result(answer, lambda: _print_recall(ctx, result, explain=explain, numbers=numbers))
    return OK if result.hits else NOT_FOUND


def _recalled_scope(ctx: CommandContext, store: AsyncStore) -> Scope:
    """Return the scope to recall from: that of a session has the agent of the session."""
    scope = ctx.read_scope
    if scope.session_id is None or scope.agent_id is not None:
        return scope
    agents = {owner.agent_id for owner in store.sync.owners(scope)}
    if len(agents) > 1:
        remedy = f"name one of {', '.join(sorted(agents))} with --agent"
        raise Invalid("--session", f"{scope.session_id!r} is of several agents", remedy)
    return scope.replace(agent_id=agents.pop() if agents else ctx.scope.agent_id)


def _print_recall(ctx: CommandContext, result: RecallResult, *, explain: bool, numbers: bool) -> None:
    for hit in result.hits:
        if explain or numbers:
            print_tree(explanation_tree(hit, _MAX_CONTENT, numbers=numbers))
        else:
            click.echo(f"{hit.rank}. {truncate(hit.entry.content, _MAX_CONTENT)}  [{describe_hit(hit)}]")
    if result.weak and result.hits:
        click.echo("Nothing matches well; this is the closest there is.", err=True)
    if result.withheld:
        least = result.request.min_relevance
        click.echo(f"{len(result.withheld)} left out, below relevance {least}.", err=True)
    if not result.hits:
        ctx.print_nothing_found()
    for notice in result.notices:
        click.echo(sanitize(notice), err=True)


@command("list", "omoide list --type decision --since 7d", "omoide list --json | jq -r '.entries[].content'")
@click.option("--limit", type=COUNT, default=50, show_default=True, metavar="N", help="At most so many.")
@click.option("--cursor", help="The cursor that the page before gave.")
@filter_options
@click.option("--forgotten", is_flag=True, help="Include forgotten and replaced memories.")
@click.option("--expired", is_flag=True, help="With those that have expired.")
@click.option("--stale", is_flag=True, help="Include stale memories.")
def list_command(
    ctx: CommandContext,
    limit: int,
    cursor: str | None,
    forgotten: bool,
    expired: bool,
    stale: bool,
    **options: Any,
) -> int:
    """List memories, newest first.

    Of a long one the beginning is shown; `omoide show ID` and --json tell all of it.
    """
    filter = build_filter(options, include_superseded=forgotten, include_expired=expired, include_stale=stale)
    with ctx.open_store() as store:
        page = store.sync.query(Query.new(scope=ctx.read_scope, filter=filter, limit=limit, cursor=cursor))
        if not page.entries:
            page = page.replace(notices=ctx.elsewhere(store))

    def show() -> None:
        titles: tuple[str, ...] = ("id", "when", "type", "content")
        rows: list[tuple[str, ...]] = [
            (
                entry.id,
                format_time(_entry_time(entry)),
                entry.type or "",
                truncate(content_with_status(entry), ROW_WIDTH),
            )
            for entry in page.entries
        ]
        if any(entry.agent_id != DEFAULT_AGENT for entry in page.entries):
            titles = (*titles, "agent")
            rows = [(*row, entry.agent_id) for row, entry in zip(rows, page.entries, strict=True)]
        print_table(titles, rows)
        if page.cursor is not None:
            click.echo(f"There are more: --cursor {page.cursor}", err=True)
        if not page.entries:
            ctx.print_nothing_found(page.notices)

    ctx.print_result(page, show)
    return OK if page.entries else NOT_FOUND


@command("show", "omoide show mem_0123")
@click.argument("id")
def show_command(ctx: CommandContext, id: str) -> None:
    """Show one memory with everything that is known of it."""
    with ctx.open_store() as store:
        scope = ctx.read_scope
        entry = store.sync.get(id, scope)
        links = store.sync.links(id, scope)
        access = store.sync.access(id, scope)
        chains = _stale_chains(store, entry, scope) if entry.stale else []

    def show() -> None:
        print_fields({**_entry_fields(entry), "stale": "; ".join(chains)})
        print_fields({f"{link.source} {link.relation}": link.target for link in links})
        if access.count:
            print_fields({"recalled": f"{access.count} times, last {format_time(access.last)}"})

    ctx.print_result({"entry": entry, "links": links, "access": access}, show)


@command("history", "omoide history mem_0123")
@click.argument("id")
def history_command(ctx: CommandContext, id: str) -> None:
    """Show the versions of a memory, oldest first."""
    with ctx.open_store() as store:
        versions = store.sync.history(id, ctx.read_scope)
    ctx.print_result(
        {"versions": versions},
        lambda: print_table(
            ("rev", "when", "content"),
            [(str(version.rev), format_time(version.at), _version_text(version)) for version in versions],
        ),
    )


def _stale_chains(store: AsyncStore, entry: Entry, scope: Scope) -> list[str]:
    """Return the chains that explain why a memory is stale."""
    from omoide.longterm.lineage import why_stale

    return [str(chain) for chain in run_async(why_stale, store, entry.id, scope)]


def _entry_time(entry: Entry) -> int:
    return entry.created_at if entry.occurred_at is None else entry.occurred_at


def _version_text(version: Version) -> str:
    if version.entry is None:
        return "erased" if version.reason is None else f"erased: {version.reason}"
    return content_with_status(version.entry)


def _entry_fields(entry: Entry) -> dict[str, str]:
    message = entry.message
    return {
        "id": entry.id,
        "content": entry.content,
        "key": entry.key or "",
        "type": entry.type or "",
        "confidence": f"{entry.confidence:g}",
        "importance": "" if entry.importance is None else f"{entry.importance:g}",
        "source": entry.source or "",
        "tags": ", ".join(entry.tags),
        "rationale": entry.rationale or "",
        "namespace": entry.namespace,
        "user": entry.user_id or "",
        "agent": entry.agent_id,
        "project": entry.project_id or "",
        "session": entry.session_id or "",
        "message": ""
        if message is None
        else f"{message.thread} #{message.seq} {message.speaker or message.role or ''}",
        "evidence": ", ".join(f"{evidence.kind} {evidence.ref}" for evidence in entry.evidence),
        "created": format_time(entry.created_at),
        "occurred": format_time(entry.occurred_at),
        "expires": format_time(entry.expires_at),
        "forgotten": ""
        if entry.superseded_by is None
        else f"{format_time(entry.superseded_at)}, {supersession_text(entry)}",
        "rev": str(entry.rev),
        "metadata": "" if not entry.metadata else str(dict(entry.metadata)),
    }


@command(
    "remember",
    'omoide remember "User prefers the name Alex." --type fact --confidence 0.9',
    "git log -1 --format=%B | omoide remember - --type decision --tag release",
    'omoide remember "The staging server is down." --expires 2h',
    'omoide remember "I live in Paris." --key home_city',
)
@click.argument("text")
@click.option(
    "--type", type=MemoryType(), help="Its kind: fact, decision, convention, …, or a word such as preference."
)
@click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@click.option("--about", multiple=True, metavar="NAME", help=ABOUT_HELP)
@click.option("--confidence", type=float, help="Its confidence, from 0 to 1.")
@click.option("--importance", type=float, help="How much it matters, from 0 to 1.")
@click.option("--source", type=click.Choice(SOURCES), help="Where it comes from.")
@click.option("--rationale", help="Why it is so.")
@click.option("--at", metavar="WHEN", help="When it happened: a date, a time, or 2d for two days ago.")
@click.option("--expires", metavar="WHEN", help="When it ends: a date, a time, or 7d for in a week.")
@click.option("--key", metavar="KEY", help="Its key, such as home_city; it replaces the value before.")
@click.option("--supersedes", metavar="ID", help="The memory that it replaces.")
@click.option("--id", help="Its id; a stored one with that id gets a new revision.")
@click.option("--expected-rev", type=COUNT, metavar="N", help="The revision stored now; 0 for none.")
@click.option("--idempotency-key", metavar="KEY", help="Repeating the command with it changes nothing.")
@click.option("--dedupe/--no-dedupe", default=None, help="Whether the same words are stored only once.")
def remember_command(
    ctx: CommandContext, text: str, tags: tuple[str, ...], at: str | None, expires: str | None, **options: Any
) -> None:
    """Store TEXT as a memory; - reads standard input."""
    from omoide import blocking

    now = clock.now()
    fields = _without_none(options)
    if at is not None:
        fields["occurred_at"] = shell.parse_past_time(at, now, "--at")
    if expires is not None:
        fields["expires_at"] = shell.parse_future_time(expires, now, "--expires")
    content = read_stdin() if text == "-" else text
    with ctx.open_store(create=True, load_embedder=True) as store:
        receipt = blocking.remember(store, content, ctx.scope, tags=tags, **fields)
    ctx.print_result(
        {
            "outcome": receipt.outcome,
            "entry": receipt.entry,
            "superseded": receipt.metadata.get("superseded"),
            "notices": receipt.notices,
        },
        lambda: click.echo(f"{receipt.entry.id}  {receipt.outcome}, rev {receipt.entry.rev}"),
    )


@command("forget", 'omoide forget mem_0123 --reason "moved to another city"')
@click.argument("id")
@click.option("--reason", help="Why; it is kept with the memory.")
@click.option("--replacement", metavar="ID", help="The memory that takes its place.")
@click.option("--expected-rev", type=COUNT, metavar="N", help="The revision stored now.")
def forget_command(ctx: CommandContext, id: str, **options: Any) -> None:
    """Take a memory out of recall; restore brings it back."""
    from omoide import blocking

    with ctx.open_store() as store:
        entry = blocking.forget(store, id, ctx.read_scope, **_without_none(options))
    ctx.print_result(entry, lambda: _print_change("forgotten", entry))


@command("pin", "omoide pin mem_0123", "omoide pin --list")
@click.argument("id", required=False)
@click.option("--list", "show", is_flag=True, help="List what is pinned.")
def pin_command(ctx: CommandContext, id: str | None, show: bool) -> None:
    """Put a memory into every prompt of its agent."""
    from omoide import blocking

    if show == (id is not None):
        raise click.UsageError("Name one memory, or pass --list.")
    with ctx.open_store() as store:
        if id is not None:
            entry = blocking.pin(store, id, ctx.read_scope)
            ctx.print_result(entry, lambda: _print_change("pinned", entry))
            return
        entries = blocking.pinned(store, ctx.read_scope)
    ctx.print_result({"entries": entries}, lambda: _print_pins(entries))


def _print_pins(entries: Sequence[Entry]) -> None:
    for entry in entries:
        agent = "" if entry.agent_id == DEFAULT_AGENT else f"agent {entry.agent_id}"
        owners = (agent, "" if entry.user_id is None else f"user {entry.user_id}")
        mark = ", ".join(sanitize(owner) for owner in owners if owner)
        click.echo(f"{entry.id}  {truncate(entry.content, 60)}" + (f"  ({mark})" if mark else ""))
    if not entries:
        click.echo("Nothing is pinned.", err=True)


@command("unpin", "omoide unpin mem_0123")
@click.argument("id")
def unpin_command(ctx: CommandContext, id: str) -> None:
    """Take a memory out of every prompt; it stays stored."""
    from omoide import blocking

    with ctx.open_store() as store:
        entry = blocking.unpin(store, id, ctx.read_scope)
    ctx.print_result(entry, lambda: _print_change("unpinned", entry))


@command("restore", "omoide restore mem_0123")
@click.argument("id")
@click.option("--expected-rev", type=COUNT, metavar="N", help="The revision stored now.")
def restore_command(ctx: CommandContext, id: str, **options: Any) -> None:
    """Bring a forgotten memory back."""
    from omoide import blocking

    with ctx.open_store() as store:
        before = store.sync.get(id, ctx.read_scope)
        entry = blocking.reinstate(store, id, ctx.read_scope, **_without_none(options))
    outcome = "restored" if entry.rev != before.rev else "unchanged, it was not forgotten"
    ctx.print_result(entry, lambda: _print_change(outcome, entry))


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _print_change(outcome: str, entry: Entry) -> None:
    click.echo(f"{entry.id}  {outcome}, rev {entry.rev}: {truncate(entry.content, 60)}")
