"""Every code block of the documentation runs and shows its real values.

Every python block in it runs. A statement followed by `# → value` is checked: the value shown is the repr or
the str of what the statement gives, or `Error: message` where it raises. A long value may stand in comment
lines of its own right below the statement. A statement may await, as in a notebook. Pages run in an empty
folder.
"""

import ast
import asyncio
import inspect
import io
import pkgutil
import re
import tokenize
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import omoide
from omoide import (
    Definition,
    Entry,
    Filter,
    Plugin,
    Session,
    blocking,
    directives,
    errors,
    identity,
    memory,
    sessions,
    strategy,
    thread,
    turns,
    verbs,
)
from omoide.core import TYPE_WORDS, frozen
from omoide.core.entry import DEFAULT_MIN_RELEVANCE
from omoide.retrieval import pool
from omoide.retrieval.ranking import FeatureWeights
from omoide.stores import StoreSettings, protocols, redaction
from omoide.stores.sql import candidates
from omoide.testing import reproducible
from omoide.turns import TurnKwargs, runner
from omoide.turns import memory as remembering
from omoide.turns.journal import EVENT_KINDS

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
ARROW = "# →"
LANGUAGES = {"python", "console", "text", "json", "toml"}

FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Block(NamedTuple):
    language: str
    body: str
    line: int


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> list[Block]:
    text = path.read_text("utf-8")
    return [
        Block(match["language"], match["body"], text.count("\n", 0, match.start("body")))
        for match in FENCE.finditer(text)
    ]


def prose(path: Path) -> str:
    """The text of a page without its blocks."""
    return FENCE.sub("", path.read_text("utf-8"))


def code_words(path: Path) -> set[str]:
    """The words that a page writes as code."""
    code = [block.body for block in blocks(path) if block.language == "python"]
    return {word for part in [*code, *INLINE.findall(prose(path))] for word in WORD.findall(part)}


