"""The guide for readers of the Jido documents has every code block and every function of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.jido_documents import BLOCKS, FUNCTIONS, DocumentBlock
from tests.test_docs import ARROW, FENCE, INLINE, Block, resolves, run_block

from omoide.testing import reproducible

FOLDER = Path(__file__).parent.parent / "docs" / "jido"
PAGES = sorted({block.page for block in BLOCKS})
HEADINGS = list(dict.fromkeys((block.page, block.heading) for block in BLOCKS))
ROW = re.compile(r"^\| (?P<old>`[^|]*`) \| (?P<new>`[^|]*`) \|$", re.MULTILINE)
REFERENCE = re.compile(r"\[[^\]]+\]\((?P<page>[\w-]+)\.md\)")


def read(page: str) -> str:
    """Return the text of a page of the guide."""
    return (FOLDER / f"{page}.md").read_text("utf-8")


def sections(text: str, level: int) -> dict[str, str]:
    """Return the sections below the headings of a level, by heading; code is no heading."""
    hidden = FENCE.sub(lambda fence: re.sub(r"^#", "\0", fence.group(), flags=re.MULTILINE), text)
    parts = re.split(rf"^{'#' * level} +(.+?) *$", hidden, flags=re.MULTILINE)
    return {title: body.replace("\0", "#") for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def code_of(block: DocumentBlock) -> list[str]:
    """Return the Python that the guide has for a block of a document."""
    section = sections(read(block.page), 2).get(block.heading, "")
    several = [one for one in BLOCKS if one[:2] == block[:2]]
    if len(several) > 1:
        section = sections(section, 3).get(f"Block {block.ordinal}", "")
    return [fence["body"] for fence in FENCE.finditer(section) if fence["language"] == "python"]


def rows() -> dict[str, dict[str, str]]:
    """Return the old and the new names of each document, by its page."""
    found: dict[str, dict[str, str]] = {}
    for section in sections(read("names"), 2).values():
        page = REFERENCE.search(section)
        assert page is not None
        found[page["page"]] = {
            old: INLINE.findall(row["new"])[0]
            for row in ROW.finditer(section)
            for old in INLINE.findall(row["old"])
        }
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}-{block.heading}-{block.ordinal}")
def test_every_code_block_of_the_documents_has_its_python(block: DocumentBlock) -> None:
    """Under the heading that it has in its document stands code that shows what comes out."""
    assert any(ARROW in code for code in code_of(block))


@pytest.mark.parametrize(("page", "heading"), HEADINGS)
def test_every_section_runs_on_its_own(
    page: str, heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who comes to a heading needs nothing of what stands before it."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": f"page_{page}"}
    section = sections(read(page), 2)[heading]
    with reproducible():
        for fence in FENCE.finditer(section):
            if fence["language"] == "python":
                block = Block("python", fence["body"], section.count("\n", 0, fence.start("body")))
                assert list(run_block(block, namespace, FOLDER / f"{page}.md")) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_function_of_the_documents_has_a_name_here(page: str) -> None:
    """The table of names has each of them, and no other."""
    assert set(rows()[page]) == set(FUNCTIONS[page])


def test_every_new_name_exists() -> None:
    """Each name in the second column is found by attribute access."""
    names = {new for table in rows().values() for new in table.values()}
    assert len(names) > 100
    assert [name for name in sorted(names) if not resolves(name)] == []


def test_every_decision_has_a_reason() -> None:
    """Each row of the page of deviations says what a document has, what Omoide does, and why."""
    table = [line for line in read("deviations").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert len(cells) > 80
    assert [row for row in cells if len(row) != 3 or not all(row)] == []


def test_the_guide_is_complete_without_the_list_of_pages() -> None:
    """The page that opens the guide links to each of its pages."""
    others = {path.stem for path in FOLDER.glob("*.md")} - {"index"}
    assert set(REFERENCE.findall(read("index"))) == others
