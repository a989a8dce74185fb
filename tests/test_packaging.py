"""What the repository tells installers, engines, forges and readers is true of the package."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx2
import pytest
import yaml
from tests.conftest import SOAK
from tests.support.scripts import ROOT, load_script

from omoide.cli.app import app
from omoide.stores import open_store
from omoide.web import create_app

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CLASSIFIERS = PROJECT["classifiers"]
PYTHONS = [name.rpartition(" ")[2] for name in CLASSIFIERS if re.search(r":: 3\.\d+$", name)]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

image = load_script("image")
resolve = load_script("resolve")
changelog = load_script("changelog")
INSTRUCTIONS = list(image.parse_dockerfile((ROOT / "Dockerfile").read_text("utf-8")))
PRIVATE_NAMES = {
    "_WaitTimeout",  # tests/stores/test_postgres_failures.py: a server that no longer answers
    "_pipeline",  # tests/stores/test_postgres_suite.py: every change that counts what it changed
    "_server_info",  # tests/runtime/nats: servers with and without JetStream
}
"""Private names of others that the package uses, each with the tests that fail when it is gone."""


def values(word: str) -> list[str]:
    """The values of an instruction, in every stage."""
    return [one.value for one in INSTRUCTIONS if one.word == word]


def parse_command(words: list[str]) -> click.Context:
    """What the command line makes of some words, without doing it; an unknown one raises."""
    with click.Context(app) as parent:
        name, command, rest = app.resolve_command(parent, list(words))
        assert command is not None
        return command.make_context(name, rest, parent=parent)


def private_names(tree: ast.Module) -> Iterator[str]:
    """Private attributes that are read, and private modules that are imported by name."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if re.match(r"_[A-Za-z]", name):
                yield name
            case ast.ImportFrom(module=str(name), level=0) if re.search(r"(^|\.)_[A-Za-z]", name):
                yield name
            case ast.Call(func=ast.Name("import_module"), args=[ast.Constant(str(name))]) if "._" in name:
                yield name


