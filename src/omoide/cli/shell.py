"""Context, options, settings, exit codes.

With one line that says what happened and what to do, and a code that a script can go by.

An option wins over an environment variable, and that over what is usual. An empty value means none: it lifts
the limit to one agent, project or session.

Which memory it works on, how the answer is wanted, and how to open the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from omoide.cli import output
from omoide.core.entry import DEFAULT_NAMESPACE, Scope
from omoide.errors import Conflict, Invalid, MissingExtra, NotFound, OmoideError

if TYPE_CHECKING:
    from omoide.stores.async_store import AsyncStore


# applying: Is it done, or only shown?


def apply_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--apply`, and `--dry-run` for who wants to be sure; it gets `apply`."""

    @wraps(function)
    def run(*args: Any, apply: bool, dry_run: bool, **given: Any) -> Any:
        if apply and dry_run:
            raise Invalid("--apply", "comes with --dry-run", "choose one of them")
        return function(*args, apply=apply, **given)

    for option in (
        click.option("--dry-run", is_flag=True, help="Only show it, as without --apply."),
        click.option("--apply", is_flag=True, help="Do it; without this, only show what would happen."),
    ):
        run = option(run)
    return run


# failing: How does a command fail?


OK = 0
NOT_FOUND = 1
"""What was asked for is not there, nothing was found, or `doctor` or `validate` found a problem."""
INVALID_USAGE = 2
"""The command was given wrongly."""
CONFLICT = 3
"""Someone else changed the entry meanwhile, or an idempotency key was used before."""
FAILED = 4
"""The store, a model or an embedder could not do what was asked."""
INTERRUPTED = 130

_CODES: tuple[tuple[type[OmoideError], int], ...] = (
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Invalid, INVALID_USAGE),
    (MissingExtra, INVALID_USAGE),
    (OmoideError, FAILED),
)


