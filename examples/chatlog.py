"""Import a chat log, and recall who said what, and when.

A chat log becomes memory, one entry a message. Because each entry says where in which conversation it stands
and who spoke, recall can use what was said around it, the speaker, and times such as "last week".
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from omoide import Entry, RecallResult, Scope, WriteRequest, blocking, open_store
from omoide.core import MessageRef

LOG = """
2026-05-04 09:10 Maria: I finally moved. The new flat is in Lisbon, on the fourth floor.
2026-05-04 09:11 Ben: Congratulations! Is there a lift?
2026-05-04 09:12 Maria: No, so the piano stayed with my sister.
2026-05-11 18:30 Ben: My bakery opens on Saturday. Will you come?
2026-05-11 18:34 Maria: Of course. I will bring Tomas along.
2026-05-11 18:35 Ben: Does he still not eat gluten?
2026-05-11 18:36 Maria: Not a crumb.
2026-05-19 20:02 Ben: We sold out by noon every day.
2026-05-19 20:05 Maria: I adopted a dog from the shelter.
2026-05-19 20:06 Ben: What is it called?
2026-05-19 20:07 Maria: Pixel. She is a whippet.
2026-05-24 11:45 Maria: Pixel ate my passport, so the trip to Oslo is off.
"""
ASKED_AT = datetime(2026, 5, 27, 12, tzinfo=UTC)
QUESTIONS = [
    "Where is Maria's new flat?",
    "What kind of dog does Maria have?",
    "What did Ben sell last week?",
    "Why is the trip to Oslo off?",
    "Who won the chess championship?",
]
SCOPE = Scope(agent_id="diary")


class Answered(NamedTuple):
    """What the log says to each question."""

    kept: int
    answers: dict[str, RecallResult]


def millis(moment: datetime) -> int:
    """Times are integer milliseconds."""
    return int(moment.timestamp() * 1000)


def read(log: str) -> list[Entry]:
    """Each line as an entry that knows its place in the conversation."""
    entries = []
    for seq, line in enumerate(log.strip().splitlines()):
        day, time, speaker, text = line.split(" ", 3)
        moment = datetime.fromisoformat(f"{day}T{time}+00:00")
        entries.append(
            Entry(
                agent_id=SCOPE.require_agent_id(),
                content=text,
                source="user",
                occurred_at=millis(moment),
                message=MessageRef(thread="maria-and-ben", seq=seq, speaker=speaker.rstrip(":")),
            )
        )
    return entries


def main() -> Answered:
    """Keep the log, and ask."""
    with open_store("memory://", embedder="local") as store:
        receipts = store.sync.write_many([WriteRequest(entry=entry) for entry in read(LOG)])
        answers = {
            question: blocking.recall(store, question, SCOPE, limit=2, at=millis(ASKED_AT))
            for question in QUESTIONS
        }
    for question, result in answers.items():
        print(question, "(nothing matches well)" if result.weak else "")
        for hit in result.hits:
            speaker = hit.entry.message.speaker if hit.entry.message else "somebody"
            print(f"  {speaker}: {hit.entry.content}")
            print(f"    {hit.why}")
    return Answered(len(receipts), answers)


if __name__ == "__main__":
    main()
