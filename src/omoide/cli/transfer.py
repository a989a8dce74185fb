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

from omoide.cli.maintenance import refuse_store_file
from omoide.cli.memories import read_stdin
from omoide.cli.output import (
    UNSAFE_CATEGORIES,
    ProgressCallback,
    format_count,
    print_json,
    print_table,
    progress_bar,
    sanitize,
)
from omoide.cli.shell import COUNT, NOT_FOUND, OK, CommandContext, command, store_file
from omoide.errors import Invalid, NotFound

if TYPE_CHECKING:
    from omoide.blocking import BlockingGraph
    from omoide.graph.results import Answer, Triple
    from omoide.graph.shacl import ValidationReport
    from omoide.graph.terms import RDFTerm
    from omoide.service.transfer import CopyReport, ImportReport
    from omoide.stores.async_store import AsyncStore


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
def copy_command(
    shell: CommandContext, source: str | None, target: str, named: tuple[str, ...], tokens: bool
) -> None:
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
    chosen = _selected_namespaces(shell, named)
    check_namespaces(chosen or (), tokens=tokens)
    here = shell if source is None else shell.with_store(source, "--from")
    there = shell.with_store(target, "--to")
    file = store_file(there.settings.store.value or "")
    refuse_store_file(here, *([] if file is None else [file]))
    with (
        here.open_store() as one,
        there.open_store(create=True, load_embedder=True) as other,
        progress_bar() as tell,
    ):
        done = anyio.run(partial(copy, one, other, namespaces=chosen, tokens=tokens, progress=tell))
    shell.print_result(done, lambda: _print_copy_report(done))


def _selected_namespaces(shell: CommandContext, names: tuple[str, ...]) -> list[str] | None:
    """Those that are named, here or before the command or by the variable; None for all."""
    if names:
        return [*names]
    setting = shell.settings.namespace
    return None if setting.origin == "default" else [shell.scope.namespace]


def _print_copy_report(report: CopyReport) -> None:
    memories = f"{format_count(report.memories, 'memory', 'memories')}, {report.new:,} new"
    documents = f"{format_count(report.documents, 'document', 'documents')}, {report.new_documents:,} new"
    click.echo(f"{memories}; {documents}")
    click.echo(f"namespaces: {', '.join(map(sanitize, report.namespaces)) or 'none'}", err=True)
    for notice in report.notices:
        click.echo(sanitize(notice), err=True)


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


def open_graph(store: AsyncStore, options: dict[str, Any] | None = None) -> BlockingGraph:
    """The graph over a store, where the options say; takes them out of `given`."""
    from omoide import blocking

    if options is None:
        return blocking.open_graph(store)
    return blocking.open_graph(
        store,
        path=options.pop("folder"),
        endpoint=options.pop("endpoint"),
        update_endpoint=options.pop("update_endpoint"),
    )


# exchanging: How do memories go to a file that other programs read, and come from one?


RDF_FORMATS = {".ttl": "turtle", ".trig": "trig", ".jsonld": "jsonld", ".nq": "nquads"}
JSONL, CHAT = "jsonl", "chat"
EXPORT_FORMATS = {**RDF_FORMATS, ".jsonl": JSONL}
IMPORT_FORMATS = {**EXPORT_FORMATS, ".json": CHAT}


