"""Settings, common options, exit codes, output and times: what every command shares.

An option overrides its environment variable, which overrides the default. An empty value means none: it lifts
the restriction to one agent, project or session.

Times are ISO dates or times (`2026-05-08`, `2026-05-08T13:56`; UTC unless a zone is given), or durations from
now (`7d`, `12h`, `1w2d`).

Stored text is untrusted: everything printed goes through `sanitize`, so that no memory can move the cursor,
change colours or imitate the command's own output.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar
from unicodedata import category
from urllib.parse import quote

import click
import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.entry import DEFAULT_NAMESPACE, DELETED, Entry, Hit, Scope
from omoide.errors import Conflict, Invalid, MissingExtra, NotFound, OmoideError
from omoide.service.reasons import describe_part, describe_why

if TYPE_CHECKING:
    from rich.tree import Tree

    from omoide.stores.async_store import AsyncStore

P = ParamSpec("P")
T = TypeVar("T")

ProgressCallback = Callable[[str, int, int | None], None]

OK = 0
NOT_FOUND = 1
"""Exit code: the thing does not exist, nothing was found, or `doctor` or `validate` found a problem."""
INVALID_USAGE = 2
"""Exit code: the command line is invalid."""
CONFLICT = 3
"""Exit code: the entry has another revision, or an idempotency key was used before."""
FAILED = 4
"""Exit code: the store, a model or an embedder failed."""
INTERRUPTED = 130

DEFAULT_AGENT = "default"
"""Agent that writes if none is named."""
REPOSITORY = "repository"
"""Origin of a project that was found as the repository around the working directory."""
SETTING_NAMES = ("store", "embedder", "namespace", "user", "agent", "project", "session")

_SERVER_SCHEMES = ("postgresql", "postgres", "redis", "rediss")
"""A value that begins so is a server's URL even if its slashes are missing, and never a file name."""

_OPTIONS = {
    "store": ("URL", "The store: a URL or the path of its file."),
    "namespace": ("NAME", "The namespace."),
    "user": ("ID", "The user; default: any."),
    "agent": ("ID", "The agent; default: any to read, 'default' to write."),
    "project": ("ID", "The project; '' for any. Default: the current repository."),
    "session": ("ID", "The session; default: any."),
    "embedder": ("NAME", "auto, local, none or provider:model."),
}

COUNT = click.IntRange(max=2**31 - 1)
"""Type of numeric options; the lower limit depends on the option, the upper one catches typing errors."""

UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that a terminal interprets or does not show."""
ROW_WIDTH = 200
"""Number of characters of a memory in a table row."""
_MIN_COLUMN_WIDTH = 10
"""Narrowest readable column; a table may become wider than the terminal."""

_CODES: tuple[tuple[type[OmoideError], int], ...] = (
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Invalid, INVALID_USAGE),
    (MissingExtra, INVALID_USAGE),
    (OmoideError, FAILED),
)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d{1,9})([smhdw])")
_WORD = re.compile(r"[^\n\t ]+")
_DURATION = re.compile(r"(?:\d{1,9}[smhdw])+")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME_REMEDY = "write a date like 2026-05-08, a time like 2026-05-08T13:56, or a duration like 7d, 12h or 30m"


class CliSetting(NamedTuple):
    """Value and where it comes from."""

    value: str | None
    origin: str


class CliSettings(NamedTuple):
    """Settings that select a store and a scope."""

    store: CliSetting
    embedder: CliSetting
    namespace: CliSetting
    user: CliSetting
    agent: CliSetting
    project: CliSetting
    session: CliSetting

    @property
    def scope(self) -> Scope:
        """Scope that commands use."""
        return Scope(
            namespace=self.namespace.value or DEFAULT_NAMESPACE,
            user_id=self.user.value,
            agent_id=self.agent.value,
            project_id=self.project.value,
            session_id=self.session.value,
        )

    @property
    def read_scope(self) -> Scope:
        """Scope that commands read: all agents, unless one is named."""
        return self.scope.replace(agent_id=None) if self.agent.origin == "default" else self.scope


def environment_variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"OMOIDE_{name.upper()}"


def resolve_settings(options: Mapping[str, str], environment: Mapping[str, str], folder: Path) -> CliSettings:
    """Return the settings of a command.

    Args:
        options: options given on the command line, without dashes.
        environment: environment variables.
        folder: working directory; its repository is the default project.
    """
    defaults = {
        "store": CliSetting(store_url(str(_data_folder(environment) / "memory.db")), "default"),
        "embedder": CliSetting("auto", "default"),
        "namespace": CliSetting(DEFAULT_NAMESPACE, "default"),
        "user": CliSetting(None, "default"),
        "agent": CliSetting(DEFAULT_AGENT, "default"),
        "project": _project_setting(folder),
        "session": CliSetting(None, "default"),
    }
    settings = {
        name: _explicit_setting(name, options, environment) or defaults[name] for name in SETTING_NAMES
    }
    if settings["store"].value:
        settings["store"] = settings["store"]._replace(value=store_url(settings["store"].value))
    else:
        settings["store"] = defaults["store"]
    return CliSettings(**settings)


def _explicit_setting(
    name: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> CliSetting | None:
    if name in options:
        return CliSetting(options[name] or None, f"--{name}")
    if environment_variable(name) in environment:
        return CliSetting(environment[environment_variable(name)] or None, environment_variable(name))
    return None


def _data_folder(environment: Mapping[str, str]) -> Path:
    match str(sys.platform):
        case "darwin":
            usual = Path.home() / "Library" / "Application Support"
        case "win32":
            usual = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        case _:
            usual = Path.home() / ".local" / "share"
    return Path(environment.get("XDG_DATA_HOME") or usual) / "omoide"


def store_url(url_or_path: str) -> str:
    """Return the URL of a store; a path becomes a `sqlite:///` URL."""
    if "://" in url_or_path or url_or_path.partition(":")[0] in _SERVER_SCHEMES:
        return url_or_path
    path = Path(url_or_path)
    if not url_or_path.startswith("~"):  # open_store expands the user
        path = path.absolute()
    return f"sqlite:///{quote(path.as_posix(), safe='/:', errors='surrogatepass')}"


def _project_setting(folder: Path) -> CliSetting:
    for directory in (folder, *folder.parents):
        if (directory / ".git").exists():
            return CliSetting(str(directory), REPOSITORY)
    return CliSetting(None, "default")


class CommandContext(NamedTuple):
    """Settings and output format of a command."""

    settings: CliSettings
    json: bool

    @property
    def scope(self) -> Scope:
        """Scope of what is written, and of what changes many memories at once."""
        return self.settings.scope

    @property
    def read_scope(self) -> Scope:
        """Scope of what is read, or named by its id."""
        return self.settings.read_scope

    def scope_text(self, *, read: bool = False) -> str:
        """Return the scope as text, marking a project that was inferred from the repository."""
        parts = []
        for name in ("namespace", "user", "agent", "project", "session"):
            setting = getattr(self.settings, name)
            is_open = read and name == "agent" and self.read_scope.agent_id is None
            if setting.value is not None and not is_open:
                mark = f" [{REPOSITORY}]" if setting.origin == REPOSITORY else ""
                parts.append(f"{name} {sanitize(setting.value)}{mark}")
        return ", ".join(parts)

    @contextmanager
    def open_store(self, *, create: bool = False, load_embedder: bool = False) -> Iterator[AsyncStore]:
        """Open the store of the settings, for reading alone if this user may not write its file.

        Args:
            create: create the store if it does not exist; otherwise raise `NotFound`.
            load_embedder: load the embedder, for commands that embed text.
        """
        from omoide.embedders.registry import REMOVED_EMBEDDERS
        from omoide.stores.factory import open_store
        from omoide.stores.sqlite.connection import may_write

        url = self.settings.store.value or ""
        file = store_file(url)
        if file is not None and not file.exists():
            if not create:
                raise NotFound("store", url, "remember something first, or name another with --store")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        embedder = self.settings.embedder.value or "none"
        if not load_embedder and embedder not in REMOVED_EMBEDDERS:  # which are refused by every command
            embedder = "none"
        options = {"read_only": True} if file is not None and file.exists() and not may_write(file) else {}
        with open_store(url, embedder=embedder, **options) as store:
            yield store

    def with_store(self, store: str, option: str) -> CommandContext:
        """Return a context with another store, named by an option."""
        setting = CliSetting(store_url(store), option)
        return self._replace(settings=self.settings._replace(store=setting))

    def print_result(self, result: Any, show: Callable[[], None]) -> None:
        """Print a result: as JSON with `--json`, else by calling `show`."""
        if self.json:
            print_json(result)
        else:
            show()

    def elsewhere(self, store: AsyncStore) -> tuple[str, ...]:
        """Return what to tell about the memories outside the scope, in which nothing was found."""
        from omoide.service.auth import TOKEN_SCOPE
        from omoide.service.owners import describe_elsewhere

        scope = self.read_scope
        owners = store.sync.owners(Scope(namespace=scope.namespace))
        text = describe_elsewhere(owners, scope, "--{name} {value}")
        if text is None and not owners:
            hidden = (scope.namespace, TOKEN_SCOPE.namespace)
            others = [f"--namespace {name}" for name in store.sync.namespaces() if name not in hidden]
            text = f"nothing in namespace {scope.namespace}; others: {', '.join(others)}" if others else None
        return () if text is None else (text,)

    def print_nothing_found(self, notices: Iterable[str] = ()) -> None:
        """Print that nothing was found, and what lies elsewhere."""
        click.echo("Nothing found.", err=True)
        for notice in notices:
            click.echo(sanitize(notice), err=True)


def store_file(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for other stores."""
    from omoide.stores.sqlite.store import path_of

    return path_of(url) if url.partition(":")[0].lower() == "sqlite" else None