def exit_code(error: OmoideError) -> int:
    """The exit code that tells of an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def format_error(error: object) -> str:
    """An error as one line, whatever it quotes, without the passwords of URLs."""
    from omoide.service.problems import error_line

    return error_line(error)


# settings: Which memory does a command work on, and who said so?


REPOSITORY = "repository"
"""The origin of a project that is the repository around the working folder."""
SETTING_NAMES = ("store", "embedder", "namespace", "agent", "project", "session")


class CliSetting(NamedTuple):
    """A value, and where it comes from."""

    value: str | None
    origin: str


class CliSettings(NamedTuple):
    """Everything that says which memory is meant."""

    store: CliSetting
    embedder: CliSetting
    namespace: CliSetting
    agent: CliSetting
    project: CliSetting
    session: CliSetting

    @property
    def scope(self) -> Scope:
        """The scope that commands see."""
        return Scope(
            namespace=self.namespace.value or DEFAULT_NAMESPACE,
            agent_id=self.agent.value,
            project_id=self.project.value,
            session_id=self.session.value,
        )


def environment_variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"OMOIDE_{name.upper()}"


def resolve_settings(options: Mapping[str, str], environment: Mapping[str, str], folder: Path) -> CliSettings:
    """The settings, from options, the environment and the folder in which a command runs."""
    usual = {
        "store": CliSetting(store_url(str(_data_folder(environment) / "memory.db")), "default"),
        "embedder": CliSetting("auto", "default"),
        "namespace": CliSetting(DEFAULT_NAMESPACE, "default"),
        "agent": CliSetting("default", "default"),
        "project": _project_setting(folder),
        "session": CliSetting(None, "default"),
    }
    found = {name: _explicit_setting(name, options, environment) or usual[name] for name in SETTING_NAMES}
    if found["store"].value:
        found["store"] = found["store"]._replace(value=store_url(found["store"].value))
    else:
        found["store"] = usual["store"]
    return CliSettings(**found)


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
"""What begins so names a server, and never a file, though a slash be missing."""


def store_url(url_or_path: str) -> str:
    """The URL of a store that may have been given as the path of its file."""
    if "://" in url_or_path or url_or_path.partition(":")[0] in _SERVER_SCHEMES:
        return url_or_path
    path = (
        Path(url_or_path) if url_or_path.startswith("~") else Path(url_or_path).absolute()
    )  # whose ~ it is, the opener knows
    return f"sqlite:///{quote(path.as_posix(), safe='/:', errors='surrogatepass')}"


def _project_setting(folder: Path) -> CliSetting:
    for place in (folder, *folder.parents):
        if (place / ".git").exists():
            return CliSetting(str(place), REPOSITORY)
    return CliSetting(None, "default")


# shell: What does every command know?


_OPTIONS = {
    "store": ("URL", "The store: a URL or the path of its file."),
    "namespace": ("NAME", "The namespace."),
    "agent": ("ID", "The agent whose memory it is; '' for any."),
    "project": ("ID", "The project; '' for any. Usually the repository you are in."),
    "session": ("ID", "The session; usually any."),
    "embedder": ("NAME", "auto, minilm, static, none or provider:model."),
}


COUNT = click.IntRange(max=2**31 - 1)
"""A number of things: how small it may be depends, but more than this is a slip."""


class CommandContext(NamedTuple):
    """The surroundings of a command."""

    settings: CliSettings
    json: bool

    @property
    def scope(self) -> Scope:
        """The part of the store that is meant."""
        return self.settings.scope

    @contextmanager
    def open_store(self, *, create: bool = False, load_embedder: bool = False) -> Iterator[AsyncStore]:
        """The store: with `create`, one is made if there is none; with `embeds`, an encoder is loaded."""
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
        """The same surroundings with another store, which an option names."""
        chosen = CliSetting(store_url(store), option)
        return self._replace(settings=self.settings._replace(store=chosen))

    def print_result(self, answer: Any, show: Callable[[], None]) -> None:
        """Print an answer: as JSON if that is wanted, else the way `show` does."""
        if self.json:
            output.print_json(answer)
        else:
            show()

    def print_nothing_found(self) -> None:
        """Tell a person that nothing was found, and where nobody looked."""
        click.echo("Nothing found.", err=True)
        project = self.settings.project
        if project.origin == REPOSITORY:
            place = output.sanitize(project.value or "")
            click.echo(f"Looked in project {place} only; --project '' looks everywhere.", err=True)


def store_file(url: str) -> Path | None:
    """The file of a store, if it has one."""
    from omoide.stores.sqlite.store import path_of

    return path_of(url) if url.partition(":")[0].lower() == "sqlite" else None


def common_options() -> list[click.Option]:
    """The options that all commands have."""
    flag = click.Option(
        ["--json"], is_flag=True, default=None, help="Print JSON.", expose_value=False, callback=_store_option
    )
    return [flag] + [
        click.Option([f"--{name}"], metavar=metavar, help=text, expose_value=False, callback=_store_option)
        for name, (metavar, text) in _OPTIONS.items()
    ]


def _store_option(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep what was given; what stands after the command wins, for it is read later."""
    given = ctx.ensure_object(dict)
    if value is not None and parameter.name is not None:
        given[parameter.name] = value


def command(name: str, *examples: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a function that takes the shell first and gives an exit code, or None for success."""

    def make(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def run(**parameters: Any) -> int | None:
            given = dict(click.get_current_context().ensure_object(dict))
            as_json = bool(given.pop("json", False))
            return function(
                CommandContext(resolve_settings(given, os.environ, Path.cwd()), as_json), **parameters
            )

        made = click.command(name, epilog=format_examples(*examples))(run)
        own = {name for parameter in made.params for name in parameter.opts}
        made.params += [option for option in common_options() if own.isdisjoint(option.opts)]
        return made

    return make


def format_examples(*lines: str) -> str:
    """Examples as the help shows them: each on its own line, never wrapped."""
    return "\n".join(["\b", "Examples:", *(f"  $ {line}" for line in lines)])
