"""Sparql, validate, export, import, copy.

In memory unless told otherwise: built from the store when the command begins, and gone when it ends. In a
folder or at an endpoint it stays, and only what changed since is taken in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

import click
import msgspec

from omoide.cli.maintenance import refuse_own
from omoide.cli.memories import from_stdin
from omoide.cli.output import HIDDEN, Progress, counted, progress, put_json, put_rows, safe
from omoide.cli.shell import NOTHING, NUMBER, OK, Shell, command, file_of
from omoide.errors import Invalid, NotFound

if TYPE_CHECKING:
    from omoide.blocking import Graph
    from omoide.graph.results import Answer, Triple
    from omoide.graph.shacl import Report
    from omoide.graph.terms import Term
    from omoide.service.transfer import Copied, Imported
    from omoide.stores.async_store import LocalStore


# copying: How does everything get from one store to another from a shell?


@command(
    "copy",
    "omoide copy --from old.db --to new.db",
    "omoide copy --to postgresql://ada@db.example/agents",
    "omoide copy --to team.db --namespace team --tokens",
)
@click.option("--from", "source", metavar="URL", help="The store that is copied; usually the one in use.")
@click.option("--to", "target", required=True, metavar="URL", help="The store that it is copied to.")
@click.option(
    "--namespace", "named", multiple=True, metavar="NAME", help="Only this one; may be repeated. Usually all."
)
@click.option("--tokens", is_flag=True, help="The tokens of the store, too.")
def copy_command(shell: Shell, source: str | None, target: str, named: tuple[str, ...], tokens: bool) -> None:
    """Copy everything from one store to another, as it is.

    Memories come with what was forgotten and why, links and figures of use, and with them sessions and
    agents at rest. What is there already is left as it is, so doing it twice does no harm; where the other
    store has something else under an id, nothing is copied.
    """
    import anyio

    from omoide.service.transfer import check_namespaces, copy

    for name in ("agent", "project", "session"):
        if getattr(shell.settings, name).origin == f"--{name}":
            raise Invalid(f"--{name}", "is given", "leave it out: whole namespaces are copied")
    chosen = _namespaces(shell, named)
    check_namespaces(chosen or (), tokens=tokens)
    here = shell if source is None else shell.at(source, "--from")
    there = shell.at(target, "--to")
    file = file_of(there.settings.store.value or "")
    refuse_own(here, *([] if file is None else [file]))
    with (
        here.store() as one,
        there.store(create=True, embeds=True) as other,
        progress() as tell,
    ):
        done = anyio.run(partial(copy, one, other, namespaces=chosen, tokens=tokens, progress=tell))
    shell.put(done, lambda: _show(done))


def _namespaces(shell: Shell, named: tuple[str, ...]) -> list[str] | None:
    """Those that are named, here or before the command or by the variable; None for all."""
    if named:
        return [*named]
    setting = shell.settings.namespace
    return None if setting.origin == "default" else [shell.scope.namespace]


def _show(done: Copied) -> None:
    memories = f"{counted(done.memories, 'memory', 'memories')}, {done.new:,} new"
    documents = f"{counted(done.documents, 'document', 'documents')}, {done.new_documents:,} new"
    click.echo(f"{memories}; {documents}")
    click.echo(f"namespaces: {', '.join(map(safe, done.namespaces)) or 'none'}", err=True)
    for notice in done.notices:
        click.echo(safe(notice), err=True)


# graphs: Where is the graph that a command asks?


def graph_options(function: Any) -> Any:
    """Give a command the options that say where its graph is."""
    for option in (
        click.option(
            "--update-endpoint", metavar="URL", help="Where the endpoint takes changes, if not there too."
        ),
        click.option("--endpoint", metavar="URL", help="A SPARQL 1.1 endpoint that keeps the graph."),
        click.option(
            "--graph",
            "folder",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="A folder that keeps the graph.",
        ),
    ):
        function = option(function)
    return function


def graph_of(store: LocalStore, given: dict[str, Any] | None = None) -> Graph:
    """The graph over a store, where the options say; takes them out of `given`."""
    from omoide import blocking

    if given is None:
        return blocking.open_graph(store)
    return blocking.open_graph(
        store,
        path=given.pop("folder"),
        endpoint=given.pop("endpoint"),
        update_endpoint=given.pop("update_endpoint"),
    )


# exchanging: How do memories go to a file that other programs read, and come from one?


RDF = {".ttl": "turtle", ".trig": "trig", ".jsonld": "jsonld", ".nq": "nquads"}
LINES, CHAT = "jsonl", "chat"
WRITTEN = {**RDF, ".jsonl": LINES}
READ = {**WRITTEN, ".json": CHAT}


@command(
    "export",
    "omoide export memories.jsonl",
    "omoide export all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    type=click.Choice([*WRITTEN.values()]),
    help="The format, if the file's name does not say.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def export_command(shell: Shell, file: Path, format: str | None, force: bool) -> None:
    """Write the memories that are meant to FILE: .jsonl, or as RDF .ttl, .trig, .jsonld or .nq.

    All of them, also those that were forgotten or no longer hold. The file is there when it is complete.
    """
    refuse_own(shell, file)
    if file.exists() and not force:
        raise Invalid("file", f"{str(file)!r} exists", "choose another, or replace it with --force")
    kind = _kind(file, format, WRITTEN)
    with shell.store() as store, progress() as tell:
        count = _written(shell, store, file, kind, tell)
    shell.put(
        {"path": str(file), "memories": count},
        lambda: click.echo(f"{safe(str(file))}  {counted(count, 'memory', 'memories')}"),
    )


@command(
    "import",
    "omoide import memories.jsonl",
    "omoide import chat.json --thread maria-and-ben",
    "omoide import all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format", type=click.Choice([*READ.values()]), help="The format, if the file's name does not say."
)
@click.option("--thread", metavar="NAME", help="What a chat is called; usually what the file says.")
def import_command(shell: Shell, file: Path, format: str | None, thread: str | None) -> None:
    """Take over the memories of FILE, or what was said in a chat, all of it or nothing.

    What the store has already is left as it is, so doing it twice does no harm. Memories that do not say
    whose they are become those of the agent, project and session that are meant; others have to be theirs.
    """
    if not file.exists():
        raise NotFound("file", str(file), "check the path")
    kind = _kind(file, format, READ)
    if kind == LINES and format is None:
        from omoide.service.chats import is_chat

        kind = CHAT if is_chat(file) else LINES
    if thread is not None and kind != CHAT:
        raise Invalid("--thread", "is given, and the file is no chat", "leave it out, or pass --format chat")
    with shell.store(create=True, embeds=True) as store, progress() as tell:
        done = _taken(shell, store, file, kind, thread, tell)
    answer: dict[str, Any] = {"path": str(file), "memories": done.memories, "new": done.new}
    if kind == CHAT:
        answer["left_out"] = done.left_out
    shell.put(answer, lambda: _exchanging_show(file, done))


def _kind(file: Path, format: str | None, known: dict[str, str]) -> str:
    if format is not None:
        return format
    found = known.get(file.suffix.lower())
    if found is None:
        problem, endings = f"cannot be told from {file.name!r}", ", ".join(known)
        raise Invalid("format", problem, f"end the name in one of {endings}, or pass --format")
    return found


def _written(shell: Shell, store: LocalStore, file: Path, kind: str, tell: Progress | None) -> int:
    if kind != LINES:
        told = None if tell is None else partial(tell, "writing")
        with graph_of(store) as graph:
            return graph.export(file, shell.scope, format=kind, progress=told)
    import anyio

    from omoide.service import transfer as lines

    return anyio.run(partial(lines.write, store, file, shell.scope, progress=tell))


def _taken(
    shell: Shell, store: LocalStore, file: Path, kind: str, thread: str | None, tell: Progress | None
) -> Imported:
    import anyio

    from omoide.service import chats as hearing
    from omoide.service import transfer as lines

    if kind == LINES:
        return anyio.run(partial(lines.read, store, file, shell.scope, progress=tell))
    if kind == CHAT:
        return anyio.run(partial(hearing.read, store, file, shell.scope, thread=thread, progress=tell))
    seen = 0

    def told(done: int, total: int | None) -> None:
        nonlocal seen
        seen = total or 0
        if tell is not None:
            tell("reading", done, seen)

    with graph_of(store) as graph:
        new = graph.load(file, shell.scope, format=kind, progress=told)
    return lines.Imported(seen, new)


def _exchanging_show(file: Path, done: Imported) -> None:
    click.echo(f"{safe(str(file))}  {counted(done.memories, 'memory', 'memories')}, {done.new:,} new")
    if done.left_out:
        click.echo(f"{counted(done.left_out, 'message', 'messages')} without text left out", err=True)


# querying: How is memory asked in SPARQL from a shell?


_NAME = re.compile(r"[?$]?([^\W\d]\w*)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,1000}")
_DECIMAL = re.compile(r"[+-]?[0-9]{0,1000}\.[0-9]{1,1000}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})[eE][+-]?[0-9]{1,3}")


@command(
    "sparql",
    "omoide sparql 'SELECT ?text { ?m a jido:Decision ; jido:summary ?text }'",
    "omoide sparql 'ASK { ?m jido:summary ?text }' --bind 'text=We use Postgres.'",
    "omoide sparql --file report.rq --json",
)
@click.argument("query", required=False)
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), help="The file with the query.")
@click.option(
    "--bind", "bound", multiple=True, metavar="NAME=VALUE", help="A value for a variable; may be repeated."
)
@click.option("--limit", type=NUMBER, default=10_000, show_default=True, metavar="N", help="At most so many.")
@click.option(
    "--timeout", type=float, default=30.0, show_default=True, metavar="SECONDS", help="When to give up."
)
@graph_options
def sparql_command(
    shell: Shell,
    query: str | None,
    file: Path | None,
    bound: tuple[str, ...],
    limit: int,
    timeout: float,
    **given: Any,
) -> int:
    """Ask the memories that are meant in SPARQL; - reads the query from standard input.

    SELECT prints a table, ASK yes or no, CONSTRUCT and DESCRIBE triples. A query cannot change anything, and
    runs in a process of its own that ends with the time.
    """
    asked, bindings = _query(query, file), bindings_of(bound)
    with shell.store() as store, graph_of(store, given) as graph:
        answer = graph.sparql(
            asked, shell.scope, limit=limit, timeout=timeout, isolated=True, bindings=bindings
        )
    if shell.json:
        put_json(msgspec.Raw(answer.to_json()))
    else:
        _querying_show(shell, answer)
    if answer.truncated:
        click.echo(f"There are more than {limit:,}: see --limit.", err=True)
    return OK if answer else NOTHING


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise Invalid("query", "must be given once", "pass it, - for standard input, or a --file")
    if query is not None:
        return from_stdin() if query == "-" else query
    try:
        return Path(file or "").read_text("utf-8")
    except FileNotFoundError:
        raise NotFound("file", str(file), "check the path") from None
    except UnicodeDecodeError as error:
        raise Invalid("--file", f"{str(file)!r} is not UTF-8", "convert it first") from error


def bindings_of(given: Iterable[str]) -> dict[str, Any]:
    """The values for variables that options tell."""
    found: dict[str, Any] = {}
    for one in given:
        said, separator, value = one.partition("=")
        name = _NAME.fullmatch(said.strip())
        if not separator or name is None:
            raise Invalid("--bind", f"is {one!r}", "write NAME=VALUE, such as --bind type=fact")
        if name[1] in found:
            raise Invalid("--bind", f"gives ?{name[1]} two values", "give one")
        found[name[1]] = value_of(value)
    return found


def value_of(text: str) -> Any:
    """What a value on the command line means: <an IRI>, a number, true, false, or text; in "quotes" text."""
    from omoide.graph.terms import IRI, check_iri

    if len(text) > 1 and text.startswith("<") and text.endswith(">"):
        return IRI(check_iri(text[1:-1], "--bind"))
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    return float(text) if _DOUBLE.fullmatch(text) else text


def _querying_show(shell: Shell, answer: Answer) -> None:
    if answer.kind == "truth":
        click.echo("yes" if answer.truth else "no")
    elif not len(answer):
        shell.put_nothing()
    elif answer.kind == "triples":
        for triple in answer.triples:
            click.echo(line_of(triple))
    else:
        names = answer.variables
        put_rows(names, [[_plain(row.term(name)) for name in names] for row in answer.rows])


def _plain(term: Term | None) -> str:
    if term is None:
        return ""
    return f"_:{term.value}" if term.kind == "blank" else term.value


def line_of(triple: Triple) -> str:
    """A triple as N-Triples that are safe to look at: what a terminal would act on stands as its number."""
    return "".join(_escaped(char) if category(char) in HIDDEN else char for char in str(triple))


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


# validating: Do memories have the shape that the ontology asks for?


@command(
    "validate",
    "omoide validate",
    "omoide validate --strict --json",
)
@click.option("--strict", is_flag=True, help="What is incomplete counts as wrong, too.")
def validate_command(shell: Shell, strict: bool) -> int:
    """Check the memories that are meant against the shapes of the ontology.

    Ends with code 1 if they do not conform.
    """
    with shell.store() as store, graph_of(store) as graph:
        report = graph.validate(shell.scope, strict=strict)
    shell.put(report, lambda: _validating_show(report))
    return OK if report.conforms else NOTHING


def _validating_show(report: Report) -> None:
    click.echo("conforms" if report.conforms else "does not conform")
    put_rows(
        ("how bad", "id", "what", "shape"),
        [(one.severity, one.id, one.message, one.shape) for one in report.problems],
    )