@command(
    "export",
    "omoide export memories.jsonl",
    "omoide export all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    type=click.Choice([*EXPORT_FORMATS.values()]),
    help="The format, if the file's name does not say.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def export_command(shell: CommandContext, file: Path, format: str | None, force: bool) -> None:
    """Write the memories that are meant to FILE: .jsonl, or as RDF .ttl, .trig, .jsonld or .nq.

    All of them, also those that were forgotten or no longer hold. The file is there when it is complete.
    """
    refuse_store_file(shell, file)
    if file.exists() and not force:
        raise Invalid("file", f"{str(file)!r} exists", "choose another, or replace it with --force")
    kind = _file_format(file, format, EXPORT_FORMATS)
    with shell.open_store() as store, progress_bar() as tell:
        count = _export(shell, store, file, kind, tell)
    shell.print_result(
        {"path": str(file), "memories": count},
        lambda: click.echo(f"{sanitize(str(file))}  {format_count(count, 'memory', 'memories')}"),
    )


@command(
    "import",
    "omoide import memories.jsonl",
    "omoide import chat.json --thread maria-and-ben",
    "omoide import all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    type=click.Choice([*IMPORT_FORMATS.values()]),
    help="The format, if the file's name does not say.",
)
@click.option("--thread", metavar="NAME", help="What a chat is called; usually what the file says.")
def import_command(shell: CommandContext, file: Path, format: str | None, thread: str | None) -> None:
    """Take over the memories of FILE, or what was said in a chat, all of it or nothing.

    What the store has already is left as it is, so doing it twice does no harm. Memories that do not say
    whose they are become those of the agent, project and session that are meant; others have to be theirs.
    """
    if not file.exists():
        raise NotFound("file", str(file), "check the path")
    kind = _file_format(file, format, IMPORT_FORMATS)
    if kind == JSONL and format is None:
        from omoide.service.chats import is_chat

        kind = CHAT if is_chat(file) else JSONL
    if thread is not None and kind != CHAT:
        raise Invalid("--thread", "is given, and the file is no chat", "leave it out, or pass --format chat")
    with shell.open_store(create=True, load_embedder=True) as store, progress_bar() as tell:
        done = _import(shell, store, file, kind, thread, tell)
    answer: dict[str, Any] = {"path": str(file), "memories": done.memories, "new": done.new}
    if kind == CHAT:
        answer["left_out"] = done.left_out
    shell.print_result(answer, lambda: _print_import_report(file, done))


def _file_format(file: Path, format: str | None, known: dict[str, str]) -> str:
    if format is not None:
        return format
    found = known.get(file.suffix.lower())
    if found is None:
        problem, endings = f"cannot be told from {file.name!r}", ", ".join(known)
        raise Invalid("format", problem, f"end the name in one of {endings}, or pass --format")
    return found


def _export(
    shell: CommandContext, store: AsyncStore, file: Path, kind: str, progress: ProgressCallback | None
) -> int:
    if kind != JSONL:
        told = None if progress is None else partial(progress, "writing")
        with open_graph(store) as graph:
            return graph.export(file, shell.scope, format=kind, progress=told)
    import anyio

    from omoide.service import transfer as lines

    return anyio.run(partial(lines.export_jsonl, store, file, shell.scope, progress=progress))


def _import(
    shell: CommandContext,
    store: AsyncStore,
    file: Path,
    kind: str,
    thread: str | None,
    progress: ProgressCallback | None,
) -> ImportReport:
    import anyio

    from omoide.service import chats as hearing
    from omoide.service import transfer as lines

    if kind == JSONL:
        return anyio.run(partial(lines.import_jsonl, store, file, shell.scope, progress=progress))
    if kind == CHAT:
        return anyio.run(
            partial(hearing.import_chat, store, file, shell.scope, thread=thread, progress=progress)
        )
    seen = 0

    def told(done: int, total: int | None) -> None:
        nonlocal seen
        seen = total or 0
        if progress is not None:
            progress("reading", done, seen)

    with open_graph(store) as graph:
        new = graph.load(file, shell.scope, format=kind, progress=told)
    return lines.ImportReport(seen, new)


def _print_import_report(file: Path, report: ImportReport) -> None:
    click.echo(
        f"{sanitize(str(file))}  {format_count(report.memories, 'memory', 'memories')}, {report.new:,} new"
    )
    if report.left_out:
        click.echo(f"{format_count(report.left_out, 'message', 'messages')} without text left out", err=True)


# querying: How is memory asked in SPARQL from a shell?


_VARIABLE = re.compile(r"[?$]?([^\W\d]\w*)")
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
@click.option("--limit", type=COUNT, default=10_000, show_default=True, metavar="N", help="At most so many.")
@click.option(
    "--timeout", type=float, default=30.0, show_default=True, metavar="SECONDS", help="When to give up."
)
@graph_options
def sparql_command(
    shell: CommandContext,
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
    asked, bindings = _read_query(query, file), parse_bindings(bound)
    with shell.open_store() as store, open_graph(store, given) as graph:
        answer = graph.sparql(
            asked, shell.scope, limit=limit, timeout=timeout, isolated=True, bindings=bindings
        )
    if shell.json:
        print_json(msgspec.Raw(answer.to_json()))
    else:
        _print_answer(shell, answer)
    if answer.truncated:
        click.echo(f"There are more than {limit:,}: see --limit.", err=True)
    return OK if answer else NOT_FOUND


def _read_query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise Invalid("query", "must be given once", "pass it, - for standard input, or a --file")
    if query is not None:
        return read_stdin() if query == "-" else query
    try:
        return Path(file or "").read_text("utf-8")
    except FileNotFoundError:
        raise NotFound("file", str(file), "check the path") from None
    except UnicodeDecodeError as error:
        raise Invalid("--file", f"{str(file)!r} is not UTF-8", "convert it first") from error


def parse_bindings(options: Iterable[str]) -> dict[str, Any]:
    """The values for variables that options tell."""
    found: dict[str, Any] = {}
    for one in options:
        said, separator, value = one.partition("=")
        name = _VARIABLE.fullmatch(said.strip())
        if not separator or name is None:
            raise Invalid("--bind", f"is {one!r}", "write NAME=VALUE, such as --bind type=fact")
        if name[1] in found:
            raise Invalid("--bind", f"gives ?{name[1]} two values", "give one")
        found[name[1]] = parse_value(value)
    return found


def parse_value(text: str) -> Any:
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


def _print_answer(shell: CommandContext, answer: Answer) -> None:
    if answer.kind == "truth":
        click.echo("yes" if answer.truth else "no")
    elif not len(answer):
        shell.print_nothing_found()
    elif answer.kind == "triples":
        for triple in answer.triples:
            click.echo(to_ntriples(triple))
    else:
        names = answer.variables
        print_table(names, [[_term_text(row.term(name)) for name in names] for row in answer.rows])


def _term_text(term: RDFTerm | None) -> str:
    if term is None:
        return ""
    return f"_:{term.value}" if term.kind == "blank" else term.value


def to_ntriples(triple: Triple) -> str:
    """A triple as N-Triples that are safe to look at: what a terminal would act on stands as its number."""
    return "".join(_escape(char) if category(char) in UNSAFE_CATEGORIES else char for char in str(triple))


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


# validating: Do memories have the shape that the ontology asks for?


@command(
    "validate",
    "omoide validate",
    "omoide validate --strict --json",
)
@click.option("--strict", is_flag=True, help="What is incomplete counts as wrong, too.")
def validate_command(shell: CommandContext, strict: bool) -> int:
    """Check the memories that are meant against the shapes of the ontology.

    Ends with code 1 if they do not conform.
    """
    with shell.open_store() as store, open_graph(store) as graph:
        report = graph.validate(shell.scope, strict=strict)
    shell.print_result(report, lambda: _print_validation_report(report))
    return OK if report.conforms else NOT_FOUND


def _print_validation_report(report: ValidationReport) -> None:
    click.echo("conforms" if report.conforms else "does not conform")
    print_table(
        ("how bad", "id", "what", "shape"),
        [(one.severity, one.id, one.message, one.shape) for one in report.problems],
    )
