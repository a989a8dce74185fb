"""The `add`, `sparql`, `validate`, `export`, `import` and `copy` commands.

The graph is built in memory for one command, unless an option names a folder or an endpoint that keeps it;
then only changes are synchronized.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

import click
import msgspec

from omoide.cli.maintenance import refuse_store_file
from omoide.cli.shell import (
    COUNT,
    NOT_FOUND,
    OK,
    UNSAFE_CATEGORIES,
    CommandContext,
    ProgressCallback,
    command,
    exit_code,
    format_count,
    format_error,
    print_json,
    print_table,
    progress_bar,
    read_stdin,
    run_async,
    sanitize,
    store_file,
)
from omoide.documents.formats import FORMATS
from omoide.errors import Conflict, Invalid, MissingExtra, NotFound, OmoideError

if TYPE_CHECKING:
    from omoide.blocking import BlockingGraph
    from omoide.documents.writer import DocumentResult
    from omoide.graph.results import Answer, Triple
    from omoide.graph.shacl import ValidationReport
    from omoide.graph.terms import RDFTerm
    from omoide.service.transfer import CopyReport, ImportReport
    from omoide.stores.async_store import AsyncStore


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
    ctx: CommandContext, source: str | None, target: str, named: tuple[str, ...], tokens: bool
) -> None:
    """Copy everything from one store to another, as it is.

    Memories come with what was forgotten and why, links and figures of use, and with them sessions and
    stored agents. What is there already is left as it is, so doing it twice does no harm; where the other
    store has something else under an id, nothing is copied.
    """
    from omoide.service.transfer import check_namespaces, copy

    for name in ("user", "agent", "project", "session"):
        if getattr(ctx.settings, name).origin == f"--{name}":
            raise Invalid(f"--{name}", "is given", "leave it out: whole namespaces are copied")
    namespaces = _selected_namespaces(ctx, named)
    check_namespaces(namespaces or (), tokens=tokens)
    source_ctx = ctx if source is None else ctx.with_store(source, "--from")
    target_ctx = ctx.with_store(target, "--to")
    file = store_file(target_ctx.settings.store.value or "")
    refuse_store_file(source_ctx, *([] if file is None else [file]))
    with (
        source_ctx.open_store() as source_store,
        target_ctx.open_store(create=True, load_embedder=True) as target_store,
        progress_bar() as report,
    ):
        result = run_async(
            copy, source_store, target_store, namespaces=namespaces, tokens=tokens, progress=report
        )
    ctx.print_result(result, lambda: _print_copy_report(result))


def _selected_namespaces(ctx: CommandContext, names: tuple[str, ...]) -> list[str] | None:
    """Return the namespaces given by option or variable; None for all."""
    if names:
        return [*names]
    setting = ctx.settings.namespace
    return None if setting.origin == "default" else [ctx.scope.namespace]


def _print_copy_report(report: CopyReport) -> None:
    memories = f"{format_count(report.memories, 'memory', 'memories')}, {report.new:,} new"
    documents = f"{format_count(report.documents, 'document', 'documents')}, {report.new_documents:,} new"
    click.echo(f"{memories}; {documents}")
    click.echo(f"namespaces: {', '.join(map(sanitize, report.namespaces)) or 'none'}", err=True)
    for notice in report.notices:
        click.echo(sanitize(notice), err=True)


@command(
    "add",
    "omoide add notes.md report.pdf page.html",
    "omoide add docs/guide.md --name guide --tag handbook",
    "omoide add letter.txt --encoding latin-1",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--name", help="What the document is called; default: its absolute path.")
@click.option("--format", type=click.Choice(FORMATS), help="The format, if the file's name does not say.")
@click.option("--encoding", metavar="NAME", help="The encoding of a text; default: UTF-8.")
@click.option("--tag", "tags", multiple=True, help="A tag for its passages; may be repeated.")
def add_command(
    ctx: CommandContext, files: tuple[Path, ...], name: str | None, tags: tuple[str, ...], **options: Any
) -> int:
    """Add documents as memories: Markdown, HTML, PDF and plain text, in passages with their places.

    A document that is there already is compared: what changed supersedes what was there. Each file is stored
    wholly or not at all. One that cannot be read does not stop the others; the end says which they are.
    """
    from omoide import blocking

    if name is not None and len(files) > 1:
        raise Invalid("--name", "is given for several files", "add them one by one")
    results: list[DocumentResult] = []
    failures: list[tuple[Path, OmoideError]] = []
    with ctx.open_store(create=True, load_embedder=True) as store, progress_bar() as report:
        for done, file in enumerate(files):
            if report is not None:
                report("adding", done, len(files))
            try:
                result = blocking.add_document(store, file, ctx.scope, name=name, tags=tags, **options)
            except (Invalid, NotFound, Conflict, MissingExtra) as error:
                failures.append((file, error))
                continue
            results.append(result)
            if not ctx.json:
                click.echo(f"{sanitize(str(file))}  {_describe_document(result)}  {result.id}")
    if ctx.json:
        failed = [{"file": str(file), "problem": format_error(failure)} for file, failure in failures]
        print_json({"documents": results, "failed": failed})
    for _, failure in failures:
        click.echo(f"not added: {sanitize(format_error(failure))}", err=True)
    return max((exit_code(failure) for _, failure in failures), default=OK)


def _describe_document(result: DocumentResult) -> str:
    """Return what became of a document and its passages."""
    counts = {
        "new": result.added,
        "changed": result.superseded,
        "moved": result.moved,
        "removed": result.removed,
    }
    parts = [f"{count:,} {what}" for what, count in counts.items() if count and result.outcome != "stored"]
    return ", ".join([result.outcome, format_count(result.passages, "passage", "passages"), *parts])


def graph_options(function: Any) -> Any:
    """Add the options that select the graph."""
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
    """Open the graph over a store; the options are removed from `options`."""
    from omoide import blocking

    if options is None:
        return blocking.open_graph(store)
    return blocking.open_graph(
        store,
        path=options.pop("folder"),
        endpoint=options.pop("endpoint"),
        update_endpoint=options.pop("update_endpoint"),
    )


RDF_FORMATS = {".ttl": "turtle", ".trig": "trig", ".jsonld": "jsonld", ".nq": "nquads"}
JSONL, CHAT = "jsonl", "chat"
EXPORT_FORMATS = {**RDF_FORMATS, ".jsonl": JSONL}
IMPORT_FORMATS = {**EXPORT_FORMATS, ".json": CHAT}
_format_option = partial(click.option, "--format", help="The format, if the file's name does not say.")


@command("export", "omoide export memories.jsonl", "omoide export all.nq --agent '' --project ''")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_format_option(type=click.Choice([*EXPORT_FORMATS.values()]))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def export_command(ctx: CommandContext, file: Path, format: str | None, force: bool) -> None:
    """Export the memories of the scope to FILE: .jsonl, or as RDF .ttl, .trig, .jsonld or .nq.

    All of them, also those that were forgotten or no longer hold. The file is there when it is complete.
    """
    refuse_store_file(ctx, file)
    if file.exists() and not force:
        raise Invalid("file", f"{str(file)!r} exists", "choose another, or replace it with --force")
    kind = _file_format(file, format, EXPORT_FORMATS)
    with ctx.open_store() as store, progress_bar() as report:
        count = _export(ctx, store, file, kind, report)
    ctx.print_result(
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
@_format_option(type=click.Choice([*IMPORT_FORMATS.values()]))
@click.option("--thread", metavar="NAME", help="What a chat is called; usually what the file says.")
def import_command(ctx: CommandContext, file: Path, format: str | None, thread: str | None) -> None:
    """Import the memories of FILE, or what was said in a chat, all of it or nothing.

    What the store has already is left as it is, so doing it twice does no harm. Memories that do not say
    whose they are become those of the user, agent, project and session of the scope; others have to be
    theirs.
    """
    if not file.exists():
        raise NotFound("file", str(file), "check the path")
    kind = _file_format(file, format, IMPORT_FORMATS)
    if kind == JSONL and format is None:
        from omoide.service.chats import is_chat

        kind = CHAT if is_chat(file) else JSONL
    if thread is not None and kind != CHAT:
        raise Invalid("--thread", "is given, and the file is no chat", "leave it out, or pass --format chat")
    with ctx.open_store(create=True, load_embedder=True) as store, progress_bar() as report:
        result, passed_over = _import(ctx, store, file, kind, thread, report)
    answer: dict[str, Any] = {"path": str(file), "memories": result.memories, "new": result.new}
    if kind == CHAT:
        answer["left_out"] = result.left_out
    if passed_over:
        answer["passed_over"] = passed_over
    ctx.print_result(answer, lambda: _print_import_report(file, result, passed_over))


def _file_format(file: Path, format: str | None, known: dict[str, str]) -> str:
    if format is not None:
        return format
    format_name = known.get(file.suffix.lower())
    if format_name is None:
        problem, endings = f"cannot be derived from {file.name!r}", ", ".join(known)
        raise Invalid("format", problem, f"end the name in one of {endings}, or pass --format")
    return format_name


def _export(
    ctx: CommandContext, store: AsyncStore, file: Path, kind: str, progress: ProgressCallback | None
) -> int:
    if kind != JSONL:
        report = None if progress is None else partial(progress, "writing")
        with open_graph(store) as graph:
            return graph.export(file, ctx.read_scope, format=kind, progress=report)
    from omoide.service import export_jsonl

    return run_async(export_jsonl, store, file, ctx.read_scope, progress=progress)


def _import(
    ctx: CommandContext,
    store: AsyncStore,
    file: Path,
    kind: str,
    thread: str | None,
    progress: ProgressCallback | None,
) -> tuple[ImportReport, tuple[str, ...]]:
    """Import a file; also return what of an RDF file could not be kept."""
    from omoide.service import ImportReport, import_chat, import_jsonl

    if kind == JSONL:
        agent = ctx.scope.agent_id
        return run_async(import_jsonl, store, file, ctx.read_scope, agent_id=agent, progress=progress), ()
    if kind == CHAT:
        return run_async(import_chat, store, file, ctx.scope, thread=thread, progress=progress), ()
    count = 0

    def report(done: int, total: int | None) -> None:
        nonlocal count
        count = total or 0
        if progress is not None:
            progress("reading", done, count)

    with open_graph(store) as graph:
        new = graph.load(file, ctx.read_scope, agent_id=ctx.scope.agent_id, format=kind, progress=report)
    return ImportReport(count, int(new)), new.passed_over


def _print_import_report(file: Path, report: ImportReport, passed_over: Sequence[str]) -> None:
    click.echo(
        f"{sanitize(str(file))}  {format_count(report.memories, 'memory', 'memories')}, {report.new:,} new"
    )
    if report.left_out:
        click.echo(f"{format_count(report.left_out, 'message', 'messages')} without text left out", err=True)
    for notice in passed_over:
        click.echo(f"passed over: {sanitize(notice)}", err=True)


_VARIABLE = re.compile(r"[?$]?([^\W\d]\w*)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,1000}")
_DECIMAL = re.compile(r"[+-]?[0-9]{0,1000}\.[0-9]{1,1000}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})[eE][+-]?[0-9]{1,3}")


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
    ctx: CommandContext,
    query: str | None,
    file: Path | None,
    bound: tuple[str, ...],
    limit: int,
    timeout: float,
    **options: Any,
) -> int:
    """Query the memories of the scope in SPARQL; - reads the query from standard input.

    SELECT prints a table, ASK yes or no, CONSTRUCT and DESCRIBE triples. A query cannot change anything, and
    runs in a process of its own that ends with the time.
    """
    query_text, bindings = _read_query(query, file), parse_bindings(bound)
    with ctx.open_store() as store, open_graph(store, options) as graph:
        answer = graph.sparql(
            query_text, ctx.read_scope, limit=limit, timeout=timeout, isolated=True, bindings=bindings
        )
        notices = () if answer else ctx.elsewhere(store)
    if ctx.json:
        print_json(msgspec.Raw(answer.to_json()))
    else:
        _print_answer(ctx, answer, notices)
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
    """Parse `NAME=VALUE` options into bindings of SPARQL variables."""
    bindings: dict[str, Any] = {}
    for option in options:
        variable, separator, value = option.partition("=")
        name = _VARIABLE.fullmatch(variable.strip())
        if not separator or name is None:
            raise Invalid("--bind", f"is {option!r}", "write NAME=VALUE, such as --bind type=fact")
        if name[1] in bindings:
            raise Invalid("--bind", f"gives ?{name[1]} two values", "give one")
        bindings[name[1]] = parse_value(value)
    return bindings


def parse_value(text: str) -> Any:
    """Parse a value: `<IRI>`, number, true, false, or text; text in double quotes is never converted."""
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


def _print_answer(ctx: CommandContext, answer: Answer, notices: Iterable[str]) -> None:
    if answer.kind == "truth":
        click.echo("yes" if answer.truth else "no")
    elif not len(answer):
        ctx.print_nothing_found(notices)
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
    """Return a triple as N-Triples, with characters that a terminal interprets as numeric escapes."""
    return "".join(_escape(char) if category(char) in UNSAFE_CATEGORIES else char for char in str(triple))


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


@command("validate", "omoide validate", "omoide validate --strict --json")
@click.option("--strict", is_flag=True, help="What is incomplete counts as wrong, too.")
def validate_command(ctx: CommandContext, strict: bool) -> int:
    """Validate the memories of the scope against the shapes of the ontology.

    Ends with code 1 if they do not conform.
    """
    with ctx.open_store() as store, open_graph(store) as graph:
        report = graph.validate(ctx.read_scope, strict=strict)
    ctx.print_result(report, lambda: _print_validation_report(report))
    return OK if report.conforms else NOT_FOUND


def _print_validation_report(report: ValidationReport) -> None:
    click.echo("conforms" if report.conforms else "does not conform")
    print_table(
        ("how bad", "id", "what", "shape"),
        [(problem.severity, problem.id, problem.message, problem.shape) for problem in report.problems],
    )
