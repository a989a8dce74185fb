"""Write the mean vectors of an embedder, of texts and of questions, into its calibration.

    python -m training.center --embedder auto

What all texts have in common tells none of them apart: ranking compares vectors without it, too. The means
are those of turns, facts and questions that the encoder was trained on. This comes before the weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from omoide.retrieval.pool import Array
from omoide.retrieval.queries import parse_query
from omoide.retrieval.relevance import Calibration, LogisticModel, calibration_for
from training import sets
from training.calibrate import CALIBRATIONS, write_calibration
from training.index import CachedEmbedder, Index

EVERY = 4
"""One of so many texts and questions is embedded."""
NOTHING_KNOWN = LogisticModel(0.0, {})


def mean_vectors(embedder: CachedEmbedder) -> tuple[Array, Array]:
    """Return the mean vector of texts, and that of questions as recall embeds them."""
    conversations = [*sets.load_dialogues(held_out=False), *sets.load_personas(held_out=False)]
    texts = [turn.text for one in conversations for turn in one.turns]
    questions = [
        parse_query(question.text, now=0, speakers=sets.speakers_of(one)).encoder_text
        for one in conversations
        for question in one.questions
    ]
    return _mean(embedder, texts, query=False), _mean(embedder, questions, query=True)


def _mean(embedder: CachedEmbedder, texts: Iterable[str], *, query: bool) -> Array:
    chosen = [*dict.fromkeys(texts)][::EVERY]
    mean: Array = np.mean([one.pooled for one in embedder.embed(chosen, query=query)], axis=0)
    return mean


def main() -> None:
    """Embed, and write the means."""
    parser = argparse.ArgumentParser(prog="training.center", description="Write the mean vectors.")
    parser.add_argument("--embedder", default="auto", help="name of an embedder")
    parser.add_argument("--out", type=Path, default=CALIBRATIONS, help="file of the calibrations")
    options = parser.parse_args()
    embedder = Index.of(options.embedder).embedder
    if embedder is None:
        parser.error("words alone have no vectors: name an embedder")
    known = calibration_for(embedder.name) or Calibration(embedder=embedder.name, relevance=NOTHING_KNOWN)
    center = np.concatenate(mean_vectors(embedder)).astype("<f4").tobytes()
    embedder.save()
    write_calibration(msgspec.structs.replace(known, center=center), options.out)
    print(f"wrote the mean vectors of {embedder.name} into {options.out.name}")


if __name__ == "__main__":
    main()
