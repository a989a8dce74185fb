"""Train the encoder of the package on conversations, and write its weights.

    python training/train.py --base FOLDER --out FOLDER

`--base` holds all-MiniLM-L6-v2 in the format of transformers. The training data are the dialogues and the
personas in `data`, without those listed in `held_out.json`. A GPU is used where there is one. Several runs
with different seeds start from the same weights, and what is written is their average.

A batch holds turns of some conversations, and questions about them. Each question should be closer to the
turns that answer it than to all others, by the cosine of pooled vectors, by MaxSim over token vectors that
are projected to 64 dimensions, and by the sum of both (InfoNCE with several positives). Questions that
nothing answers take part, too: a logistic head on both similarities has to tell the turns that answer from
the closest ones that do not, so that similarities mean the same for every question. Pooled vectors are held
near those of the base model, which knows more of the world than conversations tell.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel

HERE = Path(__file__).parent
SETS = ("dialogues", "personas")
CHUNK_WORDS = 80
MAX_TOKENS = 128
POOLED_TEMPERATURE = 0.05
TOKEN_TEMPERATURE = 0.03
AVERAGED_SHARE = 0.4
"""Last share of the steps over which the weights are averaged."""
AVERAGED_EVERY = 8
OTHER_WEIGHT = 0.25
"""Weight of the turns that are closest to a question beside those that answer it."""
RARE_TOKEN = 3.0
"""Inverse document frequency from which a token of a question says what it asks about."""

_NAME_FORMS = (("'s", "my"), ("’s", "my"), ("", "I"))
_PRONOUNS = {
    "she": "I",
    "he": "I",
    "her": "my",
    "his": "my",
    "him": "me",
    "herself": "myself",
    "himself": "myself",
}
_PRONOUN = re.compile(rf"\b({'|'.join(_PRONOUNS)})\b")


@dataclass(frozen=True)
class Question:
    """A question about a conversation."""

    text: str
    spoken: str
    """The question in the first person of the speakers that it names, as recall embeds it."""
    gold: tuple[int, ...]


@dataclass(frozen=True)
class Conversation:
    """A conversation as the encoder sees it."""

    id: str
    chunks: tuple[str, ...]
    """Parts of the turns, as a store embeds them."""
    owners: tuple[int, ...]
    """The turn of each chunk."""
    turn_count: int
    asked: tuple[Question, ...]

    @property
    def questions(self) -> list[Question]:
        """The questions that a turn answers."""
        return [one for one in self.asked if one.gold]

    @property
    def unanswerable(self) -> list[Question]:
        """The questions that none answers."""
        return [one for one in self.asked if not one.gold]


def load_conversations(paths: Sequence[Path]) -> list[Conversation]:
    """Load the conversations of JSON lines."""
    return [to_conversation(json.loads(line)) for path in paths for line in path.open(encoding="utf-8")]


def to_conversation(record: dict[str, Any]) -> Conversation:
    """Build a conversation from a line of the data: a dialogue, or the facts of a persona."""
    if "facts" in record:
        return Conversation(
            id=record["id"],
            chunks=tuple(record["facts"]),
            owners=tuple(range(len(record["facts"]))),
            turn_count=len(record["facts"]),
            asked=tuple(
                Question(one["q"], one["q"], tuple(number - 1 for number in one["gold"]))
                for one in record["questions"]
            ),
        )
    turns, numbers = [], {}
    for session_number, session in enumerate(record["sessions"], 1):
        for turn_number, turn in enumerate(session["turns"], 1):
            numbers[f"{session_number}:{turn_number}"] = len(turns)
            turns.append(turn)
    speakers = {turn["s"] for turn in turns} - {"user", "assistant", "agent"}
    parts = [(at, chunk) for at, turn in enumerate(turns) for chunk in split(turn["t"])]
    return Conversation(
        id=record["id"],
        chunks=tuple(chunk for _, chunk in parts),
        owners=tuple(at for at, _ in parts),
        turn_count=len(turns),
        asked=tuple(
            Question(
                one["q"], to_first_person(one["q"], speakers), tuple(numbers[ref] for ref in one["gold"])
            )
            for one in record["questions"]
        ),
    )


def split(text: str) -> list[str]:
    """Split a text into chunks of about 80 words, between sentences."""
    if len(text.split()) <= CHUNK_WORDS * 1.5:
        return [text]
    chunks: list[str] = []
    size = CHUNK_WORDS + 1
    for sentence in re.findall(r".+?(?:[.!?]+\s+|\n+|$)", text, re.DOTALL):
        length = len(sentence.split())
        if size + length > CHUNK_WORDS:
            chunks.append("")
            size = 0
        chunks[-1] += sentence
        size += length
    return [chunk.strip() for chunk in chunks]


def to_first_person(question: str, speakers: set[str]) -> str:
    """Replace the names of speakers, and pronouns for them, by "I" and "my"."""
    spoken = question
    for name in sorted({part for speaker in speakers for part in (speaker, speaker.split()[0])}, key=len)[
        ::-1
    ]:
        for ending, replacement in _NAME_FORMS:
            spoken = re.sub(rf"\b{re.escape(name)}{ending}(?!\w)", replacement, spoken)
    return spoken if spoken == question else _PRONOUN.sub(lambda match: _PRONOUNS[match.group()], spoken)


class Encoder(nn.Module):
    """The base model, with a projection of its token vectors to 64 dimensions."""

    def __init__(self, base: Path, projection: np.ndarray, device: str) -> None:
        super().__init__()
        self.model = AutoModel.from_pretrained(base, dtype=torch.float32)
        self.projection = nn.Parameter(torch.tensor(projection, dtype=torch.float32))
        self.head = nn.Parameter(torch.tensor([-8.0, 8.0, 6.0, 2.0]))
        """Bias and weights of the similarities in the probability that a turn answers; for training only."""
        self.tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.to(device)

    @property
    def device(self) -> torch.device:
        return self.projection.device

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return pooled vectors, token vectors, the mask of word tokens, and token ids."""
        encodings = self.tokenizer.encode_batch(list(texts))
        width = max(len(one.ids) for one in encodings)
        ids = torch.zeros(len(texts), width, dtype=torch.long)
        for row, one in enumerate(encodings):
            ids[row, : len(one.ids)] = torch.tensor(one.ids)
        # Texts of about equal length go through the model together, so that little of the work is padding.
        lengths = torch.tensor([len(one.ids) for one in encodings])
        order = torch.argsort(lengths)
        size = self.projection.shape[0]
        states = torch.zeros(len(texts), width, size, device=self.device)
        pieces, rows = [], []
        budget = 32_768 if self.device.type == "cuda" else 4096
        start = 0
        while start < len(texts):
            stop = start + 1
            while stop < len(texts) and (stop + 1 - start) * int(lengths[order[stop]]) <= budget:
                stop += 1
            group = order[start:stop]
            longest = int(lengths[group].max())
            part = ids[group, :longest].to(self.device)
            mask = (torch.arange(longest)[None, :] < lengths[group][:, None]).to(self.device)
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                output = self.model(
                    input_ids=part, attention_mask=mask.long(), token_type_ids=torch.zeros_like(part)
                ).last_hidden_state
            pieces.append(F.pad(output.float(), (0, 0, 0, width - longest)))
            rows.append(group)
            start = stop
        inverse = torch.empty(len(texts), dtype=torch.long)
        inverse[torch.cat(rows)] = torch.arange(len(texts))
        states = torch.cat(pieces)[inverse.to(self.device)]
        inside = (torch.arange(width)[None, :] < lengths[:, None]).to(self.device)
        pooled = F.normalize((states * inside[..., None]).sum(1) / inside.sum(1, keepdim=True), dim=-1)
        tokens = F.normalize(states @ self.projection, dim=-1)
        words = inside.clone()  # without the start and end tokens
        words[:, 0] = False
        words[torch.arange(len(texts)), lengths - 1] = False
        return pooled, tokens, words, ids.to(self.device)


