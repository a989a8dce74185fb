"""Remember, recall, forget, list, show, erase."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from omoide import clock
from omoide.cli import output
from omoide.cli.output import (
    ROW,
    about,
    clipped,
    counted,
    explained,
    put_fields,
    put_rows,
    put_tree,
    safe,
    shown,
)
from omoide.cli.shell import FAILED, NOTHING, NUMBER, OK, REPOSITORY, Shell, command
from omoide.core.entry import DELETED, MEMORY_TYPES, SOURCES, Entry, Scope
from omoide.core.requests import Filter, RecallResult
from omoide.errors import Invalid, OmoideError
from omoide.stores.records import Query, Version

if TYPE_CHECKING:
    from omoide.stores.async_store import LocalStore
    from omoide.stores.records import EraseReceipt


# erasing: How is a memory removed for good?


_SHOWN = 20


@command(
    "erase",
    'omoide erase mem_0123 --reason "asked for by the user"',
    "omoide erase --all --session conv-1 --dry-run",
)
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option(
    "--all", "everything", is_flag=True, help="Everything in the namespace, agent, project and session."
)
@click.option("--reason", help="Why; it stays with the id.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase_command(
    shell: Shell, ids: tuple[str, ...], everything: bool, reason: str | None, dry_run: bool, yes: bool
) -> None:
    """Remove memories for good, with all that came of them.

    Versions, vectors, links and index terms go; only the id, the time and the reason are kept. What
    `omoide forget` does can be undone, this cannot.
    """
    if bool(ids) == everything:
        raise Invalid("ids", "must be given, or --all", "name the memories, or the scope with --all")
    if everything and shell.settings.project.origin == REPOSITORY:
        click.echo("Only the repository you are in is meant; --project '' means all projects.", err=True)
    wanted = list(dict.fromkeys(ids))
    with shell.store() as store:
        going = [store.sync.get(id, shell.scope) for id in wanted] or store.sync.list_entries(shell.scope)
        if dry_run:
            answer = {"dry_run": True, "scope": shell.scope, "entries": going}
            shell.put(answer, lambda: _show(going, shell))
            return
        if not yes:
            _show(going, shell, err=True)
            click.confirm("Remove them for good?", abort=True, err=True)
        receipts, failure = _erased(store, wanted or [None], shell, reason)
    if receipts:
        answer = {"dry_run": False, "scope": shell.scope, "receipts": receipts}
        shell.put(answer, lambda: _told(receipts, shell, everything=everything))
    if failure is not None:
        if receipts:
            click.echo(f"not erased: {', '.join(map(safe, wanted[len(receipts) :]))}", err=True)
        raise failure


@command(
    "scrub",
    "omoide scrub",
)
def scrub_command(shell: Shell) -> int:
    """Clear what erased memories may have left in the files of the store.

    Erasing does so itself, unless another program reads just then; this does what was left to do. Where
    somebody still reads, the code is 4.
    """
    with shell.store() as store:
        receipt = store.sync.scrub()

    def show() -> None:
        if receipt.scrubbed:
            click.echo("scrubbed")
        _left([receipt])

    shell.put(receipt, show)
    return OK if receipt.scrubbed else FAILED


def _erased(
    store: LocalStore, ids: Sequence[str | None], shell: Shell, reason: str | None
) -> tuple[list[EraseReceipt], OmoideError | None]:
    """The receipts up to the first failure, and that; each id is erased by itself."""
    from omoide import blocking

    receipts: list[EraseReceipt] = []
    for id in ids:
        try:
            receipts.append(blocking.erase(store, shell.scope, id=id, reason=reason))
        except OmoideError as error:
            return receipts, error
    return receipts, None


def _where(shell: Shell) -> str:
    """The scope in words, and which part of it nobody asked for."""
    parts = []
    for name in ("namespace", "agent", "project", "session"):
        setting = getattr(shell.settings, name)
        if setting.value is not None:
            told = f" [{REPOSITORY}]" if setting.origin == REPOSITORY else ""
            parts.append(f"{name} {safe(setting.value)}{told}")
    return ", ".join(parts)


def _show(going: list[Entry], shell: Shell, *, err: bool = False) -> None:
    click.echo(f"{counted(len(going), 'memory', 'memories')} of {_where(shell)}:", err=err)
    for entry in going[:_SHOWN]:
        click.echo(f"  {entry.id}  {clipped(entry.content, 70)}", err=err)
    if len(going) > _SHOWN:
        click.echo(f"  … and {len(going) - _SHOWN} more", err=err)


def _told(receipts: list[EraseReceipt], shell: Shell, *, everything: bool) -> None:
    for receipt in receipts:
        erased = f"erased, in {counted(receipt.versions, 'version', 'versions')}"
        if everything:
            count = counted(len(receipt.ids), "memory", "memories")
            click.echo(f"{count} of {_where(shell)} {erased}")
        else:
            click.echo(f"{', '.join(receipt.ids)}  {erased}")
    _left(receipts)


def _left(receipts: Sequence[EraseReceipt]) -> None:
    for left in dict.fromkeys(
        part for receipt in receipts for part in (*receipt.pending, *receipt.unreachable)
    ):
        click.echo(f"not reached: {safe(left)}", err=True)


# recalling: How is a memory found from a shell?


_RECALL_SHOWN = 500
"""How many characters of a memory are shown."""


def filter_options(function: Any) -> Any:
    """Give a command the options that say which memories are meant at all."""
    for option in (
        click.option("--min-confidence", type=float, metavar="X", help="How sure they are at least."),
        click.option("--until", metavar="WHEN", help="Not after: a date (all of that day), a time, or 7d."),
        click.option("--since", metavar="WHEN", help="Not before: a date, a time, or 7d for a week ago."),
        click.option("--tag", "tags", multiple=True, help="With this tag; repeated: with all of them."),
        click.option(
            "--type",
            "types",
            multiple=True,
            type=click.Choice(MEMORY_TYPES),
            metavar="TYPE",
            help="Of this type; repeated: of any of them.",
        ),
    ):
        function = option(function)
    return function


def filter_of(given: dict[str, Any], **more: Any) -> Filter:
    """The filter that the options ask for; takes them out of `given`."""
    now = clock.now()
    since, until = given.pop("since"), given.pop("until")
    least = given.pop("min_confidence")
    return Filter(
        types=given.pop("types"),
        tags=given.pop("tags"),
        min_confidence=0.0 if least is None else least,
        since=None if since is None else output.before(since, now, "--since"),
        until=None if until is None else output.until(until, now, "--until"),
        **more,
    )


@command(
    "recall",
    'omoide recall "what should I call the user?"',
    'omoide recall "why postgres?" --type decision --since 30d --explain',
)
@click.argument("query")
@click.option("--limit", type=NUMBER, default=5, show_default=True, metavar="N", help="At most so many.")
@filter_options
@click.option(
    "--max-tokens", type=NUMBER, metavar="N", help="What they may take up where a model reads them."
)
@click.option("--explain", is_flag=True, help="Say why each one is there.")
def recall_command(
    shell: Shell, query: str, limit: int, max_tokens: int | None, explain: bool, **given: Any
) -> int:
    """Find the memories that answer QUERY, best first.

    Of a long one the beginning is shown; `omoide show ID` and --json tell all of it.
    """
    from omoide import blocking

    chosen = filter_of(given)
    with shell.store(embeds=True) as store:
        result = blocking.recall(store, query, shell.scope, limit=limit, filter=chosen, max_tokens=max_tokens)
    shell.put(
        {"hits": result.hits, "weak": result.weak, "notices": result.notices},
        lambda: _recalling_show(shell, result, explain=explain),
    )
    return OK if result.hits else NOTHING


def _recalling_show(shell: Shell, result: RecallResult, *, explain: bool) -> None:
    for hit in result.hits:
        if explain:
            put_tree(explained(hit, _RECALL_SHOWN))
        else:
            click.echo(f"{hit.rank}. {clipped(hit.entry.content, _RECALL_SHOWN)}  [{about(hit)}]")
    if result.weak and result.hits:
        click.echo("Nothing matches well; this is the closest there is.", err=True)
    if not result.hits:
        shell.put_nothing()
    for notice in result.notices:
        click.echo(safe(notice), err=True)


# reading: What is in the store?


@command(
    "list",
    "omoide list --type decision --since 7d",
    "omoide list --json | jq -r '.entries[].content'",
)
@click.option("--limit", type=NUMBER, default=50, show_default=True, metavar="N", help="At most so many.")
@click.option("--cursor", help="Where the next page begins, as the page before told.")
@filter_options
@click.option("--forgotten", is_flag=True, help="With those that were forgotten or replaced.")
@click.option("--expired", is_flag=True, help="With those that have expired.")
@click.option("--stale", is_flag=True, help="With those that rest on something which no longer holds.")
def list_command(
    shell: Shell, limit: int, cursor: str | None, forgotten: bool, expired: bool, stale: bool, **given: Any
) -> int:
    """List memories, newest first.

    Of a long one the beginning is shown; `omoide show ID` and --json tell all of it.
    """
    chosen = filter_of(given, include_superseded=forgotten, include_expired=expired, include_stale=stale)
    with shell.store() as store:
        page = store.sync.query(Query.new(scope=shell.scope, filter=chosen, limit=limit, cursor=cursor))

    def show() -> None:
        put_rows(
            ("id", "when", "type", "content"),
            [
                (entry.id, shown(_time(entry)), entry.type or "", clipped(marked(entry), ROW))
                for entry in page.entries
            ],
        )
        if page.cursor is not None:
            click.echo(f"There are more: --cursor {page.cursor}", err=True)
        if not page.entries:
            shell.put_nothing()

    shell.put(page, show)
    return OK if page.entries else NOTHING


@command(
    "show",
    "omoide show mem_0123",
)
@click.argument("id")
def show_command(shell: Shell, id: str) -> None:
    """Show one memory with everything that is known of it."""
    with shell.store() as store:
        entry = store.sync.get(id, shell.scope)
        links = store.sync.links(id, shell.scope)
        access = store.sync.access(id, shell.scope)
        chains = _chains(store, entry, shell.scope) if entry.stale else []

    def show() -> None:
        put_fields({**_fields(entry), "stale": "; ".join(chains)})
        put_fields({f"{link.source} {link.relation}": link.target for link in links})
        if access.count:
            put_fields({"recalled": f"{access.count} times, last {shown(access.last)}"})

    shell.put({"entry": entry, "links": links, "access": access}, show)


@command(
    "history",
    "omoide history mem_0123",
)
@click.argument("id")
def history_command(shell: Shell, id: str) -> None:
    """Show the versions of a memory, oldest first."""
    with shell.store() as store:
        versions = store.sync.history(id, shell.scope)
    shell.put(
        {"versions": versions},
        lambda: put_rows(
            ("rev", "when", "content"),
            [(str(version.rev), shown(version.at), _reading_told(version)) for version in versions],
        ),
    )


def _chains(store: LocalStore, entry: Entry, scope: Scope) -> list[str]:
    """Why a memory no longer holds, in words."""
    import anyio

    from omoide.longterm.lineage import why_stale

    return [str(chain) for chain in anyio.run(why_stale, store, entry.id, scope)]


def _time(entry: Entry) -> int:
    return entry.created_at if entry.occurred_at is None else entry.occurred_at


def marked(entry: Entry) -> str:
    """What a memory says, and before it that it no longer counts, if that is so."""
    marks = [] if entry.superseded_by is None else [_ending(entry)]
    if entry.stale:
        marks.append("stale")
    return f"({', '.join(marks)}) {entry.content}" if marks else entry.content


def _ending(entry: Entry) -> str:
    how = "forgotten" if entry.superseded_by == DELETED else f"replaced by {entry.superseded_by}"
    return how if entry.superseded_reason is None else f"{how}: {entry.superseded_reason}"


def _reading_told(version: Version) -> str:
    if version.entry is None:
        return "erased" if version.reason is None else f"erased: {version.reason}"
    return marked(version.entry)


def _fields(entry: Entry) -> dict[str, str]:
    message = entry.message
    return {
        "id": entry.id,
        "content": entry.content,
        "type": entry.type or "",
        "confidence": f"{entry.confidence:g}",
        "importance": "" if entry.importance is None else f"{entry.importance:g}",
        "source": entry.source or "",
        "tags": ", ".join(entry.tags),
        "rationale": entry.rationale or "",
        "namespace": entry.namespace,
        "agent": entry.agent_id,
        "project": entry.project_id or "",
        "session": entry.session_id or "",
        "message": ""
        if message is None
        else f"{message.thread} #{message.seq} {message.speaker or message.role or ''}",
        "evidence": ", ".join(f"{evidence.kind} {evidence.ref}" for evidence in entry.evidence),
        "created": shown(entry.created_at),
        "occurred": shown(entry.occurred_at),
        "expires": shown(entry.expires_at),
        "forgotten": "" if entry.superseded_by is None else f"{shown(entry.superseded_at)}, {_ending(entry)}",
        "rev": str(entry.rev),
        "metadata": "" if not entry.metadata else str(dict(entry.metadata)),
    }


# writing: How are memories written, forgotten and brought back from a shell?


@command(
    "remember",
    'omoide remember "User prefers the name Alex." --type fact --confidence 0.9',
    "git log -1 --format=%B | omoide remember - --type decision --tag release",
    'omoide remember "The staging server is down." --expires 2h',
)
@click.argument("text")
@click.option(
    "--type", type=click.Choice(MEMORY_TYPES), metavar="TYPE", help="Its kind: fact, decision, convention, …"
)
@click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@click.option("--confidence", type=float, help="How sure it is, from 0 to 1.")
@click.option("--importance", type=float, help="How much it matters, from 0 to 1.")
@click.option("--source", type=click.Choice(SOURCES), help="Where it comes from.")
@click.option("--rationale", help="Why it is so.")
@click.option("--at", metavar="WHEN", help="When it happened: a date, a time, or 2d for two days ago.")
@click.option("--expires", metavar="WHEN", help="When it ends: a date, a time, or 7d for in a week.")
@click.option("--supersedes", metavar="ID", help="The memory that it replaces.")
@click.option("--id", help="Its id; a stored one with that id gets a new revision.")
@click.option("--expected-rev", type=NUMBER, metavar="N", help="The revision stored now; 0 for none.")
@click.option("--idempotency-key", metavar="KEY", help="Repeating the command with it changes nothing.")
@click.option("--dedupe/--no-dedupe", default=None, help="Whether the same words are stored only once.")
def remember_command(
    shell: Shell, text: str, tags: tuple[str, ...], at: str | None, expires: str | None, **given: Any
) -> None:
    """Store TEXT as a memory; - reads standard input."""
    from omoide import blocking

    now = clock.now()
    fields = {name: value for name, value in given.items() if value is not None}
    if at is not None:
        fields["occurred_at"] = output.before(at, now, "--at")
    if expires is not None:
        fields["expires_at"] = output.after(expires, now, "--expires")
    content = from_stdin() if text == "-" else text
    with shell.store(create=True, embeds=True) as store:
        receipt = blocking.remember(store, content, shell.scope, tags=tags, **fields)
    shell.put(
        {"outcome": receipt.outcome, "entry": receipt.entry, "notices": receipt.notices},
        lambda: click.echo(f"{receipt.entry.id}  {receipt.outcome}, rev {receipt.entry.rev}"),
    )


@command(
    "forget",
    'omoide forget mem_0123 --reason "moved to another city"',
)
@click.argument("id")
@click.option("--reason", help="Why; it is kept with the memory.")
@click.option("--replacement", metavar="ID", help="The memory that takes its place.")
@click.option("--expected-rev", type=NUMBER, metavar="N", help="The revision stored now.")
def forget_command(shell: Shell, id: str, **given: Any) -> None:
    """Take a memory out of recall; restore brings it back."""
    from omoide import blocking

    with shell.store() as store:
        entry = blocking.forget(store, id, shell.scope, **_said(given))
    shell.put(entry, lambda: _changed("forgotten", entry))


@command(
    "restore",
    "omoide restore mem_0123",
)
@click.argument("id")
@click.option("--expected-rev", type=NUMBER, metavar="N", help="The revision stored now.")
def restore_command(shell: Shell, id: str, **given: Any) -> None:
    """Bring a forgotten memory back."""
    from omoide import blocking

    with shell.store() as store:
        before = store.sync.get(id, shell.scope)
        entry = blocking.restore(store, id, shell.scope, **_said(given))
    outcome = "restored" if entry.rev != before.rev else "unchanged, it was not forgotten"
    shell.put(entry, lambda: _changed(outcome, entry))


def from_stdin() -> str:
    """What standard input holds, without the end of its last line."""
    try:
        return sys.stdin.buffer.read().decode().rstrip("\n")
    except UnicodeDecodeError as error:
        raise Invalid("standard input", "is not UTF-8", "convert it first") from error


def _said(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _changed(what: str, entry: Entry) -> None:
    click.echo(f"{entry.id}  {what}, rev {entry.rev}: {clipped(entry.content, 60)}")
