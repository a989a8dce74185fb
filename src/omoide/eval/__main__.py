"""Evaluate recall from the command line.

`python -m omoide.eval locomo --data locomo10.json` prints a table, with `--json` one object.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from omoide.errors import OmoideError
from omoide.eval.runner import LOADERS, evaluate, format_table, ignore_progress, to_json, to_jsonl


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the evaluation that the arguments describe, and return the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        report, answers = evaluate(
            options.form,
            options.data,
            store=options.store,
            embedder=options.embedder,
            limit=options.limit,
            conversations=options.limit_conversations,
            questions=options.questions,
            progress=show_progress if sys.stderr.isatty() else ignore_progress,
        )
        if options.details is not None:
            options.details.write_text(to_jsonl(answers), "utf-8")
    except OmoideError as error:
        sys.stderr.write(f"omoide: {error}\n")
        return 2
    sys.stdout.write((to_json(report) if options.json else format_table(report)) + "\n")
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command-line arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m omoide.eval",
        description="Write conversations to a store, recall questions, and measure the ranking of answers.",
    )
    parser.add_argument("form", choices=sorted(LOADERS), help="format of the data file")
    parser.add_argument("--data", required=True, type=Path, help="the data file")
    parser.add_argument("--store", help="URL of the store (default: a temporary SQLite file)")
    parser.add_argument("--embedder", default="auto", help="auto, local, none or provider:model")
    parser.add_argument("--limit", type=int, default=20, help="number of entries to recall (20 or more)")
    parser.add_argument("--limit-conversations", type=int, metavar="N", help="take the first N conversations")
    parser.add_argument("--questions", type=int, metavar="N", help="ask the first N questions of each")
    parser.add_argument("--details", type=Path, metavar="FILE", help="write the ranking per question to FILE")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def show_progress(task: str, done: int, total: int) -> None:
    """Show progress in one line of the terminal."""
    if done == total or done % 20 == 0:
        sys.stderr.write(f"\r\x1b[K{task}: {done}/{total}" + ("\r\x1b[K" if done == total else ""))
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
