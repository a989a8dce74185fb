"""Evaluate recall on all data sets, without a store.

    python -m training.evaluate --embedder auto --locomo locomo10.json --json figures.json

Questions go through the recall of the package, so every figure is that of the product: R@10, hit@1 and MRR by
set and kind; the order of statements that replace one another, alone and among other facts; statements that
are both true, and questions about what used to be; and how well relevance tells questions that have an answer
from those that have none. The dialogues are those that the encoder was not trained on. Intervals are 95 %
bootstrap intervals over questions.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from omoide.core.entry import DEFAULT_MIN_RELEVANCE
from omoide.eval.runner import SESSION_LIMIT, first_occurrences, measure
from training import metrics, sets
from training.index import Index, IndexedConversation
from training.metrics import Figure
from training.sets import Conversation, Question

LIMIT = 20
"""Hits per question; MRR is that of the first 20."""
SHOWN = 10
"""Hits by which questions without an answer are told from the others."""
FIRST = 5
"""Hits among which the newer statement must be."""
OTHERS = (0, 100, 5_000)
"""Numbers of plain facts beside a pair of statements."""
ANSWERABLE = ("1", "2", "3", "4")
"""Categories of LoCoMo with an answer; category 5 asks about the other person."""


class Answer(NamedTuple):
    """What recall returned for a question, best first."""

    question: Question
    kind: str
    """The kind of the conversation."""
    ids: tuple[str, ...]
    relevance: tuple[float | None, ...]
    newer: Mapping[str, str]
    """The newer hit for each hit that is said to be outdated."""

    def rank_of(self, ids: Sequence[str]) -> float:
        """Return the rank of the first of these turns, from 1; infinite if none was found."""
        return next((rank for rank, id in enumerate(self.ids, 1) if id in ids), float("inf"))

    @property
    def has_order(self) -> bool:
        """True if the turn that is asked for was found, and stands above its rivals."""
        rank = self.rank_of(self.question.gold)
        return rank < float("inf") and rank < self.rank_of(self.question.rivals)

    @property
    def best_relevance(self) -> float:
        return max((value for value in self.relevance[:SHOWN] if value is not None), default=0.0)

    @property
    def answer_relevance(self) -> float | None:
        """The relevance of the best turn that answers, among the hits; None if none was found."""
        found = [
            value
            for id, value in zip(self.ids[:SHOWN], self.relevance[:SHOWN], strict=True)
            if id in self.question.gold and value is not None
        ]
        return max(found, default=None)


Figures = dict[str, Figure]
Table = dict[str, Figures]
"""Figures by name, for each row of a table."""
Section = Callable[[Index, argparse.Namespace], Table]


def ask(scope: IndexedConversation, question: Question, limit: int = LIMIT) -> Answer:
    """Answer one question."""
    hits = scope.answer(question.text, limit).hits
    return Answer(
        question,
        scope.conversation.kind,
        tuple(hit.entry.id for hit in hits),
        tuple(hit.relevance for hit in hits),
        {hit.entry.id: hit.newer for hit in hits if hit.newer is not None},
    )


def ask_all(index: Index, conversations: Sequence[Conversation]) -> list[Answer]:
    """Answer every question of some conversations."""
    return [
        ask(one, question) for one in index.add_all(conversations) for question in one.conversation.questions
    ]


def recall_figures(answers: Sequence[Answer]) -> Figures:
    """Return R@10, hit@1 and MRR of the questions that have an answer."""
    measured = [measure(one.ids, one.question.gold) for one in answers if one.question.gold]
    return {
        "R@10": metrics.mean([one["R@10"] for one in measured]),
        "hit@1": metrics.mean([float(one["MRR"] == 1) for one in measured]),
        "MRR": metrics.mean([one["MRR"] for one in measured]),
    }


def recall_table(name: str, answers: Sequence[Answer]) -> Table:
    """Return the figures of a set: of all questions, by kind of conversation, and by kind of question."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for one in answers:
        if one.question.gold:
            groups[name].append(one)
            groups[f"{name}, {one.kind}"].append(one)
            groups[f"{name}, {one.question.kind} questions"].append(one)
    whole = len(groups[name])
    return {
        label: recall_figures(group)
        for label, group in sorted(groups.items())
        if label == name or len(group) < whole
    }


def dialogues(index: Index, options: argparse.Namespace) -> Table:
    """R@10, hit@1 and MRR on dialogues, by kind."""
    return recall_table("dialogues", ask_all(index, sets.load_dialogues(held_out=True)))


def long_scopes(index: Index, options: argparse.Namespace) -> Table:
    """R@10, hit@1 and MRR where several dialogues share a scope."""
    return recall_table("joined", ask_all(index, sets.join_by_kind(sets.load_dialogues(held_out=True))))


