"""Print results, and parse and format times.

Times are ISO dates or times (`2026-05-08`, `2026-05-08T13:56`; UTC unless a zone is given), or durations from
now (`7d`, `12h`, `1w2d`).

Stored text is untrusted: everything printed goes through `sanitize`, so that no memory can move the cursor,
change colours or imitate the command's own output.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unicodedata import category

import click
import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.entry import DELETED, Entry, Hit
from omoide.errors import Invalid
from omoide.service.reasons import describe_part

if TYPE_CHECKING:
    from rich.tree import Tree


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d{1,9})([smhdw])")
_WORD = re.compile(r"[^\n\t ]+")
_DURATION = re.compile(r"(?:\d{1,9}[smhdw])+")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_REMEDY = "write a date like 2026-05-08, a time like 2026-05-08T13:56, or a duration like 7d, 12h or 30m"


def parse_future_time(text: str, now: int, field: str) -> int:
    """Parse a time into milliseconds; a duration counts forward from now."""
    return _parse_time(text, now, 1, field)


def parse_past_time(text: str, now: int, field: str) -> int:
    """Parse a time into milliseconds; a duration counts back from now."""
    return _parse_time(text, now, -1, field)


def parse_end_time(text: str, now: int, field: str) -> int:
    """Parse a time like `parse_past_time`; a date means the end of that day."""
    start = _parse_time(text, now, -1, field)
    return start + 86_400_000 - 1 if _DAY.fullmatch(text.strip()) else start


def _parse_time(text: str, now: int, sign: int, field: str) -> int:
    stripped = text.strip()
    if _DURATION.fullmatch(stripped):
        seconds = sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(stripped))
        time = now + sign * seconds * 1000
    else:
        try:
            parsed = datetime.fromisoformat(stripped)
        except ValueError:
            raise Invalid(field, f"is {text!r}", _REMEDY) from None
        time = int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
    if time < 0:
        raise Invalid(field, f"is {text!r}, before 1970", _REMEDY)
    if time > clock.MAX_TIMESTAMP:
        raise Invalid(field, f"is {text!r}, after the year 9999", _REMEDY)
    return time


def format_time(at: int | None) -> str:
    """Return a time in milliseconds as text."""
    if at is None:
        return ""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).strftime("%Y-%m-%d %H:%M:%SZ")
    except OverflowError:
        return str(at)


ProgressCallback = Callable[[str, int, int | None], None]

UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that a terminal interprets or does not show."""
ROW_WIDTH = 200
"""Number of characters of a memory in a table row."""
_MIN_COLUMN_WIDTH = 10
"""Narrowest readable column; a table may become wider than the terminal."""


def sanitize(text: str) -> str:
    """Return text on one line, with characters that a terminal interprets escaped."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(
        char if category(char) not in UNSAFE_CATEGORIES else char.encode("unicode_escape").decode()
        for char in line
    )


def sanitize_text(text: str) -> str:
    """Return text with its line breaks and indentation, and everything else sanitized."""
    return _WORD.sub(lambda word: sanitize(word[0]), text)


def truncate(text: str, width: int) -> str:
    """Return sanitized text of at most `width` characters."""
    line = sanitize(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def format_count(count: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else many}"


def print_json(answer: Any) -> None:
    """Print a JSON value."""
    click.echo(msgspec.json.format(msgspec.json.encode(to_raw_json(answer)), indent=2).decode())


def to_raw_json(answer: Any) -> Any:
    """Return JSON-ready data in which values of the library are encoded by its codec."""
    if isinstance(answer, msgspec.Struct):
        return msgspec.Raw(codec.encode(answer))
    if isinstance(answer, Mapping):
        return {name: to_raw_json(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [to_raw_json(value) for value in answer]
    return answer


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: aligned on a terminal, elsewhere with tabs.

    A column titled "id" is never shortened or wrapped, because ids are copied; the other columns give way.
    """
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(map(sanitize, row)))
        return
    cells = [[sanitize(cell) for cell in row] for row in rows]
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
        minimum = widest if title == "id" else min(widest, _MIN_COLUMN_WIDTH)
        table.add_column(title, no_wrap=title == "id", min_width=minimum, overflow="fold")
        needed += minimum + 2
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    console.width = max(console.width, needed)
    console.print(table)


def print_fields(fields: Mapping[str, str]) -> None:
    """Print names and values, one per line; empty values are left out."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        if value:
            click.echo(f"{name:<{width}}  {sanitize(value)}")


@contextmanager
def progress_bar() -> Iterator[ProgressCallback | None]:
    """Show a progress bar on standard error while the block runs; yield None if that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(sanitize(name), total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield report


def content_with_status(entry: Entry) -> str:
    """Return the content of a memory, prefixed with its status if it is superseded or stale."""
    marks = [] if entry.superseded_by is None else [supersession_text(entry)]
    if entry.stale:
        marks.append("stale")
    return f"({', '.join(marks)}) {entry.content}" if marks else entry.content


def supersession_text(entry: Entry) -> str:
    """Return how a memory was superseded, and why."""
    text = "forgotten" if entry.superseded_by == DELETED else f"replaced by {entry.superseded_by}"
    return text if entry.superseded_reason is None else f"{text}: {entry.superseded_reason}"


def describe_hit(hit: Hit) -> str:
    """Return id, type, date and confidence of a hit."""
    entry = hit.entry
    when = format_time(entry.created_at if entry.occurred_at is None else entry.occurred_at)
    parts = [
        entry.id,
        entry.type or "",
        when[:10],
        f"confidence {entry.confidence:g}" if entry.confidence < 1 else "",
    ]
    return ", ".join(part for part in parts if part)


def explanation_tree(hit: Hit, width: int) -> Tree:
    """Return a hit with the parts of its score as a tree."""
    from rich.text import Text
    from rich.tree import Tree

    content = truncate(hit.entry.content, width)
    tree = Tree(Text.assemble((f"{hit.rank}. ", "dim"), (content, "bold"), f"  {hit.score:+.2f}"))
    tree.add(Text(describe_hit(hit), style="dim"))
    for reason in hit.why.reasons:
        rank = "" if reason.rank is None else f", #{reason.rank}"
        note = "" if reason.note is None else f": {sanitize(reason.note)}"
        description = describe_part(reason.part, reason.value)
        tree.add(Text(f"{reason.value:+.2f}  {description} ({reason.part}{rank}){note}"))
    if not hit.why.reasons:
        tree.add(Text("nothing matched: among the newest"))
    if hit.why.evidence:
        tree.add(Text(f"from {', '.join(map(sanitize, hit.why.evidence))}"))
    return tree


def print_tree(tree: Tree) -> None:
    """Print a tree, as wide as the terminal."""
    from rich.console import Console

    terminal = sys.stdout
    Console(file=terminal, highlight=False, width=None if terminal.isatty() else 200).print(tree)
