"""Read files: Markdown, HTML, PDF and plain text, as headings and paragraphs with their places.

Text and Markdown are read here. HTML and PDF are read in a process of their own, which ends with its time
and memory, because a file may be made to use up both.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from omoide import ids
from omoide.core.frozen import check_str
from omoide.core.value import check_choice
from omoide.documents import worker
from omoide.errors import Invalid, InvalidDocument, MissingExtra, NotFound, WrongType

FORMATS = ("text", "markdown", "html", "pdf")
MAX_BYTES = 32 << 20
READ_MEMORY_MB = 1024
READ_SECONDS = 60
"""Time for an HTML or PDF file, besides one second for each MiB of it."""

_FORMAT_BY_SUFFIX = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".htm": "html",
    ".html": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
}
_OFFICE_SUFFIXES = (".doc", ".docx", ".odt", ".rtf", ".ppt", ".pptx", ".xls", ".xlsx", ".epub")
_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")  # what Python itself may need to start
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"---\n(?:.*\n)*?---\n")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_PARAGRAPH = re.compile(r"[^\n]*\S[^\n]*(?:\n[^\n]*\S[^\n]*)*")


class Block(NamedTuple):
    """A heading or a paragraph, and where it is in the text of its document."""

    start: int
    end: int
    level: int = 0
    """Level of a heading from 1; 0 for a paragraph."""
    title: str = ""
    """Text of a heading."""
    page: int | None = None


class DocumentText(NamedTuple):
    """The text of a document with its parts; `digest` is that of its bytes."""

    name: str
    format: str
    text: str
    blocks: tuple[Block, ...]
    digest: str


def read_document(
    source: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    format: str | None = None,
    encoding: str | None = None,
    seconds: int = READ_SECONDS,
) -> DocumentText:
    """Read a document.

    Args:
        source: A path, or the content as bytes.
        name: What the document is called; by default its absolute path.
        format: `text`, `markdown`, `html` or `pdf`; by default what the file's ending says, else text.
        encoding: Of text; by default UTF-8, or what a byte order mark or an HTML page says.
        seconds: Time for an HTML or PDF file, besides one second for each MiB.

    Raises:
        InvalidDocument: The file cannot be read; the error names it and says what to do.
        NotFound: There is no such file.
        MissingExtra: The extra `documents` is not installed.
    """
    if isinstance(source, bytes):
        if name is None:
            raise Invalid("name", "is missing beside the content", "name the document")
        file_name, data = name, source
    elif not isinstance(source, (str, os.PathLike)):
        raise WrongType("source", "a path or bytes", source)
    else:
        path = Path(source)
        file_name = path.name
        name = path.absolute().as_posix() if name is None else name
        data = _read_file(path)
    if not check_str(name, "name") or ids.has_control_characters(name):
        raise Invalid("name", f"is {name!r}", "use printable text")
    if len(data) > MAX_BYTES:
        raise InvalidDocument(name, f"has more than {MAX_BYTES >> 20} MiB", "cut it into several")
    form = _format_of(name, file_name) if format is None else check_choice(format, "format", FORMATS)
    if not data.strip():
        raise InvalidDocument(name, "is empty", "add one with text")
    digest = sha256(data).hexdigest()
    if form in ("html", "pdf"):
        if form == "html":
            data = _decode(name, data, encoding or _declared_encoding(data)).encode()
        text, blocks = _join_blocks(_read_in_process(name, form, data, seconds))
    else:
        text = _decode(name, data, encoding)
        blocks = tuple(_markdown_blocks(text) if form == "markdown" else _paragraphs(text))
    if not blocks:
        remedy = "run character recognition over it first" if form == "pdf" else "add one with text"
        raise InvalidDocument(name, "has no text", remedy)
    return DocumentText(name, form, text, blocks, digest)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise InvalidDocument(str(path), "is a folder", "name the files in it") from None
    except FileNotFoundError:
        raise NotFound("file", str(path), "check the path") from None
    except (OSError, ValueError) as error:
        problem = f"cannot be opened ({error})"
        raise InvalidDocument(str(path), problem, "check the path and its rights") from error


def _format_of(name: str, file_name: str) -> str:
    suffix = Path(file_name).suffix.lower()
    if suffix in _OFFICE_SUFFIXES:
        raise InvalidDocument(name, f"is of a format that is not read ({suffix})", "save it as PDF or HTML")
    return _FORMAT_BY_SUFFIX.get(suffix, "text")


def _declared_encoding(data: bytes) -> str | None:
    """Return the encoding that an HTML page declares, if Python knows it."""
    declared = _CHARSET.search(data[:4096])
    if declared is None:
        return None
    try:
        "".encode(declared[1].decode())
    except LookupError:
        return None
    return declared[1].decode()


def _decode(name: str, data: bytes, encoding: str | None) -> str:
    marked = next((codec for mark, codec in _MARKS if data.startswith(mark)), None)
    if marked != "utf-16" and encoding is None and b"\0" in data:
        raise InvalidDocument(name, "is a binary file", "name a text, Markdown, HTML or PDF file")
    try:
        text = data.decode(marked or encoding or "utf-8")
    except LookupError:
        raise Invalid("encoding", f"is {encoding!r}", "name one such as latin-1 or cp1252") from None
    except (UnicodeError, ValueError) as error:
        problem = f"is not in {(marked or encoding or 'utf-8').upper()}"
        raise InvalidDocument(name, problem, "name its encoding, such as latin-1, or convert it") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(" ", text)  # one for one, so that places stay what they are


def _paragraphs(text: str, start: int = 0) -> Iterator[Block]:
    for found in _PARAGRAPH.finditer(text, start):
        yield Block(found.start(), found.end())


def _markdown_blocks(text: str) -> Iterator[Block]:
    """Yield the headings and other blocks of a Markdown text."""
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingExtra("reading Markdown", "documents") from error
    front = _FRONT_MATTER.match(text)
    body, done = 0 if front is None else front.end(), 0
    starts = [*accumulate((len(line) + 1 for line in text[body:].split("\n")), initial=body)]
    parser, tokens = MarkdownIt("commonmark").enable("table"), list[Any]()
    parser.block.parse(text[body:], parser, {}, tokens)  # blocks alone: what is inside of them stays as it is
    for number, token in enumerate(tokens):
        if token.level == 0 and token.map is not None and token.nesting != -1:
            start, end = starts[token.map[0]], min(starts[token.map[1]], len(text))
            end = start + len(text[start:end].rstrip())
            yield from _gap(text, done, start)
            done = end
            if token.type == "heading_open":
                yield Block(start, end, int(token.tag[1]), tokens[number + 1].content.strip())
            elif text[start:end].strip():
                yield Block(start, end)
    yield from _gap(text, done, len(text))


def _gap(text: str, start: int, end: int) -> Iterator[Block]:
    """Yield what no block has: front matter, and the definitions of links."""
    gap = text[start:end]
    if gap.strip():
        yield Block(start + len(gap) - len(gap.lstrip()), start + len(gap.rstrip()))


def _join_blocks(read: Iterable[Any]) -> tuple[str, tuple[Block, ...]]:
    """Return the text of blocks, with a line between them, and their places in it."""
    texts, blocks, start = list[str](), list[Block](), 0
    for content, level, page in read:
        text = _CONTROL.sub(" ", content)
        texts.append(text)
        blocks.append(Block(start, start + len(text), level, text if level else "", page))
        start += len(text) + 2
    return "\n\n".join(texts), tuple(blocks)


def _read_in_process(name: str, form: str, data: bytes, seconds: int) -> list[Any]:
    """Return the blocks of a file, read in a process of its own."""
    if not sys.executable:
        raise InvalidDocument(name, "cannot be read without a Python to run", "add its text")
    seconds += len(data) >> 20
    head = {
        "format": form,
        "memory": READ_MEMORY_MB << 20,
        "seconds": seconds,
        "packages": _package_folders("omoide", "pypdf" if form == "pdf" else "selectolax", "msgspec"),
    }
    command = [sys.executable, "-I", "-S", str(Path(worker.__file__))]
    environment = {variable: os.environ[variable] for variable in _ENVIRONMENT if variable in os.environ}
    try:
        done = subprocess.run(
            command,
            check=False,
            input=msgspec.json.encode(head) + b"\n" + data,
            capture_output=True,
            timeout=2 * seconds,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise InvalidDocument(name, "takes too long to read", "simplify it, or save its text") from None
    except OSError as error:
        raise InvalidDocument(name, f"could not be read ({error})", "try again") from error
    if done.returncode == worker.UNREADABLE:
        complaint = msgspec.json.decode(done.stdout)
        raise InvalidDocument(name, complaint["problem"], complaint["remedy"])
    if done.returncode == worker.OUT_OF_MEMORY:
        raise InvalidDocument(name, "needs too much memory to read", "simplify it, or save its text")
    if done.returncode != 0:
        problem = f"takes too long to read, or ended its reader ({done.returncode})"
        raise InvalidDocument(name, problem, "simplify it, or save its text")
    blocks: list[Any] = msgspec.json.decode(done.stdout)
    return blocks


def _package_folders(*packages: str) -> list[str]:
    """Return the folders from which the worker imports packages."""
    folders = []
    for package in packages:
        spec = find_spec(package)
        if spec is None or not spec.origin:
            raise MissingExtra("reading HTML and PDF", "documents")
        folders.append(str(Path(spec.origin).parent.parent))
    return [*dict.fromkeys(folders)]