def facts(index: Index, options: argparse.Namespace) -> Table:
    """R@10, hit@1 and MRR of paraphrased questions about plain facts, among 500 and among 5,000."""
    return {
        f"facts among {count}": recall_figures(ask_all(index, sets.load_facts(count)))
        for count in (500, 5_000)
    }


def personas(index: Index, options: argparse.Namespace) -> Table:
    """R@10, hit@1 and MRR on the facts of personas, by kind of question."""
    return recall_table("personas", ask_all(index, sets.load_personas(held_out=True)))


def code(index: Index, options: argparse.Namespace) -> Table:
    """R@10, hit@1 and MRR on lines of code and logs."""
    return recall_table("code", ask_all(index, sets.load_code()))


def languages(index: Index, options: argparse.Namespace) -> Table:
    """R@10, hit@1 and MRR in other languages."""
    return recall_table("languages", ask_all(index, sets.load_languages()))


def locomo(index: Index, options: argparse.Namespace) -> Table:
    """R@10, hit@1 and MRR on LoCoMo: by turn, by session, and with all conversations in one scope."""
    conversations = sets.load_locomo_conversations(options.locomo)
    answers = ask_all(index, conversations)
    known = [one for one in answers if one.question.kind in ANSWERABLE]
    joined = ask_all(index, sets.join_conversations(conversations, len(conversations)))
    return {
        "LoCoMo, categories 1-4": recall_figures(known),
        **recall_table("LoCoMo", answers),
        "LoCoMo, by session": {"R@10": metrics.mean([*_session_recall(index, conversations)])},
        "LoCoMo, in one scope": recall_figures(joined),
    }


def _session_recall(index: Index, conversations: Sequence[Conversation]) -> Iterator[float]:
    for one in index.add_all(conversations):
        sessions = {turn.id: turn.session for turn in one.conversation.turns}
        for question in one.conversation.questions:
            gold = [session for id in question.gold if (session := sessions[id]) is not None]
            ranked = first_occurrences(sessions[id] for id in ask(one, question, SESSION_LIMIT).ids)
            yield measure(ranked, gold)["R@10"]


def updates(index: Index, options: argparse.Namespace) -> Table:
    """Order of statements that replace one another, alone and among other facts."""
    return {
        f"updates, {others} others": {
            f"newer in first {FIRST} and above": metrics.mean(
                [one.has_order and one.rank_of(one.question.gold) <= FIRST for one in answers]
            ),
            f"newer in first {FIRST}": metrics.mean(
                [one.rank_of(one.question.gold) <= FIRST for one in answers]
            ),
            "newer above": metrics.mean([one.has_order for one in answers]),
            "older marked": metrics.mean([_is_marked(one, one.question.rivals) for one in answers]),
        }
        for others in OTHERS
        if (answers := ask_all(index, sets.load_pairs("updates", others)))
    }


def counterexamples(index: Index, options: argparse.Namespace) -> Table:
    """Statements that are both true, of which none is outdated, and questions about what used to be."""
    table: Table = {}
    for others in OTHERS[:-1]:
        both = ask_all(index, sets.load_pairs("both_true", others))
        table[f"both true, {others} others"] = {
            "marked as outdated": metrics.mean(
                [_is_marked(one, (*one.question.gold, *one.question.rivals)) for one in both]
            )
        }
    for others in OTHERS[:-1]:
        past = ask_all(index, sets.load_pairs("used_to_be", others))
        table[f"used to be, {others} others"] = {
            "older above": metrics.mean([one.has_order for one in past]),
            f"older in first {FIRST}": metrics.mean(
                [one.rank_of(one.question.gold) <= FIRST for one in past]
            ),
        }
    return table


def dialogue_updates(index: Index, options: argparse.Namespace) -> Table:
    """Order and marks in dialogues: their labelled update questions, and all other questions."""
    table: Table = {}
    conversations = sets.load_dialogues(held_out=True)
    for name, scopes in (("dialogues", conversations), ("joined", sets.join_by_kind(conversations))):
        answers = ask_all(index, scopes)
        changed = [one for one in answers if one.question.gold and one.question.rivals]
        others = [one for one in answers if one.question.gold and not one.question.rivals]
        found = [(one, id) for one in others for id in one.question.gold if id in one.ids[:SHOWN]]
        table[f"{name}, update questions"] = {
            f"newer in first {FIRST} and above": metrics.mean(
                [one.has_order and one.rank_of(one.question.gold) <= FIRST for one in changed]
            ),
            "newer above": metrics.mean([one.has_order for one in changed]),
            "older marked": metrics.mean([_is_marked(one, one.question.rivals) for one in changed]),
        }
        table[f"{name}, other questions"] = {
            "answers marked as outdated": metrics.mean([id in one.newer for one, id in found])
        }
    return table