def inverse_frequencies(encoder: Encoder, conversations: Sequence[Conversation]) -> Tensor:
    """Return the inverse document frequency of every token of the vocabulary."""
    counts = np.zeros(encoder.tokenizer.get_vocab_size())
    chunks = [chunk for one in conversations for chunk in one.chunks]
    for encoding in encoder.tokenizer.encode_batch(chunks):
        counts[list(set(encoding.ids))] += 1
    weights = np.log(1 + (len(chunks) - counts + 0.5) / (counts + 0.5))
    return torch.tensor(weights, dtype=torch.float32, device=encoder.device)


def max_similarity(
    query: Sequence[Tensor], document: Sequence[Tensor], rarity: Tensor
) -> tuple[Tensor, Tensor]:
    """Compare the tokens of each query with those of each document.

    Returns:
        The weighted mean over the tokens of a query of the closest token of the document, and the lowest
        of these similarities among the rare tokens of the query: what the document says nothing of.
    """
    tokens, words, ids = query
    weights = torch.sqrt(rarity[ids]) * words
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-6)
    asked = tokens[words]  # [t, 64]: the tokens of all queries, one after the other
    document_tokens, document_words = document
    lengths = document_words.sum(1)
    order = torch.argsort(lengths)
    columns = []
    for group in order.split(64):  # of about equal length, so that little of the work is padding
        longest = int(lengths[group].max()) + 1  # the first token is the start
        part = document_tokens[group, :longest]
        similarity = asked @ part.reshape(-1, part.shape[-1]).T
        similarity = similarity.view(len(asked), len(group), longest)
        columns.append(similarity.masked_fill(~document_words[group, :longest], -1).amax(-1))
    best = torch.cat(columns, 1)[:, torch.argsort(order)]
    rows = torch.arange(len(tokens), device=tokens.device)[:, None].expand_as(words)[words]
    scores = torch.zeros(len(tokens), len(order), device=tokens.device)
    scores = scores.index_add(0, rows, best * weights[words][:, None])
    is_rare = rarity[ids[words]] >= RARE_TOKEN
    worst = torch.ones(len(tokens), len(order), device=tokens.device)
    worst = worst.scatter_reduce(
        0, rows[is_rare][:, None].expand(-1, len(order)), best[is_rare], "amin", include_self=True
    )
    return scores, worst


