"""Measure the quality of recall on data sets of conversations.

Every turn is written into a store, every question is recalled, and the ranks of the turns that answer it
give the metrics. No language model takes part. `datasets` reads the data, `runner` runs the evaluation and
formats the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.eval.datasets import Dataset, load_jsonl, load_locomo
    from omoide.eval.runner import METRICS, QuestionResult, evaluate, measure

__all__ = ["METRICS", "Dataset", "QuestionResult", "evaluate", "load_jsonl", "load_locomo", "measure"]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "datasets": ("Dataset", "load_jsonl", "load_locomo"),
        "runner": ("METRICS", "QuestionResult", "evaluate", "measure"),
    },
)
