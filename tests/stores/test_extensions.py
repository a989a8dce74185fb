"""Installed distributions give `open_store` a URL scheme, and embedders a name."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from omoide import open_store
from omoide.embedders import HashEmbedder, choose, registry
from omoide.errors import EmbedderFailed, Invalid, OmoideError, StoreFailed

PACKAGE = Path(__file__).parents[2] / "examples" / "own_package"
Install = Callable[..., None]

USE = """
import anyio, omoide
from omoide import Scope, open_store
from omoide.embedders import choose

async def main():
    scope = Scope(agent_id="ada")
    async with open_store("shared://kitchen", embedder="letters") as store:
        await omoide.remember(store, "The tea is in the blue tin.", scope)
        again = open_store("shared://kitchen")
        found = await omoide.recall(again, "Where is the tea?", scope)
        print(found.hits[0].entry.content, again is store, choose("letters").name)
    for url in ("shared://", "other://x"):
        try:
            open_store(url)
        except omoide.errors.Invalid as error:
            print(error)

anyio.run(main)
"""


def test_the_example_package_is_installed_and_used(tmp_path: Path) -> None:
    """A distribution of others needs its metadata alone; nothing registers it in code."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index"]
    beside = ["--no-deps", "--no-build-isolation", "--target", str(tmp_path), str(PACKAGE)]
    done = subprocess.run([*pip, *beside], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", USE],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    used, own, unknown = done.stdout.splitlines()
    assert used == "The tea is in the blue tin. True letters-1"
    assert own == "url 'shared://' has no name; write shared://name"
    assert unknown.endswith("redis://host, or what is installed beside: shared://")
    assert not [*PACKAGE.glob("**/*.egg-info"), *PACKAGE.glob("dist"), *PACKAGE.glob("build")]


def test_the_page_shows_the_entry_points_of_the_example() -> None:
    """Who copies them from there gets what the example has."""
    shown = (PACKAGE.parents[1] / "docs" / "stores.md").read_text().split("```toml\n")[1].split("```")[0]
    has = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]
    assert tomllib.loads(shown)["project"]["entry-points"] == has


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution with entry points, and the module they name, on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(name: str, group: str, points: str, code: str = "") -> None:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        folder = tmp_path / f"{module}-2.5.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{points}\n")

    registry._load_extension.cache_clear()
    yield put
    registry._load_extension.cache_clear()
    for name in [name for name in sys.modules if name.startswith("acme")]:
        del sys.modules[name]


def test_an_unknown_scheme_or_name_lists_what_is_installed(install: Install) -> None:
    """So that a slip of the pen is seen at once."""
    with pytest.raises(Invalid, match=r"redis://host$"):
        open_store("acme://x")
    with pytest.raises(Invalid, match=r"'best' is unknown; pass .* or a function$"):
        choose("best")
    install("acme-one", "omoide.stores", "acme = acme_one:open\nabc = acme_one:open")
    install("acme-two", "omoide.embedders", "acme-large = acme_two:make")
    with pytest.raises(Invalid, match=r"'amce://x' .* or what is installed beside: abc://, acme://$"):
        open_store("amce://x")
    with pytest.raises(Invalid, match=r"installed are 'acme-large'$"):
        choose("best")


BROKEN = [
    ("acme_one:missing", "", "does not load (AttributeError"),
    ("acme_none:open", "", "does not load (ModuleNotFoundError"),
    ("acme_one:open", "1 / 0", "does not load (ZeroDivisionError"),
    ("acme_one:open", "open = 5", "is no function, but a int"),
    ("acme_one:open", "def open(*args, **options): raise OSError('no disk')", "failed (OSError: no disk)"),
    ("acme_one:open", "def open(): return lambda texts: texts", ""),
]


@pytest.mark.parametrize(("place", "code", "said"), BROKEN)
def test_an_extension_that_fails_is_named_with_its_distribution(
    install: Install, place: str, code: str, said: str
) -> None:
    """The error says whose entry point it is, and has the cause."""
    install("acme-one", "omoide.stores", f"acme = {place}", code)
    with pytest.raises(StoreFailed) as raised:
        open_store("acme://user:secret@host/x", colour="red")
    told = str(raised.value)
    assert "acme-one 2.5" in told
    assert f"acme = {place}" in told
    assert said in told
    assert "secret" not in told