def by_turn(scores: Tensor, owners: Tensor, count: int) -> Tensor:
    """Return the score of each turn: that of its best chunk."""
    best = torch.full((len(scores), count), -1e4, device=scores.device)
    return best.scatter_reduce(1, owners[None, :].expand_as(scores), scores, "amax")


def contrastive_loss(scores: Tensor, positives: Tensor) -> Tensor:
    """Return InfoNCE with several positives: the mean of their negative log shares."""
    logs = F.log_softmax(scores, 1)
    return -((logs * positives).sum(1) / positives.sum(1)).mean()


def answer_logits(head: Tensor, cosine: Tensor, late: Tensor, worst: Tensor) -> Tensor:
    """Return the logits of "this turn answers"."""
    return head[0] + head[1] * cosine + head[2] * late + head[3] * worst


def answer_loss(logits: Tensor, positives: Tensor) -> Tensor:
    """Return the cross entropy of the answers and the closest other turns."""
    closest = logits.detach().masked_fill(positives > 0, -1e4).topk(3, dim=1).indices
    weights = positives / positives.sum(1, keepdim=True).clamp(min=1)
    # The closest turns beside an answer may help to answer as well, so they count less.
    others = torch.where(positives.sum(1, keepdim=True) > 0, OTHER_WEIGHT, 1.0 / 3).expand_as(closest)
    weights = weights.scatter(1, closest, others)
    loss = F.binary_cross_entropy_with_logits(logits, positives, reduction="none")
    return (loss * weights).sum() / len(logits)