def own_names(tree: ast.Module) -> Iterator[str]:
    """Every attribute that a module gives to something of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (
                part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            assigned = [part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)]
            yield from (name.id for part in assigned for name in ast.walk(part) if isinstance(name, ast.Name))


def test_private_names_of_others_are_few_and_known() -> None:
    """What another package does not promise is used where there is no other way, and a test watches it."""
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "src").rglob("*.py")]
    own = {name for tree in trees for name in own_names(tree)}
    found = {name for tree in trees for name in private_names(tree)}
    assert {name for name in found - own if name not in {"_asdict", "omoide._lazy"}} == PRIVATE_NAMES


def test_the_extra_all_has_every_extra_but_the_one_for_tests() -> None:
    """So that what resolves for `all` resolves for each of them."""
    [everything] = EXTRAS["all"]
    assert everything == f"omoide[{','.join(sorted(EXTRAS.keys() - {'all', 'testing'}))}]"


def test_every_python_that_is_named_is_resolved_and_tried() -> None:
    """The classifiers, the resolution and the workflow name the same versions."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    job = workflow["jobs"]["run"]
    assert PYTHONS == list(resolve.PYTHONS) == job["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert [step["run"] for step in job["steps"] if "env" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_hooks_before_a_commit_are_those_of_the_lint() -> None:
    """Each runs a tool of .venv that `make lint` runs too, so that both agree."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    for hook in hooks:
        assert hook["language"] == "system"
        assert f"\t{hook['entry'].partition(' --')[0]}" in makefile


def test_the_page_of_compatibility_names_what_is_resolved() -> None:
    """Every platform and every package beside this one has a row there."""
    page = (ROOT / "docs/compatibility.md").read_text("utf-8")
    rows = {row.split("|")[1].strip(" `") for row in page.splitlines() if row.startswith("|")}
    assert {*resolve.PLATFORMS, *(peer.name for peer in resolve.PEERS)} <= rows


def test_the_image_copies_what_is_there_and_what_the_engine_is_sent() -> None:
    """Every source of a COPY exists and is let through by .dockerignore."""
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[0] == "!"}
    sources = {
        source for value in values("COPY") if not value.startswith("--from=") for source in value.split()[:-1]
    }
    assert sources == sent
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_installs_extras_that_exist_on_a_python_that_is_tried() -> None:
    """Its Python is one of the classifiers, its extras are those of pyproject.toml."""
    bases = [value.partition(" AS ")[0] for value in values("FROM")]
    assert {*bases} <= {f"python:{python}-slim" for python in PYTHONS}
    [extras] = [match[1] for value in values("RUN") if (match := re.search(r"'\.\[(.*)\]'", value))]
    assert {*extras.split(",")} <= EXTRAS.keys()


def test_the_image_starts_a_command_that_there_is_on_the_port_it_exposes() -> None:
    """The command line knows the words; the user is not root."""
    assert image.parse_list(values("ENTRYPOINT")[0]) == ["omoide"]
    context = parse_command(image.parse_list(values("CMD")[0]))
    assert values("EXPOSE") == [str(context.params["port"])]
    assert values("USER") == ["omoide"]


async def test_the_image_asks_for_its_health_where_the_service_tells_it() -> None:
    """The address of the health check answers 200 without a token."""
    [value] = values("HEALTHCHECK")
    match = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", image.health_command(value)[-1])
    assert match is not None
    assert [match[1]] == values("EXPOSE")
    async with open_store("memory://", embedder="none") as store:
        service: Any = create_app(store)
        transport = httpx2.ASGITransport(app=service)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get(match[2])).status_code == 200


def test_the_services_wait_for_and_mount_what_is_there() -> None:
    """What a service depends on has a health check; volumes are declared; images have a version."""
    for service in SERVICES.values():
        for other, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert SERVICES[other]["healthcheck"]["test"][0] == "CMD"
        assert {volume.partition(":")[0] for volume in service.get("volumes", [])} <= COMPOSE[
            "volumes"
        ].keys()
        assert service.get("build") == "." or re.search(r":\w*\d", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_service_listens_where_its_port_leads_and_opens_the_store_beside_it() -> None:
    """The command is one of the command line, and the URL names the server, the user and the database."""
    service = SERVICES["omoide"]
    context = parse_command(service["command"])
    assert service["ports"] == [f"127.0.0.1:{context.params['port']}:{context.params['port']}"]
    url = urlsplit(re.sub(r"\$\{\w+:\?[^}]*\}", "secret", service["environment"]["OMOIDE_STORE"]))
    database = SERVICES[url.hostname or ""]["environment"]
    assert (url.scheme, url.username, url.path, url.port) == (
        "postgresql",
        database["POSTGRES_USER"],
        f"/{database['POSTGRES_DB']}",
        5432,
    )
    assert url.password == "secret"


def test_the_notes_of_changes_are_named_and_told_as_they_should() -> None:
    """Each has a topic and a kind, and stands in what the next release changes."""
    notes = changelog.read_notes(ROOT / "changelog.d")
    text = changelog.render(notes)
    assert all(path.read_text("utf-8").strip().splitlines()[0] in text for path in notes)


def test_a_release_gathers_the_notes_before_earlier_ones_and_removes_them(tmp_path: Path) -> None:
    """They are grouped by kind; what stood there stays."""
    folder = tmp_path / "changelog.d"
    folder.mkdir()
    (folder / "README.md").write_text("How to.")
    (folder / "b.fixed.md").write_text("B works.\n\n| a | b |\n")
    (folder / "a-new.added.md").write_text("A is there.\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nIntro.\n\n## 0.1.0 – 2026-01-01\n\nFirst.\n")
    changelog.release(tmp_path, "0.2.0", date(2026, 12, 1))
    assert (tmp_path / "CHANGELOG.md").read_text() == (
        "# Changelog\n\nIntro.\n\n## 0.2.0 – 2026-12-01\n\n### Added\n\n- A is there.\n\n"
        "### Fixed\n\n- B works.\n\n  | a | b |\n\n## 0.1.0 – 2026-01-01\n\nFirst.\n"
    )
    assert [path.name for path in folder.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.improved.md", "Better.", "is no note: name it <topic>"),
        ("a.fixed.md", " \n", "is empty: write one sentence"),
        ("README.md", "How to.", "has no notes: nothing changed"),
    ],
)
def test_a_release_of_bad_notes_changes_nothing(tmp_path: Path, name: str, text: str, problem: str) -> None:
    """It says which note is wrong, and what to do."""
    folder = tmp_path / "changelog.d"
    folder.mkdir()
    (folder / name).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(ValueError, match=problem):
        changelog.release(tmp_path, "0.2.0", date(2026, 12, 1))
    assert (tmp_path / "CHANGELOG.md").read_text() == "# Changelog\n"
    assert (folder / name).exists()


@pytest.mark.skipif(not SOAK, reason="builds an archive and runs tests from it: make soak")
def test_the_tests_run_from_the_source_archive(tmp_path: Path) -> None:
    """What a distributor unpacks has its tests, and what they read."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    folder = archive.with_name(archive.name.removesuffix(".tar.gz"))
    paths = ["tests/core", "tests/test_style.py", "tests/test_docs.py", "tests/stores/test_suite.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *paths]
    environment = {name: value for name, value in os.environ.items() if name != "OMOIDE_EXAMPLES"}
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3_000:]