@pytest.mark.parametrize(("place", "code", "said"), BROKEN)
def test_an_embedder_that_fails_is_named_with_its_distribution(
    install: Install, place: str, code: str, said: str
) -> None:
    """The same for embedders; what fails may be tried again."""
    install("acme-one", "omoide.embedders", f"acme = {place}", code)
    for _ in range(2):
        with pytest.raises(EmbedderFailed, match=r"acme-one 2\.5") as raised:
            choose("acme")
        assert said in str(raised.value)


def test_what_is_no_store_is_refused(install: Install) -> None:
    """It has the methods of a store, or it is none."""
    install("acme-one", "omoide.stores", "acme = acme_one:open", "def open(url, **options): return url")
    with pytest.raises(StoreFailed, match=r"'acme' of acme-one 2\.5 gave a str, which is no store"):
        open_store("acme://x")


def test_two_distributions_with_one_name_are_both_named(install: Install) -> None:
    """Which of them is meant is for the user to say."""
    for name in ("acme-one", "acme-two"):
        install(name, "omoide.stores", f"acme = {name.replace('-', '_')}:open")
    with pytest.raises(StoreFailed, match=r"is offered by acme-one 2\.5 and acme-two 2\.5; uninstall"):
        open_store("acme://x")


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "postgresql", "postgres", "redis", "rediss"])
def test_own_schemes_cannot_be_replaced(install: Install, scheme: str, tmp_path: Path) -> None:
    """An entry point with the name of one of ours is never loaded."""
    install("acme-one", "omoide.stores", f"{scheme} = acme_one:open", "raise SystemExit")
    url = "memory://" if scheme == "memory" else f"{scheme}:///{tmp_path}/a.db?timeout=0.01"
    with suppress(OmoideError):  # there may be no server
        open_store(url).sync.close()
    assert "acme_one" not in sys.modules
    with pytest.raises(Invalid) as raised:
        open_store("other://x")
    assert "installed beside" not in str(raised.value)


@pytest.mark.parametrize("name", ["none", "auto", "local", "static", "openai:large"])
def test_own_names_cannot_be_replaced(install: Install, name: str) -> None:
    """The same for embedders, names that were removed and those of providers included."""
    point = name.replace(":", "\\:")
    install("acme-one", "omoide.embedders", f"{point} = acme_one:make", "raise SystemExit")
    with suppress(OmoideError):  # it was removed, or has no key
        choose(name)
    assert "acme_one" not in sys.modules


def test_an_extension_gets_what_open_store_was_given(install: Install) -> None:
    """The URL as it is, the embedder and the settings; an error of ours goes through as it is."""
    code = (
        "from omoide import open_store\nfrom omoide.errors import Invalid\nseen = []\n"
        "def open(url, *, embedder, **settings):\n    seen.append((url, embedder, settings))\n"
        "    if not settings: raise Invalid('colour', 'is missing', 'pass it')\n"
        "    return open_store('memory://', embedder=embedder)\n"
    )
    install("acme-one", "omoide.stores", "acme = acme_one:open", code)
    embedder = HashEmbedder()
    store = open_store("ACME://x/y?z=1", embedder=embedder, colour="red")
    seen: list[Any] = sys.modules["acme_one"].seen
    assert seen == [("ACME://x/y?z=1", embedder, {"colour": "red"})]
    store.sync.close()
    with pytest.raises(Invalid, match="colour is missing; pass it"):
        open_store("acme://x")


def test_a_named_embedder_is_made_once(install: Install) -> None:
    """As the local encoder is, which may be large."""
    code = "from omoide.embedders import HashEmbedder\ndef make(): return HashEmbedder()\n"
    install("acme-one", "omoide.embedders", "acme = acme_one:make", code)
    assert choose("acme") is choose("acme") is not None
