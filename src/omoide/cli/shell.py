"""What does every command know?

Which memory it works on, how the answer is wanted, and how to open the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from omoide.cli import printing, settings
from omoide.cli.settings import Settings
from omoide.core.scope import Scope
from omoide.errors import NotFound

if TYPE_CHECKING:
    from omoide.stores.local import LocalStore

_OPTIONS = {
    "store": ("URL", "The store: a URL or the path of its file."),
    "namespace": ("NAME", "The namespace."),
    "agent": ("ID", "The agent whose memory it is; '' for any."),
    "project": ("ID", "The project; '' for any. Usually the repository you are in."),
    "session": ("ID", "The session; usually any."),
    "embedder": ("NAME", "auto, minilm, static, none or provider:model."),
}


NUMBER = click.IntRange(max=2**31 - 1)
"""A number of things: how small it may be depends, but more than this is a slip."""


class Shell(NamedTuple):
    """The surroundings of a command."""

    settings: Settings
    json: bool

    @property
    def scope(self) -> Scope:
        """The part of the store that is meant."""
        return self.settings.scope

    @contextmanager
    def store(self, *, create: bool = False, embeds: bool = False) -> Iterator[LocalStore]:
        """The store: with `create`, one is made if there is none; with `embeds`, an encoder is loaded."""
        from omoide.stores.opening import open_store

        url = self.settings.store.value or ""
        file = file_of(url)
        if file is not None and not file.exists():
            if not create:
                raise NotFound("store", url, "remember something first, or name another with --store")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        embedder = self.settings.embedder.value if embeds else None
        with open_store(url, embedder=embedder or "none") as store:
            yield store

    def at(self, store: str, option: str) -> Shell:
        """The same surroundings with another store, which an option names."""
        chosen = settings.Setting(settings.store_url(store), option)
        return self._replace(settings=self.settings._replace(store=chosen))

    def put(self, answer: Any, show: Callable[[], None]) -> None:
        """Print an answer: as JSON if that is wanted, else the way `show` does."""
        if self.json:
            printing.put_json(answer)
        else:
            show()

    def put_nothing(self) -> None:
        """Tell a person that nothing was found, and where nobody looked."""
        click.echo("Nothing found.", err=True)
        project = self.settings.project
        if project.origin == settings.REPOSITORY:
            place = printing.safe(project.value or "")
            click.echo(f"Looked in project {place} only; --project '' looks everywhere.", err=True)


def file_of(url: str) -> Path | None:
    """The file of a store, if it has one."""
    from omoide.stores.sqlite.opening import path_of

    return path_of(url) if url.partition(":")[0].lower() == "sqlite" else None


def common_options() -> list[click.Option]:
    """The options that all commands have."""
    flag = click.Option(
        ["--json"], is_flag=True, default=None, help="Print JSON.", expose_value=False, callback=_note
    )
    return [flag] + [
        click.Option([f"--{name}"], metavar=metavar, help=text, expose_value=False, callback=_note)
        for name, (metavar, text) in _OPTIONS.items()
    ]


def _note(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
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
            return function(Shell(settings.read(given, os.environ, Path.cwd()), as_json), **parameters)

        made = click.command(name, epilog=shown_examples(*examples))(run)
        own = {name for parameter in made.params for name in parameter.opts}
        made.params += [option for option in common_options() if own.isdisjoint(option.opts)]
        return made

    return make


def shown_examples(*lines: str) -> str:
    """Examples as the help shows them: each on its own line, never wrapped."""
    return "\n".join(["\b", "Examples:", *(f"  $ {line}" for line in lines)])