def batch_loss(
    encoder: Encoder,
    reference: Encoder,
    batch: Sequence[Conversation],
    options: argparse.Namespace,
    rarity: Tensor,
) -> Tensor:
    """Return the loss of one batch."""
    chunks: list[str] = []
    owners: list[int] = []
    questions: list[str] = []
    gold: list[list[int]] = []
    turn_count = 0
    for one in batch:
        picked = random.sample(one.questions, min(options.per_conversation, len(one.questions)))
        picked += random.sample(one.unanswerable, min(options.unanswerable, len(one.unanswerable)))
        needed = {turn for asked in picked for turn in asked.gold}
        others = [turn for turn in range(one.turn_count) if turn not in needed]
        needed.update(random.sample(others, min(options.turns, len(others))))
        parts = [at for at, owner in enumerate(one.owners) if owner in needed]
        chunks += [one.chunks[at] for at in parts]
        owners += [turn_count + one.owners[at] for at in parts]
        for asked in picked:
            questions.append(asked.spoken if random.random() < 0.85 else asked.text)
            gold.append([turn_count + at for at in asked.gold])
        turn_count += one.turn_count
    pooled, tokens, words, _ = encoder(chunks)
    question_pooled, question_tokens, question_words, question_ids = encoder(questions)
    positives = torch.zeros(len(questions), turn_count, device=encoder.device)
    for row, turns in enumerate(gold):
        positives[row, turns] = 1
    places = torch.tensor(owners, device=encoder.device)
    cosine = by_turn(question_pooled @ pooled.T, places, turn_count)
    late, worst = (
        by_turn(scores, places, turn_count)
        for scores in max_similarity((question_tokens, question_words, question_ids), (tokens, words), rarity)
    )
    loss = options.absolute * answer_loss(answer_logits(encoder.head, cosine, late, worst), positives)
    answered = positives.sum(1) > 0
    positives, cosine = positives[answered], cosine[answered] / POOLED_TEMPERATURE
    late = late[answered] / TOKEN_TEMPERATURE
    loss = loss + contrastive_loss(cosine, positives) + contrastive_loss(late, positives)
    loss = loss + 0.5 * contrastive_loss(cosine + late, positives)
    sample = random.sample(range(len(chunks)), min(options.anchored, len(chunks)))
    with torch.no_grad():
        before = reference([chunks[at] for at in sample])[0]
    return loss + options.anchor * (1 - (pooled[sample] * before).sum(1)).mean()


@torch.no_grad()
def evaluate(encoder: Encoder, data: Mapping[str, Sequence[Conversation]], rarity: Tensor) -> str:
    """Return hit@1 and R@10 by pooled vectors, by token vectors, and by the sum of their z-scores.

    "answerable" is the share of pairs in which an answerable question has a better best turn than another,
    by the logistic head.
    """
    encoder.eval()
    lines = [_evaluate(encoder, name, conversations, rarity) for name, conversations in data.items()]
    encoder.train()
    return "; ".join(lines)


def _evaluate(encoder: Encoder, label: str, conversations: Sequence[Conversation], rarity: Tensor) -> str:
    found: dict[str, list[tuple[float, float]]] = {}
    confidence: dict[bool, list[float]] = {True: [], False: []}
    for one in conversations:
        if not one.questions:
            continue
        pooled, tokens, words, _ = encoder(one.chunks)
        asked = encoder([question.spoken for question in one.asked])
        places = torch.tensor(one.owners, device=encoder.device)
        cosine = by_turn(asked[0] @ pooled.T, places, one.turn_count)
        late, worst = (
            by_turn(scores, places, one.turn_count)
            for scores in max_similarity(asked[1:], (tokens, words), rarity)
        )
        both = standardize(cosine) + standardize(late)
        logits = answer_logits(encoder.head, cosine, late, worst)
        for question, best_logit in zip(one.asked, logits.amax(1).tolist(), strict=True):
            confidence[bool(question.gold)].append(best_logit)
        for name, scores in (("pooled", cosine), ("tokens", late), ("both", both)):
            for question, row in zip(one.asked, scores, strict=True):
                if question.gold:
                    best, gold = row.topk(min(10, one.turn_count)).indices.tolist(), set(question.gold)
                    figures = float(best[0] in gold), len(gold.intersection(best)) / len(gold)
                    found.setdefault(name, []).append(figures)
    higher = np.array(confidence[True])[:, None] > np.array(confidence[False])[None, :]
    means = {name: 100 * np.mean(values, axis=0) for name, values in found.items()}
    figures = [f"{name} {hit:.1f}/{recalled:.1f}" for name, (hit, recalled) in means.items()]
    return f"{label}: {', '.join(figures)}, answerable {100 * higher.mean():.1f}"


def standardize(scores: Tensor) -> Tensor:
    """Return z-scores by row."""
    return (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True).clamp(min=1e-6)


