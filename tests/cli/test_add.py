"""The add command: several files, those that cannot be read, and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.documents import GUIDE, make_pdf

from omoide.documents import writer

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.fixture
def files(home: Path) -> Path:
    """A folder with documents of each format, and some that cannot be read."""
    (home / "guide.md").write_text(GUIDE)
    (home / "page.html").write_text("<h1>Tea</h1><p>The tea is green.")
    (home / "report.pdf").write_bytes(make_pdf([["Sales were up by 7 %."]]))
    (home / "logo.png").write_bytes(b"\x89PNG\0")
    (home / "locked.pdf").write_bytes(make_pdf([["Secret."]], password="x"))
    return home


@pytest.mark.usefixtures("files")
def test_documents_are_added_and_found(omoide: Run, answer: Answer) -> None:
    """One line for each file; the passages are memories of the agent that writes."""
    told = omoide("add", "guide.md", "page.html", "report.pdf").stdout.splitlines()
    assert [line.partition("  doc_")[0] for line in told] == [
        "guide.md  stored, 3 passages",
        "page.html  stored, 1 passage",
        "report.pdf  stored, 1 passage",
    ]
    (hit, *_) = answer("recall", "how much were sales up?")["hits"]
    assert hit["entry"]["metadata"]["page"] == 1
    assert hit["entry"]["metadata"]["path"].endswith("/report.pdf")
    assert {entry["agent_id"] for entry in answer("list")["entries"]} == {"default"}


@pytest.mark.usefixtures("files")
def test_a_batch_goes_on_and_says_at_the_end_what_failed(omoide: Run, answer: Answer) -> None:
    """Each failure names its file and the remedy; the code is that of the worst."""
    done = omoide("add", "logo.png", "none.md", "locked.pdf", "guide.md", code=2)
    assert done.stdout.startswith("guide.md  stored, 3 passages")
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["not added"] * 3
    assert "logo.png is a binary file; name a text" in lines[0]
    assert "file 'none.md' does not exist; check the path" in lines[1]
    assert "locked.pdf is encrypted; save it without a password" in lines[2]
    said = answer("add", "none.md", "guide.md", code=1)
    assert [one["outcome"] for one in said["documents"]] == ["unchanged"]
    assert [one["file"] for one in said["failed"]] == ["none.md"]


@pytest.mark.usefixtures("files")
def test_a_document_is_added_again(omoide: Run, home: Path) -> None:
    """What became of its passages is told; a name of its own is another document."""
    omoide("add", "guide.md")
    assert "unchanged, 3 passages" in omoide("add", "guide.md").stdout
    (home / "guide.md").write_text(GUIDE.replace("8765", "80") + "\n## More\n\nAnd more.\n")
    assert "updated, 4 passages, 1 new, 1 changed" in omoide("add", "guide.md").stdout
    assert "stored, 4 passages" in omoide("add", "guide.md", "--name", "handbook", "--tag", "own").stdout
    assert "for several files" in omoide("add", "guide.md", "page.html", "--name", "x", code=2).stderr


@pytest.mark.usefixtures("files")
def test_an_interruption_leaves_each_file_whole_or_absent(
    omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the second file is written: the first is there, and nothing of the second."""
    written = []
    requests = writer._Plan.requests

    def interrupted(*arguments: Any) -> Any:
        written.append(1)
        for number, request in enumerate(requests(*arguments)):
            if len(written) == 2 and number == 1:
                raise KeyboardInterrupt
            yield request

    with monkeypatch.context() as patched:
        patched.setattr(writer._Plan, "requests", interrupted)
        stopped = omoide("add", "page.html", "guide.md", code=130)
    assert "stopped" in stopped.stderr
    (head,) = answer("list", "--tag", "document")["entries"]
    assert head["metadata"]["format"] == "html"
    assert len(answer("list")["entries"]) == 2
    assert "guide.md  stored" in omoide("add", "page.html", "guide.md").stdout


def test_a_killed_process_leaves_each_file_whole_or_absent(home: Path, answer: Answer) -> None:
    """However far it came when it was killed: of each file all passages are there, or none."""
    count = 40
    for number in range(count):
        sections = "".join(f"## Part {part}\n\nText {number} of {part}.\n\n" for part in range(30))
        (home / f"f{number:02}.md").write_text(f"# File\n\n{sections}")
    command = [sys.executable, "-m", "omoide", "add", *sorted(path.name for path in home.glob("*.md"))]
    with subprocess.Popen(command, cwd=home, env={**os.environ}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    entries = answer("list", "--limit", "2000")["entries"]
    heads = {entry["id"] for entry in entries if "document" in entry["tags"]}
    assert 5 <= len(heads) <= count
    passages = [entry["tags"][0] for entry in entries if entry["id"] not in heads]
    assert {head: passages.count(head) for head in heads} == dict.fromkeys(heads, 30)
    assert len(passages) == 30 * len(heads)
