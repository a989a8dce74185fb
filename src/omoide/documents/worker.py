"""Worker process that reads one HTML or PDF file.

It is run as a script, by path, with limits of time and memory. It reads one line of JSON and then the file
from standard input, and writes the blocks of the file as JSON: text, level of a heading or 0, and page or
null. The exit status reports failures: with `UNREADABLE` it writes what is wrong and what to do instead.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

UNREADABLE = 64
OUT_OF_MEMORY = 65

_SPACE = re.compile(r"\s+")
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_])")
_SKIPPED = "script, style, template, noscript, svg, math, iframe, object, nav, [hidden], [aria-hidden=true]"
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption "
        "figure footer form h1 h2 h3 h4 h5 h6 header hr html li main menu ol option p pre search section "
        "summary table tbody td tfoot th thead tr ul",
    )
)

ReadBlock = tuple[str, int, int | None]
"""Text, level of a heading or 0, and page."""


class Unreadable(Exception):
    """A file that cannot be read: what is wrong, and what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def main() -> int:
    """Read the file on standard input and return the exit status."""
    request = json.loads(sys.stdin.buffer.readline())
    sys.path.extend(request["packages"])
    from omoide.graph.worker import set_limits

    read = {"html": read_html, "pdf": read_pdf}[request["format"]]
    data = sys.stdin.buffer.read()
    set_limits(request["memory"], request["seconds"], None)
    try:
        answer: Any = [*read(data)]
    except Unreadable as error:
        answer = {"problem": str(error), "remedy": error.remedy}
    except MemoryError:
        return OUT_OF_MEMORY
    except RecursionError:
        answer = {"problem": "is nested too deeply", "remedy": "simplify it, or save its text"}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    return UNREADABLE if isinstance(answer, dict) else 0


def read_html(data: bytes) -> Iterator[ReadBlock]:
    """Yield the headings and paragraphs of an HTML page, without scripts and what is hidden."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(data.decode("utf-8"))
    for hidden in tree.css(_SKIPPED):
        hidden.decompose()
    parts: list[str] = []
    level, preformatted = 0, 0

    def block() -> Iterator[ReadBlock]:
        text = "".join(parts).strip("\n") if preformatted else _SPACE.sub(" ", "".join(parts)).strip()
        parts.clear()
        if text.strip():
            yield text, level, None

    # Entering and leaving are told apart without recursion: a page may be nested as deep as it is long.
    node: Any = tree.body
    root, leaving = node, False
    while node is not None:
        tag = node.tag
        if tag in _BLOCKS:
            yield from block()
            level = 0 if leaving else _HEADINGS.get(tag, level)
            preformatted += (-1 if leaving else 1) * (tag == "pre")
        elif tag == "br" and not leaving:
            parts.append("\n")
        elif tag == "-text" and not leaving:
            parts.append(node.text_content or "")
        if not leaving and node.child is not None:
            node = node.child
        elif node == root:
            break
        elif node.next is not None:
            node, leaving = node.next, False
        else:
            node, leaving = node.parent, True
    yield from block()


def read_pdf(data: bytes) -> Iterator[ReadBlock]:
    """Yield the paragraphs of a PDF file with their pages, and the headings that its outline names."""
    import logging
    from io import BytesIO

    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    logging.disable()  # what pypdf tells of the details of damaged files
    try:
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("is encrypted", "save it without a password")
        headings = _outline(reader)
        for number, page in enumerate(reader.pages, 1):
            yield from _page_blocks(page.extract_text() or "", number, headings.get(number, []))
    except (Unreadable, MemoryError, RecursionError):
        raise
    except DependencyError:
        raise Unreadable("is encrypted", "save it without a password") from None
    except Exception as error:
        problem = f"cannot be read as PDF ({type(error).__name__})"
        raise Unreadable(problem, "save it anew, or as text") from error


def _outline(reader: Any) -> dict[int, list[tuple[str, int]]]:
    """Return the titles in the outline of a PDF file with their levels, by page."""
    headings: dict[int, list[tuple[str, int]]] = {}
    waiting = [(iter(reader.outline), 1)]
    while waiting:
        items, level = waiting[-1]
        item = next(items, None)
        if item is None:
            waiting.pop()
        elif isinstance(item, list):
            waiting.append((iter(item), level + 1))
        else:
            page, title = reader.get_destination_page_number(item), _SPACE.sub(" ", item.title or "").strip()
            if page is not None and title:
                headings.setdefault(page + 1, []).append((title, level))
    return headings


def _page_blocks(text: str, page: int, headings: list[tuple[str, int]]) -> Iterator[ReadBlock]:
    """Yield the blocks of a page; headings that no line of it shows come first."""
    lines = [line.strip() for line in text.splitlines()]
    shown = [(title, level) for title, level in headings if title in lines]
    for title, level in headings:
        if (title, level) not in shown:
            yield title, level, page
    levels, paragraph = dict(shown), list[str]()
    for line in (*lines, ""):
        level = levels.pop(line, 0)
        if line and not level:
            paragraph.append(line)
            continue
        if paragraph:
            yield _SPACE.sub(" ", _HYPHEN.sub("", "\n".join(paragraph))), 0, page
            paragraph.clear()
        if level:
            yield line, level, page


if __name__ == "__main__":
    sys.exit(main())