def train(
    encoder: Encoder,
    reference: Encoder,
    data: Sequence[Conversation],
    held_out: Mapping[str, Sequence[Conversation]],
    options: argparse.Namespace,
    report: Callable[[str], None],
) -> None:
    """Train the encoder, and leave the average of its last weights in it."""
    rarity = inverse_frequencies(encoder, data)
    report(f"before: {evaluate(reference, held_out, rarity)}")
    groups = [
        {"params": encoder.model.parameters(), "lr": options.rate},
        {"params": [encoder.projection], "lr": options.rate * 5},
        {"params": [encoder.head], "lr": options.rate * 500},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    steps = options.epochs * sum(len(one.questions) for one in data)
    steps //= options.conversations * options.per_conversation
    warm_up = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / warm_up) * max(0.02, 1 - step / steps)
    )
    states: list[dict[str, Tensor]] = []
    started = time.monotonic()
    encoder.train()
    for step, batch in enumerate(batches(data, options.conversations, steps), 1):
        loss = batch_loss(encoder, reference, batch, options, rarity)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step > steps * (1 - AVERAGED_SHARE) and (steps - step) % AVERAGED_EVERY == 0:
            states.append({name: value.detach().clone() for name, value in encoder.state_dict().items()})
        if step % 10 == 0 or step == 1:
            report(f"step {step}/{steps}: loss {loss.item():.3f}, {time.monotonic() - started:.0f} s")
        if step == steps // 2:
            report(f"half-way: {evaluate(encoder, held_out, rarity)}")
    report(f"last: {evaluate(encoder, held_out, rarity)}")
    encoder.load_state_dict(average(states))
    report(f"averaged: {evaluate(encoder, held_out, rarity)}")


def batches(data: Sequence[Conversation], size: int, count: int) -> Iterator[list[Conversation]]:
    """Yield batches; every conversation comes once before any comes again."""
    waiting: list[Conversation] = []
    for _ in range(count):
        if len(waiting) < size:
            more = list(data)
            random.shuffle(more)
            waiting += more
        yield [waiting.pop(0) for _ in range(size)]


def save(encoder: Encoder, folder: Path) -> None:
    """Write weights of 16 bits and the projection."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.half().cpu().contiguous() for name, value in encoder.model.state_dict().items()}
    save_file(state, folder / "weights.safetensors")
    np.save(folder / "projection.npy", encoder.projection.detach().cpu().numpy())


def main() -> None:
    """Train with the options of the command line, and write the weights."""
    parser = argparse.ArgumentParser(description="Train the encoder.")
    parser.add_argument("--base", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument(
        "--extra", type=Path, action="append", default=[], help="more conversations to train on"
    )
    parser.add_argument("--runs", type=int, default=2, help="how often to train, with other seeds")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--conversations", type=int, default=40, help="conversations in a batch")
    parser.add_argument("--per-conversation", type=int, default=8, help="questions of each")
    parser.add_argument("--unanswerable", type=int, default=4, help="questions without an answer of each")
    parser.add_argument("--turns", type=int, default=60, help="turns of each, beside those that answer")
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--absolute", type=float, default=10.0, help="weight of the logistic head")
    parser.add_argument("--anchor", type=float, default=0.2, help="pull towards the base model")
    parser.add_argument("--anchored", type=int, default=48, help="texts of a batch that are pulled")
    parser.add_argument("--seed", type=int, default=20110311)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    held_out_ids = set(json.loads((HERE / "held_out.json").read_text()))
    data: list[Conversation] = []
    held_out: dict[str, list[Conversation]] = {}
    for name in SETS:
        own = load_conversations([HERE / "data" / f"{name}.jsonl"])
        data += [one for one in own if one.id not in held_out_ids and one.questions]
        held_out[name] = [one for one in own if one.id in held_out_ids]
    data += load_conversations(options.extra)
    projection = np.load(HERE / "projection.npy")
    reference = Encoder(options.base, projection, device).eval()
    report = lambda line: print(line, flush=True)  # noqa: E731
    report(f"{len(data)} conversations to train on, on {device}")
    states = []
    for seed in range(options.seed, options.seed + options.runs):
        torch.manual_seed(seed)
        random.seed(seed)
        encoder = Encoder(options.base, projection, device)
        train(encoder, reference, data, held_out, options, report)
        states.append(encoder.state_dict())
    if options.runs > 1:
        encoder.load_state_dict(average(states))
        report(f"average of runs: {evaluate(encoder, held_out, inverse_frequencies(encoder, data))}")
    save(encoder, options.out)


def average(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of weights that were trained from the same ones."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if value.is_floating_point() else value
        for name, value in states[0].items()
    }


if __name__ == "__main__":
    main()
