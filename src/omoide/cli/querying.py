"""How is memory asked in SPARQL from a shell?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

import click
import msgspec

from omoide.cli.failing import NOTHING, OK
from omoide.cli.graphs import graph_of, graph_options
from omoide.cli.printing import HIDDEN, put_json, put_rows
from omoide.cli.shell import NUMBER, Shell, command
from omoide.cli.writing import from_stdin
from omoide.errors import Invalid, NotFound

if TYPE_CHECKING:
    from omoide.graph.answers import Answer, Triple
    from omoide.graph.terms import Term


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
        _show(shell, answer)
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


def _show(shell: Shell, answer: Answer) -> None:
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