def _is_marked(answer: Answer, ids: Sequence[str]) -> bool:
    return any(id in answer.newer for id in ids)


def abstention(index: Index, options: argparse.Namespace) -> Table:
    """Relevance of the best hit: questions with an answer against questions without one."""
    conversations = sets.load_dialogues(held_out=True)
    answers = ask_all(index, conversations)
    foreign = [
        ask(scope, question)
        for scope, questions in zip(
            index.add_all(conversations), sets.foreign_questions(conversations), strict=True
        )
        for question in questions
    ]
    inside = [one for one in answers if not one.question.gold]
    known = [one for one in answers if one.question.gold]
    if all(value is None for one in known for value in one.relevance):
        return {}  # the embedder has no calibration
    table = {
        "unanswerable": abstention_figures(known, inside),
        "of another conversation": abstention_figures(known, foreign),
        "both": abstention_figures(known, [*inside, *foreign]),
    }
    for kind in sets.LONG_SIZES:
        own, other = ([one for one in group if one.kind == kind] for group in (known, [*inside, *foreign]))
        table[f"both, {kind}"] = abstention_figures(own, other)
    about_people = ask_all(index, sets.load_personas(held_out=True))
    table["personas"] = abstention_figures(
        [one for one in about_people if one.question.gold],
        [one for one in about_people if not one.question.gold],
    )
    about_facts = ask_all(index, sets.load_facts(500))
    table["facts among 500"] = abstention_figures(
        [one for one in about_facts if one.question.gold],
        [one for one in about_facts if not one.question.gold],
    )
    if options.locomo is not None:
        asked = ask_all(index, sets.load_locomo_conversations(options.locomo))
        table["LoCoMo, category 5"] = abstention_figures(
            [one for one in asked if one.question.kind in ANSWERABLE],
            [one for one in asked if one.question.kind not in ANSWERABLE],
        )
    return table


def abstention_figures(known: Sequence[Answer], unknown: Sequence[Answer]) -> Figures:
    """Return how well relevance tells questions with an answer from others.

    `lost` is the share of questions whose answer was found but lies below the default threshold, `recognised`
    the share of the others for which every hit does.
    """
    found = [value for one in known if (value := one.answer_relevance) is not None]
    return {
        "AUC": metrics.auc_figure(
            [one.best_relevance for one in known], [one.best_relevance for one in unknown]
        ),
        "lost": metrics.mean([value < DEFAULT_MIN_RELEVANCE for value in found]),
        "recognised": metrics.mean([one.best_relevance < DEFAULT_MIN_RELEVANCE for one in unknown]),
    }


SECTIONS: dict[str, Section] = {
    "dialogues": dialogues,
    "joined": long_scopes,
    "facts": facts,
    "personas": personas,
    "code": code,
    "languages": languages,
    "locomo": locomo,
    "updates": updates,
    "counterexamples": counterexamples,
    "dialogue-updates": dialogue_updates,
    "abstention": abstention,
}


def format_table(title: str, table: Table) -> str:
    """Return a table as text, one line for each row."""
    lines = [title]
    for label, figures in table.items():
        cells = "   ".join(f"{name} {figure}" for name, figure in figures.items())
        lines.append(f"  {label:<40} {cells}   n={max(one.n for one in figures.values())}")
    return "\n".join(lines)


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(
        prog="training.evaluate", description="Evaluate recall on all data sets."
    )
    parser.add_argument("--embedder", default="auto", help="name of an embedder, or none")
    parser.add_argument("--locomo", type=Path, help="the file of LoCoMo; left out without it")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="parts of the evaluation")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    index = Index.of(options.embedder)
    print(f"embedder {index.name or 'none'}; in per cent, with 95 % intervals", flush=True)
    report: dict[str, Table] = {}
    for name in options.only or SECTIONS:
        if name == "locomo" and options.locomo is None:
            continue
        report[name] = SECTIONS[name](index, options)
        print("\n" + format_table((SECTIONS[name].__doc__ or name).strip(), report[name]), flush=True)
    if options.json is not None:
        named = {
            part: {
                label: {name: figure._asdict() for name, figure in figures.items()}
                for label, figures in table.items()
            }
            for part, table in report.items()
        }
        content = msgspec.json.encode({"embedder": index.name, "figures": named})
        options.json.write_bytes(msgspec.json.format(content) + b"\n")


if __name__ == "__main__":
    main()