def shown_values(source: str) -> dict[int, str]:
    """What the arrows of a block promise, by the line of the statement that each belongs to."""
    comments = {
        token.start[0]: (token.string, token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = {}
    for line, (comment, alone) in comments.items():
        if comment.startswith(ARROW):
            value = [comment.removeprefix(ARROW).strip()]
            following = line + 1
            while alone and following in comments and not comments[following][0].startswith(ARROW):
                value.append(comments[following][0].removeprefix("#").strip())
                following += 1
            found[line - alone] = " ".join(value)
    return found


def outcome(statement: ast.stmt, namespace: dict[str, Any], path: Path) -> tuple[str, ...]:
    """Every form in which what a statement gives may be shown."""
    if isinstance(statement, ast.Expr):
        value = evaluate(ast.Expression(statement.value), "eval", namespace, path)
        return repr(value), str(value)
    evaluate(ast.Module([statement], []), "exec", namespace, path)
    return ("None",)


def evaluate(tree: ast.Module | ast.Expression, mode: str, namespace: dict[str, Any], path: Path) -> Any:
    """What the code gives, once it has been awaited if it awaits."""
    code = compile(tree, str(path), mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    value = eval(code, namespace)  # noqa: S307 - the code is our own documentation
    return asyncio.run(value) if code.co_flags & inspect.CO_COROUTINE else value


def run_block(block: Block, namespace: dict[str, Any], path: Path) -> Iterator[str]:
    """Run a block statement by statement; what does not come out as shown."""
    source = "\n" * block.line + block.body
    promised = shown_values(source)
    for statement in ast.parse(source, str(path)).body:
        shown = promised.pop(statement.end_lineno or 0, None)
        try:
            forms = outcome(statement, namespace, path)
        except Exception as error:
            if shown is None:
                raise
            forms = (f"{type(error).__name__}: {error}",)
        if shown is not None and shown not in forms:
            yield f"{page_id(path)}:{statement.lineno} shows {shown}\n but gives {forms[0]}"
    yield from (
        f"{page_id(path)}:{line} shows {shown}, which no statement gives" for line, shown in promised.items()
    )


def rows(page: str) -> set[str]:
    """What stands as code in the first column of a page's tables."""
    cells = re.findall(r"^\|(.*?)\|", prose(ROOT / "docs" / f"{page}.md"), re.MULTILINE)
    return set(INLINE.findall("\n".join(cells)))


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", path.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def error_names() -> set[str]:
    kinds = inspect.getmembers(errors, inspect.isclass)
    return {name for name, kind in kinds if kind.__module__.startswith(errors.__name__)}


def nav_pages() -> list[str]:
    return list(flat_nav(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]))


def flat_nav(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for page in entry.values():
            if isinstance(page, str):
                yield page
            else:
                yield from flat_nav(page)


def has_code(folder: Path) -> bool:
    return (folder / "__init__.py").exists()


def resolves(name: str) -> bool:
    """True if a dotted name is a module, or is found by attribute access from the longest module in it."""
    with suppress(ImportError, AttributeError):
        pkgutil.resolve_name(name)
        return True
    return False


@pytest.mark.parametrize("path", PROSE, ids=page_id)
def test_every_example_in_the_documentation_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The python blocks of a page run in order, in one namespace, and give the values they show."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": f"page_{path.stem}"}
    with reproducible():
        wrong = [
            problem
            for block in blocks(path)
            if block.language == "python"
            for problem in run_block(block, namespace, path)
        ]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("path", PROSE, ids=page_id)
def test_every_block_says_what_it_is(path: Path) -> None:
    """Each fenced block names a language that this file knows, so that none escapes being run by a typo."""
    unknown = [(block.line, block.language) for block in blocks(path) if block.language not in LANGUAGES]
    assert unknown == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_page_shows_code_that_runs(path: Path) -> None:
    """Each page of the site has python blocks, and a value in them is checked."""
    assert any(ARROW in block.body for block in blocks(path) if block.language == "python")


def test_a_wrong_value_is_noticed() -> None:
    """A block that shows another value than it gives, or an error that is not raised, is reported."""
    block = Block("python", "1 + 1  # → 3\nx = 2\nx\n# → 2\n", 0)
    assert [problem.split("\n")[0] for problem in run_block(block, {}, ROOT / "x.md")] == ["x.md:1 shows 3"]


def test_every_public_name_is_documented() -> None:
    """Every name of `omoide.__all__` is written as code somewhere in the documentation."""
    words = set().union(*map(code_words, PAGES))
    assert set(omoide.__all__) - words == set()


@pytest.mark.parametrize(
    ("module", "page"),
    [
        (memory, "memory"),
        (identity, "identity"),
        (thread, "thread"),
        (strategy, "strategies"),
        (directives, "directives"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_every_public_function_is_documented(module: ModuleType, page: str) -> None:
    """Every name of a public module is written as code on the page of that module."""
    assert set(module.__all__) - code_words(ROOT / "docs" / f"{page}.md") == set()


def test_every_error_is_documented() -> None:
    """Every error class is written as code on the page of errors."""
    assert error_names() - code_words(ROOT / "docs" / "errors.md") == set()


def test_the_tree_of_errors_is_the_one_in_the_code() -> None:
    """The page of errors shows the tree that opens the module, and every error stands in it."""
    tree = (inspect.getdoc(errors) or "").split("```")[1].split()
    assert tree in [block.body.split() for block in blocks(ROOT / "docs" / "errors.md")]
    assert {word for word in tree if hasattr(errors, word)} >= error_names()


def test_everything_a_plugin_may_say_is_documented() -> None:
    """Every public attribute and method of Plugin is written as code on the page of plugins."""
    names = {name for name in vars(Plugin) if not name.startswith("_")}
    assert names - code_words(ROOT / "docs" / "plugins.md") == set()


def test_every_part_of_a_definition_is_documented() -> None:
    """Every parameter of `Definition.new` is written as code on the page of agents."""
    names = set(inspect.signature(Definition.new).parameters)
    assert names - code_words(ROOT / "docs" / "agents.md") == set()


def test_every_verb_is_documented_and_has_a_twin_without_await() -> None:
    """The page of stores has every verb, and `omoide.blocking` has the same ones."""
    names = {name for name in blocking.__all__ if inspect.isfunction(getattr(blocking, name))}
    awaited = {name for name in verbs.__all__ if inspect.iscoroutinefunction(getattr(verbs, name))}
    of_turns = {"chat", "preflight", "turn", "write"}
    assert names == awaited | of_turns | {"add_document", "open_graph"}
    assert "add_document" in code_words(ROOT / "docs" / "documents.md")
    assert "open_graph" in code_words(ROOT / "docs" / "graph.md")
    assert awaited - code_words(ROOT / "docs" / "stores.md") == set()
    assert of_turns - code_words(ROOT / "docs" / "turns.md") == set()


def test_all_that_a_store_can_be_asked_is_documented() -> None:
    """Every protocol of stores and every method of it is written as code on the page of stores."""
    kinds = [
        kind
        for _, kind in inspect.getmembers(protocols, inspect.isclass)
        if kind.__module__ == protocols.__name__
    ]
    names = {kind.__name__ for kind in kinds}
    methods = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
    assert names | methods <= code_words(ROOT / "docs" / "stores.md")


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (StoreSettings, "stores"),
        (Entry, "stores"),
        (Filter, "recall"),
        (FeatureWeights, "recall"),
        (turns.AgentSpec, "specs"),
        (turns.MemoryPolicy, "specs"),
        (turns.Limits, "specs"),
        (turns.Window, "specs"),
        (turns.TurnResult, "turns"),
        (turns.Prompt, "prompts"),
        (turns.Preflight, "prompts"),
    ],
)
def test_every_field_is_documented(kind: Any, page: str) -> None:
    """Every field of what users give and get has a row in a table, but for code that goes with a spec."""
    code = turns.AgentSpec.EXCLUDED_FIELDS if kind is turns.AgentSpec else frozenset()
    assert set(kind.__struct_fields__) - code - rows(page) == set()


def test_every_option_and_event_of_a_turn_is_documented() -> None:
    """Each option of a turn and each kind of event has a row on the page of turns."""
    assert {*TurnKwargs.__annotations__, *EVENT_KINDS} - rows("turns") == set()


def test_all_of_turns_and_sessions_is_documented() -> None:
    """Every public name of both is written as code on a page about them, and so is each part of a Session."""
    pages = ("turns", "prompts", "tools", "specs", "models", "sessions")
    words = set().union(*(code_words(ROOT / "docs" / f"{page}.md") for page in pages))
    assert {*turns.__all__, *sessions.__all__} - words == set()
    members = {name for name in vars(Session) if not name.startswith("_")}
    assert members - code_words(ROOT / "docs" / "sessions.md") == set()


def test_the_limits_of_data_are_those_in_the_code() -> None:
    """The page of values tells how deep and how large data may be, in the numbers that the code goes by."""
    page = prose(ROOT / "docs" / "values.md")
    limits = [
        f"{frozen.MAX_INPUT_DEPTH} levels",
        f"{frozen.MAX_STORED_DEPTH} levels",
        f"{frozen.MAX_NODES:,} values",
    ]
    assert [limit for limit in limits if f"| {limit} |" not in page] == []


def test_the_limits_of_recall_are_those_in_the_code() -> None:
    """The page of recall tells how many candidates there are and how long a window is, as the code has it."""
    page = prose(ROOT / "docs" / "recall.md")
    limits = [f"{candidates.MAX_CACHED_ENTRIES:,} entries", f"{pool.WINDOW_WORDS} words"]
    assert [limit for limit in limits if limit not in page] == []


def test_the_everyday_words_for_types_are_those_in_the_code() -> None:
    """The page of knowledge has one table of words, each beside the type that it is stored as."""
    page = prose(ROOT / "docs" / "knowledge.md")
    table = page.partition("| type | words for it |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in table.splitlines()]
    assert {word: name for name, *words in rows for word in words} == dict(TYPE_WORDS)


def test_the_default_relevance_is_the_one_in_the_code() -> None:
    """The page of specs tells below which relevance no memory enters a prompt, as the code has it."""
    (row,) = [
        line for line in prose(ROOT / "docs" / "specs.md").splitlines() if "| `min_relevance` |" in line
    ]
    assert row.endswith(f"| {DEFAULT_MIN_RELEVANCE} |")


def test_the_limits_of_a_turn_are_those_in_the_code() -> None:
    """The page of turns tells how much of an input is asked with and how long a listener has, as it is so."""
    page = " ".join(prose(ROOT / "docs" / "turns.md").split())
    assert f"{remembering.MAX_QUERY_LENGTH:,} characters" in page
    assert {5: "five seconds"}[runner.FINAL_EVENT_TIMEOUT] in page


def test_the_keys_that_name_a_secret_are_those_in_the_code() -> None:
    """Each key that the page of stores calls a secret's is one, and each that it calls a count is none."""
    section = (
        prose(ROOT / "docs" / "stores.md").partition("### Keys that name a secret")[2].partition("\n## ")[0]
    )
    whole, _, keys = section.partition("plural:")[2].partition("or `key` after")
    before, _, rest = keys.partition("Words may be parted")
    spelled, _, counts = rest.partition("Counts")
    named = [
        *INLINE.findall(whole),
        *(f"{word}_key" for word in INLINE.findall(before)),
        *INLINE.findall(spelled),
    ]
    assert len(named) > 20
    assert [key for key in named if not redaction.is_secret_key(key)] == []
    assert [key for key in INLINE.findall(counts) if redaction.is_secret_key(key)] == []


def test_every_context_of_an_error_is_documented() -> None:
    """Each context that the Error directive names has a row on the page of agents."""
    told = (inspect.getdoc(directives.Error) or "").partition("in the context ")[2]
    named = set(WORD.findall(told)) - {"or"}
    rows = set(re.findall(r"^\| `([a-z]+)`", prose(ROOT / "docs" / "agents.md"), re.MULTILINE))
    assert named
    assert named - rows == set()


def test_every_package_stands_in_the_map_of_packages() -> None:
    """The table of the architecture page has each public package and root module, and no other."""
    names = {
        path.stem for path in (ROOT / "src" / "omoide").iterdir() if path.suffix == ".py" or has_code(path)
    }
    assert names - {"__init__", "__main__", "_lazy", "testing"} == rows("architecture")


def test_every_step_of_a_journey_names_what_exists() -> None:
    """Each dotted name of the package on the architecture page resolves to a module or to what is in one."""
    names = set(re.findall(r"`(omoide(?:\.\w+)+)`", prose(ROOT / "docs" / "architecture.md")))
    assert names
    assert [name for name in sorted(names) if not resolves(name)] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_the_reference_of_a_page_names_what_exists(path: Path) -> None:
    """Each `:::` directive of a page names something that its reference can be generated from."""
    names = re.findall(r"^::: (\S+)", path.read_text("utf-8"), re.MULTILINE)
    assert [name for name in names if not resolves(name)] == []


def test_the_site_has_every_page_once() -> None:
    """The navigation lists each page of docs/ once, and nothing else."""
    assert sorted(nav_pages()) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in PAGES)


@pytest.mark.parametrize("path", PROSE, ids=page_id)
def test_links_lead_somewhere(path: Path) -> None:
    """Each relative link leads to a file of the repository, and its anchor to a heading there."""
    broken = []
    for link in LINK.findall(prose(path)):
        if "://" not in link and not link.startswith("mailto:"):
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(link)
    assert broken == []


def test_pages_link_only_to_pages() -> None:
    """A page of the site links to other pages of the site, which are all that is published."""
    outside = [
        (page_id(path), link)
        for path in PAGES
        for link in LINK.findall(prose(path))
        if "://" not in link
        and not (path.parent / link.partition("#")[0]).resolve().is_relative_to(PAGES[0].parent)
    ]
    assert outside == []


@pytest.mark.parametrize("path", PROSE, ids=page_id)
def test_make_targets_exist(path: Path) -> None:
    """Each `make x` in the documentation is a target that `make help` lists."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    code = [
        *INLINE.findall(prose(path)),
        *(block.body for block in blocks(path) if block.language == "console"),
    ]
    named = {target for part in code for target in re.findall(r"\bmake ([a-z-]+)", part)}
    assert named - targets == set()
