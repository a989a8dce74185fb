"""Which memory does a command work on, and who said so?

An option wins over an environment variable, and that over what is usual. An empty value means none: it lifts
the limit to one agent, project or session.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from omoide.core.scope import DEFAULT_NAMESPACE, Scope

REPOSITORY = "repository"
"""The origin of a project that is the repository around the working folder."""
NAMES = ("store", "embedder", "namespace", "agent", "project", "session")


class Setting(NamedTuple):
    """A value, and where it comes from."""

    value: str | None
    origin: str


class Settings(NamedTuple):
    """Everything that says which memory is meant."""

    store: Setting
    embedder: Setting
    namespace: Setting
    agent: Setting
    project: Setting
    session: Setting

    @property
    def scope(self) -> Scope:
        """The scope that commands see."""
        return Scope(
            namespace=self.namespace.value or DEFAULT_NAMESPACE,
            agent_id=self.agent.value,
            project_id=self.project.value,
            session_id=self.session.value,
        )


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"OMOIDE_{name.upper()}"


def read(given: Mapping[str, str], environment: Mapping[str, str], folder: Path) -> Settings:
    """The settings, from options, the environment and the folder in which a command runs."""
    usual = {
        "store": Setting(store_url(str(_data_folder(environment) / "memory.db")), "default"),
        "embedder": Setting("auto", "default"),
        "namespace": Setting(DEFAULT_NAMESPACE, "default"),
        "agent": Setting("default", "default"),
        "project": _project(folder),
        "session": Setting(None, "default"),
    }
    found = {name: _said(name, given, environment) or usual[name] for name in NAMES}
    if found["store"].value:
        found["store"] = found["store"]._replace(value=store_url(found["store"].value))
    else:
        found["store"] = usual["store"]
    return Settings(**found)


def _said(name: str, given: Mapping[str, str], environment: Mapping[str, str]) -> Setting | None:
    if name in given:
        return Setting(given[name] or None, f"--{name}")
    if variable(name) in environment:
        return Setting(environment[variable(name)] or None, variable(name))
    return None


def _data_folder(environment: Mapping[str, str]) -> Path:
    user = environment.get("XDG_DATA_HOME") or environment.get("LOCALAPPDATA")
    return (Path(user) if user else Path.home() / ".local" / "share") / "omoide"


_SERVERS = ("postgresql", "postgres", "redis", "rediss")
"""What begins so names a server, and never a file, though a slash be missing."""


def store_url(given: str) -> str:
    """The URL of a store that may have been given as the path of its file."""
    if "://" in given or given.partition(":")[0] in _SERVERS:
        return given
    path = Path(given) if given.startswith("~") else Path(given).absolute()  # whose ~ it is, the opener knows
    return f"sqlite:///{quote(path.as_posix(), safe='/:', errors='surrogatepass')}"


def _project(folder: Path) -> Setting:
    for place in (folder, *folder.parents):
        if (place / ".git").exists():
            return Setting(str(place), REPOSITORY)
    return Setting(None, "default")
