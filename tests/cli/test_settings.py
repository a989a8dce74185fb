"""Settings of commands, and parsing of times."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omoide import Scope, clock
from omoide.cli import shell
from omoide.cli.maintenance import free_bytes
from omoide.cli.shell import store_file
from omoide.errors import Invalid

HOUR = 3_600_000
NOW = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC


def test_options_win_over_variables_and_those_over_what_is_usual(tmp_path: Path) -> None:
    """Each setting tells its value and who said so."""
    environment = {"OMOIDE_AGENT": "from-env", "OMOIDE_SESSION": "s1", "XDG_DATA_HOME": str(tmp_path)}
    found = shell.resolve_settings({"agent": "given"}, environment, tmp_path)
    assert found.agent == ("given", "--agent")
    assert found.session == ("s1", "OMOIDE_SESSION")
    assert found.namespace == ("default", "default")
    assert found.store == (f"sqlite:///{tmp_path}/omoide/memory.db", "default")
    assert found.scope == Scope(agent_id="given", session_id="s1")


@pytest.mark.parametrize(
    ("platform", "environment", "folder"),
    [
        ("linux", {}, "{home}/.local/share"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data"),
        ("linux", {"LOCALAPPDATA": "/windows"}, "{home}/.local/share"),
        ("darwin", {}, "{home}/Library/Application Support"),
        ("darwin", {"XDG_DATA_HOME": "/data"}, "/data"),
        ("win32", {"LOCALAPPDATA": "/windows"}, "/windows"),
        ("win32", {}, "{home}/AppData/Local"),
    ],
)
def test_the_usual_store_lies_where_the_platform_keeps_data(
    platform: str, environment: dict[str, str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each platform has its own folder for data of programs; XDG_DATA_HOME says otherwise."""
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    found = shell.resolve_settings({}, environment, tmp_path).store.value
    expected = f"{folder.format(home=tmp_path)}/omoide/memory.db"
    assert found == f"sqlite:///{expected.replace(' ', '%20')}"


def test_the_project_is_the_repository_around(tmp_path: Path) -> None:
    """The nearest folder with a .git above the working folder is the project; without one there is none."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "src" / "deep").mkdir(parents=True)
    found = shell.resolve_settings({}, {}, tmp_path / "repo" / "src" / "deep")
    assert found.project == (str(tmp_path / "repo"), "repository")
    assert shell.resolve_settings({}, {}, tmp_path).project == (None, "default")


def test_an_empty_value_lifts_a_limit(tmp_path: Path) -> None:
    """An empty agent or project means any, and an empty store the usual one."""
    (tmp_path / ".git").mkdir()
    found = shell.resolve_settings({"project": "", "store": ""}, {"OMOIDE_AGENT": ""}, tmp_path)
    assert found.scope == Scope()
    assert found.store.origin == "default"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("memory://", "memory://"),
        ("/data/a.db", "sqlite:////data/a.db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("/data/a#b?c%41 d.db", "sqlite:////data/a%23b%3Fc%2541%20d.db"),
        ("~/a.db", "sqlite:///~/a.db"),
        ("/data/~/a.db", "sqlite:////data/~/a.db"),
    ],
)
def test_a_store_is_named_by_url_or_path(given: str, url: str) -> None:
    """A path is the SQLite file at that path, and a URL is itself."""
    assert shell.resolve_settings({"store": given}, {}, Path("/")).store.value == url


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///x.db", "/here/x.db"),
        ("sqlite:////data/a%20b.db?mode=ro", "/data/a b.db"),
        ("SQLite:////data/x.db", "/data/x.db"),
        ("sqlite:///~/x.db", "/alex/x.db"),
        ("memory://", None),
        ("postgresql://host/db", None),
    ],
)
def test_the_file_of_a_store_is_known(url: str, file: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only SQLite stores have a file, and it is the one that opens."""
    monkeypatch.setenv("HOME", "/alex")
    monkeypatch.setattr(Path, "absolute", lambda self: Path("/here") / self)
    assert store_file(url) == (None if file is None else Path(file))


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite://host/x.db", "sqlite:///a#b.db", "sqlite:///~no-such-user/x"]
)
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    """What would open nothing, or something else, has no file either."""
    with pytest.raises(Invalid, match="url"):
        store_file(url)


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/"), min_size=1, max_size=40)
)
def test_a_path_of_any_name_leads_to_the_file_of_that_name(name: str) -> None:
    """Whatever letters a file's name has, the URL that is made of its path leads back to it."""
    assume(name not in (".", "..") and "://" not in name)
    url = shell.resolve_settings({"store": f"/data/{name}"}, {}, Path("/")).store.value
    assert url is not None
    assert store_file(url) == Path("/data") / name


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-02", 24 * HOUR),
        ("1970-01-01T01:00", HOUR),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T01:00:00Z", HOUR),
        ("90m", NOW - 90 * 60_000),
        ("1w2d", NOW - 9 * 24 * HOUR),
        (" 5s ", NOW - 5000),
    ],
)
def test_moments_are_dates_or_durations(text: str, at: int) -> None:
    """Dates are UTC unless they say otherwise; durations count back from now, or forward for `after`."""
    assert shell.parse_past_time(text, NOW, "--since") == at
    assert shell.parse_future_time(text, NOW, "--since") == (
        2 * NOW - at if text.strip()[-1] in "smhdw" else at
    )


def test_a_day_is_meant_to_its_end() -> None:
    """`--until` a day takes in all of it, `--until` a time goes up to that time."""
    assert shell.parse_end_time("1970-01-01", NOW, "--until") == 24 * HOUR - 1
    assert shell.parse_end_time("1970-01-01T00:00", NOW, "--until") == 0


@pytest.mark.parametrize(
    "text", ["", "soon", "7", "d", "7x", "-7d", "1969-12-31", "2026-13-01", "99999999w", "99999-01-01"]
)
def test_other_moments_are_refused(text: str) -> None:
    """What is no moment gives an error that names the option and shows what to write."""
    with pytest.raises(Invalid, match=r"--since .*2026-05-08"):
        shell.parse_past_time(text, NOW, "--since")


@pytest.mark.parametrize("text", ["999999999w", "999999w999999w", "9999-12-31T23:59-10:00"])
def test_moments_beyond_the_calendar_are_refused(text: str) -> None:
    """A moment after the year 9999 is a slip, and named as one."""
    with pytest.raises(Invalid, match=r"--expires .*after the year 9999"):
        shell.parse_future_time(text, NOW, "--expires")
    assert shell.parse_end_time("9999-12-31", NOW, "--until") == clock.MAX_TIMESTAMP


@pytest.mark.parametrize(("at", "text"), [(NOW, "2023-11-14 22:13:20Z"), (None, ""), (10**18, str(10**18))])
def test_moments_are_shown_in_utc(at: int | None, text: str) -> None:
    """People see date and time; what lies beyond the calendar stays a number."""
    assert shell.format_time(at) == text


def test_free_space_is_told_before_the_file_exists(tmp_path: Path) -> None:
    """The room of a file that is not there yet is that of the folder it will be in."""
    assert free_bytes(tmp_path / "no" / "such" / "file.db") > 0
