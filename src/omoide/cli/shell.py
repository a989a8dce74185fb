"""Settings, common options, exit codes, and the context that every command gets.

An option overrides its environment variable, which overrides the default. An empty value means none: it lifts
the restriction to one agent, project or session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar
from urllib.parse import quote

import click

from omoide.cli import output
from omoide.core.entry import DEFAULT_NAMESPACE, Scope
from omoide.errors import Conflict, Invalid, MissingExtra, NotFound, OmoideError

if TYPE_CHECKING:
    from omoide.stores.async_store import AsyncStore

P = ParamSpec("P")
T = TypeVar("T")


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

_CODES: tuple[tuple[type[OmoideError], int], ...] = (
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Invalid, INVALID_USAGE),
    (MissingExtra, INVALID_USAGE),
    (OmoideError, FAILED),
)


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
    click.echo(f"omoide: {output.sanitize(line)}", err=True)
    return code


def run_async(function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function in an event loop of its own, and return its result."""
    import anyio  # commands that do not need a loop start faster without it

    return anyio.run(partial(function, *args, **kwargs))


REPOSITORY = "repository"
"""Origin of a project that was found as the repository around the working directory."""
SETTING_NAMES = ("store", "embedder", "namespace", "agent", "project", "session")


class CliSetting(NamedTuple):
    """Value and where it comes from."""

    value: str | None
    origin: str


class CliSettings(NamedTuple):
    """Settings that select a store and a scope."""

    store: CliSetting
    embedder: CliSetting
    namespace: CliSetting
    agent: CliSetting
    project: CliSetting
    session: CliSetting

    @property
    def scope(self) -> Scope:
        """Scope that commands use."""
        return Scope(
            namespace=self.namespace.value or DEFAULT_NAMESPACE,
            agent_id=self.agent.value,
            project_id=self.project.value,
            session_id=self.session.value,
        )


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
        "agent": CliSetting("default", "default"),
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
    user = environment.get("XDG_DATA_HOME") or environment.get("LOCALAPPDATA")
    return (Path(user) if user else Path.home() / ".local" / "share") / "omoide"


_SERVER_SCHEMES = ("postgresql", "postgres", "redis", "rediss")
"""A value that begins so is a server's URL even if its slashes are missing, and never a file name."""


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


_OPTIONS = {
    "store": ("URL", "The store: a URL or the path of its file."),
    "namespace": ("NAME", "The namespace."),
    "agent": ("ID", "The agent whose memory it is; '' for any."),
    "project": ("ID", "The project; '' for any. Usually the repository you are in."),
    "session": ("ID", "The session; usually any."),
    "embedder": ("NAME", "auto, minilm, static, none or provider:model."),
}


COUNT = click.IntRange(max=2**31 - 1)
"""Type of numeric options; the lower limit depends on the option, the upper one catches typing errors."""


class CommandContext(NamedTuple):
    """Settings and output format of a command."""

    settings: CliSettings
    json: bool

    @property
    def scope(self) -> Scope:
        """Scope of the settings."""
        return self.settings.scope

    @contextmanager
    def open_store(self, *, create: bool = False, load_embedder: bool = False) -> Iterator[AsyncStore]:
        """Open the store of the settings.

        Args:
            create: create the store if it does not exist; otherwise raise `NotFound`.
            load_embedder: load the embedder, for commands that embed text.
        """
        from omoide.stores.factory import open_store

        url = self.settings.store.value or ""
        file = store_file(url)
        if file is not None and not file.exists():
            if not create:
                raise NotFound("store", url, "remember something first, or name another with --store")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        embedder = self.settings.embedder.value if load_embedder else None
        with open_store(url, embedder=embedder or "none") as store:
            yield store

    def with_store(self, store: str, option: str) -> CommandContext:
        """Return a context with another store, named by an option."""
        setting = CliSetting(store_url(store), option)
        return self._replace(settings=self.settings._replace(store=setting))

    def print_result(self, result: Any, show: Callable[[], None]) -> None:
        """Print a result: as JSON with `--json`, else by calling `show`."""
        if self.json:
            output.print_json(result)
        else:
            show()

    def print_nothing_found(self) -> None:
        """Print that nothing was found, and which project was searched."""
        click.echo("Nothing found.", err=True)
        project = self.settings.project
        if project.origin == REPOSITORY:
            path = output.sanitize(project.value or "")
            click.echo(f"Looked in project {path} only; --project '' looks everywhere.", err=True)


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
