"""How well does a store recall a data set?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omoide.core.scope import Scope
from omoide.errors import Invalid
from omoide.eval import dataset, locomo
from omoide.eval.report import summary
from omoide.eval.running import Answer, Progress, ask, write
from omoide.stores.masking import masked
from omoide.stores.opening import open_store

LOADERS = {"locomo": locomo.load, "jsonl": dataset.load}
TEMPORARY = "a temporary file"


def quiet(task: str, done: int, total: int) -> None:
    """Say nothing about progress."""


def evaluate(
    form: str,
    path: str | Path,
    *,
    store: str | None = None,
    embedder: Any = "auto",
    limit: int = 20,
    conversations: int | None = None,
    questions: int | None = None,
    progress: Progress = quiet,
) -> tuple[dict[str, Any], list[Answer]]:
    """The report about a data file (`locomo` or `jsonl`), and what was found for each question.

    Without a `store` a temporary file is used. `conversations` and `questions` keep only the first ones.
    """
    if form not in LOADERS:
        raise Invalid("form", f"is {form!r}", f"use one of {', '.join(LOADERS)}")
    if limit < 20:
        raise Invalid("limit", f"is {limit}", "pass 20 or more, for R@20 looks that far")
    data = dataset.shortened(LOADERS[form](Path(path)), conversations, questions)
    if not any(conversation.questions for conversation in data.conversations):
        raise Invalid(Path(path).name, "holds no question with evidence", "add questions that name turns")
    with opened(store, embedder) as core:
        seconds = write(data, core, progress)
        answers = ask(data, core, limit, progress)
        name = core.stats(Scope(namespace=data.conversations[0].id)).embedder
    settings = {
        "data": data.name,
        "conversations": len(data.conversations),
        "turns": sum(len(conversation.turns) for conversation in data.conversations),
        "questions": len(answers),
        "skipped": data.skipped,
        "embedder": name,
        "store": masked(store) if store else TEMPORARY,
        "limit": limit,
    }
    return summary(answers) | {"write_seconds": round(seconds, 3), "settings": settings}, answers


@contextmanager
def opened(store: str | None, embedder: Any) -> Iterator[Any]:
    """The synchronous core of a store that is closed again, and removed if it was temporary."""
    with TemporaryDirectory(prefix="omoide-eval-") as folder:
        url = store or f"sqlite:///{Path(folder).absolute().as_posix()}/eval.db"
        core = open_store(url, embedder=embedder).sync
        try:
            yield core
        finally:
            core.close()
