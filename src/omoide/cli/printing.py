"""How is an answer shown?

To people in words, to programs as JSON. What was remembered is data: nothing in it can move the cursor,
change colours or pass for our own words.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unicodedata import category

import click
import msgspec

from omoide.core import codec

Progress = Callable[[str, int, int | None], None]

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""The kinds of characters that a terminal acts on, or that nobody sees."""
ROW = 200
"""How many characters of a memory a row of a table shows."""
_NARROWEST = 10
"""Below this a column is not worth reading; the table is then wider than the terminal."""


def safe(text: str) -> str:
    """A text on one line, with everything that a terminal would act on written out."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(
        char if category(char) not in HIDDEN else char.encode("unicode_escape").decode() for char in line
    )


def clipped(text: str, width: int) -> str:
    """A safe text, no longer than this."""
    line = safe(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def counted(count: int, one: str, many: str) -> str:
    """A number of things."""
    return f"{count:,} {one if count == 1 else many}"


def put_json(answer: Any) -> None:
    """Print one JSON value."""
    click.echo(msgspec.json.format(msgspec.json.encode(raw(answer)), indent=2).decode())


def raw(answer: Any) -> Any:
    """The answer with our own values written the way they always are."""
    if isinstance(answer, msgspec.Struct):
        return msgspec.Raw(codec.encode(answer))
    if isinstance(answer, Mapping):
        return {name: raw(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [raw(value) for value in answer]
    return answer


def put_rows(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: on a terminal laid out, elsewhere one line a row with tabs between.

    What stands under "id" is never shortened or broken, for it will be copied; the other columns give way.
    """
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(map(safe, row)))
        return
    cells = [[safe(cell) for cell in row] for row in rows]
    if not cells:
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    needed = 0
    for title, *column in zip(titles, *cells, strict=True):
        widest = max(map(cell_len, (title, *column)))
        least = widest if title == "id" else min(widest, _NARROWEST)
        table.add_column(title, no_wrap=title == "id", min_width=least, overflow="fold")
        needed += least + 2
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    console.width = max(console.width, needed)
    console.print(table)


def put_fields(fields: Mapping[str, str]) -> None:
    """Print names and values, one a line; what is empty is left out."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        if value:
            click.echo(f"{name:<{width}}  {safe(value)}")


@contextmanager
def progress() -> Iterator[Progress | None]:
    """A bar on standard error while the block runs, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(safe(name), total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield tell