def common_options() -> list[click.Option]:
    """Return the options that all commands have."""
    flag = click.Option(
        ["--json"], is_flag=True, default=None, help="Print JSON.", expose_value=False, callback=_store_option
    )
    return [flag] + [
        click.Option([f"--{name}"], metavar=metavar, help=text, expose_value=False, callback=_store_option)
        for name, (metavar, text) in _OPTIONS.items()
    ]


def _store_option(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a common option; one after the command is parsed later, and overrides one before it."""
    options = ctx.ensure_object(dict)
    if value is not None and parameter.name is not None:
        options[parameter.name] = value


def command(name: str, *examples: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Return a decorator that makes a command of a function.

    The function gets a `CommandContext` first, and returns an exit code, or None for success.

    Args:
        name: name of the command.
        examples: command lines for the help.
    """

    def make(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def run(**parameters: Any) -> int | None:
            options = dict(click.get_current_context().ensure_object(dict))
            as_json = bool(options.pop("json", False))
            settings = resolve_settings(options, os.environ, Path.cwd())
            return function(CommandContext(settings, as_json), **parameters)

        click_command = click.command(name, epilog=format_examples(*examples))(run)
        own_options = {name for parameter in click_command.params for name in parameter.opts}
        click_command.params += [option for option in common_options() if own_options.isdisjoint(option.opts)]
        return click_command

    return make


def format_examples(*lines: str) -> str:
    """Return examples for the help: each on its own line, never wrapped."""
    return "\n".join(["\b", "Examples:", *(f"  $ {line}" for line in lines)])


def apply_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--apply` and `--dry-run` to a command, which gets `apply`."""

    @wraps(function)
    def run(*args: Any, apply: bool, dry_run: bool, **kwargs: Any) -> Any:
        if apply and dry_run:
            raise Invalid("--apply", "comes with --dry-run", "choose one of them")
        return function(*args, apply=apply, **kwargs)

    for option in (
        click.option("--dry-run", is_flag=True, help="Only show it, as without --apply."),
        click.option("--apply", is_flag=True, help="Do it; without this, only show what would happen."),
    ):
        run = option(run)
    return run


def exit_code(error: OmoideError) -> int:
    """Return the exit code of an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def format_error(error: object) -> str:
    """Return an error's message on one line, without the passwords of URLs."""
    from omoide.service.problems import error_line

    return error_line(error)


def read_stdin() -> str:
    """Read standard input, without the last line break."""
    try:
        return sys.stdin.buffer.read().decode().rstrip("\n")
    except UnicodeDecodeError as error:
        raise Invalid("standard input", "is not UTF-8", "convert it first") from error


def report_error(line: str, code: int) -> int:
    """Print a line on standard error; return the exit code."""
    click.echo(f"omoide: {sanitize(line)}", err=True)
    return code


def run_async(function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function in an event loop of its own, and return its result."""
    import anyio  # commands that do not need a loop start faster without it

    return anyio.run(partial(function, *args, **kwargs))


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
    """Return id, type, date, confidence and relevance of a hit, and what updates it."""
    entry = hit.entry
    when = format_time(entry.created_at if entry.occurred_at is None else entry.occurred_at)
    parts = [
        entry.id,
        entry.type or "",
        when[:10],
        "" if entry.agent_id == DEFAULT_AGENT else f"agent {sanitize(entry.agent_id)}",
        f"confidence {entry.confidence:g}" if entry.confidence < 1 else "",
        "" if hit.relevance is None else f"relevance {hit.relevance:.2f}",
        "" if hit.newer is None else f"newer: {sanitize(hit.newer)}",
    ]
    return ", ".join(part for part in parts if part)


def explanation_tree(hit: Hit, width: int, *, numbers: bool = False) -> Tree:
    """Return a hit with the reasons for it as a tree: in words, or with the parts of its score."""
    from rich.text import Text
    from rich.tree import Tree

    content = truncate(hit.entry.content, width)
    score = f"  {hit.score:+.2f}" if numbers else ""
    tree = Tree(Text.assemble((f"{hit.rank}. ", "dim"), (content, "bold"), score))
    tree.add(Text(describe_hit(hit), style="dim"))
    for line in _score_lines(hit) if numbers and hit.why.reasons else describe_why(hit.why):
        tree.add(Text(sanitize(line)))
    if hit.why.evidence:
        tree.add(Text(f"from {', '.join(map(sanitize, hit.why.evidence))}"))
    return tree


def _score_lines(hit: Hit) -> Iterator[str]:
    """Yield what each part adds to the score of a hit."""
    for reason in hit.why.reasons:
        rank = "" if reason.rank is None else f", #{reason.rank}"
        note = "" if reason.note is None else f": {reason.note}"
        yield (f"{reason.value:+.2f} {describe_part(reason.part, reason.value)} ({reason.part}{rank}){note}")


def print_tree(tree: Tree) -> None:
    """Print a tree, as wide as the terminal."""
    from rich.console import Console

    terminal = sys.stdout
    Console(file=terminal, highlight=False, width=None if terminal.isatty() else 200).print(tree)


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
            time = clock.parse(stripped, field)
        except Invalid as error:
            remedy = error.remedy if stripped.isdecimal() else _TIME_REMEDY
            raise Invalid(field, error.problem, remedy) from None
    if time < 0:
        raise Invalid(field, f"is {text!r}, before 1970", _TIME_REMEDY)
    if time > clock.MAX_TIMESTAMP:
        raise Invalid(field, f"is {text!r}, after the year 9999", _TIME_REMEDY)
    return time


def format_time(at: int | None) -> str:
    """Return a time in milliseconds as text."""
    if at is None:
        return ""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).strftime("%Y-%m-%d %H:%M:%SZ")
    except OverflowError:
        return str(at)
