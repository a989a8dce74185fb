"""Tests of the estimate of token counts."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.errors import MissingExtra, NotFound
from omoide.retrieval import estimate_tokens, token_counter
from omoide.retrieval.text import ENCODINGS

ENGLISH = {
    "prose": (
        "The ferry left the harbour a little after seven, later than the timetable promised and earlier than"
        " anyone had feared. On deck an old man was feeding crumbs to a gull that had clearly done"
        " this before."
        " Nobody spoke much. When the fog lifted, the island lay in front of us like something that had been"
        " forgotten on a table: a white house, three trees, and a path that climbed between them and stopped."
    ),
    "chat": (
        "Anna: hey! did you get my message about saturday?\n"
        "Ben: yes, sorry, I've been so busy with the move. What time were you thinking?\n"
        "Anna: maybe around 4? Lily's class ends at 3:30 and then we could all go to the lake together\n"
        "Ben: sounds great, I'll bring the kids and some snacks. Do you still have our blue cooler?\n"
        "Anna: I do, it's in the garage. Can't wait, it's been way too long!!\n"
    ),
    "coding": (
        "I looked into the failing build. The migration runs twice because both workers start at"
        " the same time"
        " and neither of them takes the lock. We decided to use an advisory lock in Postgres, since it is"
        " released when the connection drops. Could you review the change in db/migrate.py before Thursday?"
        " There is one open question: what happens if the first worker dies halfway through?"
    ),
    "documentation": (
        "## Settings\n\n"
        "Every option can be given in the file `settings.toml`, as an environment variable, or as"
        " an argument;"
        " the last one wins.\n\n"
        "- **timeout**: how long a request may take, in seconds. The default is 30.\n"
        "- **retries**: how often a request is tried again. Set it to 0 to turn this off.\n"
        "- **log_level**: one of `debug`, `info`, `warning` or `error`.\n\n"
        "Changes take effect when the service is restarted.\n"
    ),
    "comments": (
        "# The cache has to be filled before the first request comes in: a cold cache makes the"
        " health check\n"
        "# time out, and the balancer then takes the instance away again.\n"
        "# Entries are removed by age and not by use, because most of them are read exactly once.\n"
        "# See the note on expiry below for what happens to entries that are written while this runs.\n"
    ),
    "memories": (
        '- 2026-03-14 (fact): "The user prefers short answers."\n'
        '- 2026-03-15 (decision, confidence 0.8): "Use Postgres for the catalogue."\n'
        '- 2026-03-15 (risk): "The nightly export may lock the orders table."\n'
        '- 2026-04-02 (lesson_learned): "Always run the checks against a copy of the data first."\n'
    ),
    "letter": (
        "Dear Ms. Alvarez,\n\nthank you for your letter of 3 May. We have read your proposal with"
        " great interest"
        " and would like to invite you to our office in Lisbon to talk about the details. Please let us know"
        " whether one of the following dates would suit you: 19 May, 21 May or 26 May.\n\nYours sincerely,\n"
        "Thomas Reed\n"
    ),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_estimate_is_near_for_every_kind_of_english(encoding: str) -> None:
    """Within 15 % of either encoding for each text, and within 7 % for all together."""
    count = token_counter(encoding)
    off = {name: estimate_tokens(text) / count(text) - 1 for name, text in ENGLISH.items()}
    assert {name: error for name, error in off.items() if abs(error) > 0.15} == {}
    together = sum(map(estimate_tokens, ENGLISH.values())) / sum(map(count, ENGLISH.values())) - 1
    assert abs(together) < 0.07


@pytest.mark.parametrize(
    "text",
    [
        "Мы решили перенести базу данных на новый сервер, потому что запросы стали медленными.",
        "昨天我们决定把数据库迁移到新的服务器因为查询变得越来越慢。",
        "昨日、クエリが遅くなっていたので、データベースを新しいサーバーに移しました。",
        "어제 우리는 데이터베이스를 새 서버로 옮기기로 결정했습니다.",
        "قررنا أمس نقل قاعدة البيانات إلى خادم جديد لأن الاستعلامات أصبحت أبطأ.",
        "कल हमने डेटाबेस को नए सर्वर पर ले जाने का फैसला किया।",
        "Nous avons décidé de déplacer la base de données, car les requêtes étaient très lentes.",
        "🎉🚀😀👍🔥💡🙏😂🤖🎂",
    ],
)
def test_other_scripts_are_not_taken_for_english(text: str) -> None:
    """The estimate is at least what newer models count, and no more than a few times that."""
    assert 0.95 * token_counter()(text) <= estimate_tokens(text) <= 4 * token_counter()(text)
    assert estimate_tokens(text) >= 0.7 * token_counter("cl100k_base")(text)


def test_nothing_has_no_tokens_and_anything_has_some() -> None:
    """A space or a letter is one."""
    assert estimate_tokens("") == 0
    assert [estimate_tokens(text) for text in ("a", "I", " ", "\n", "7", ".")] == [1] * 6


@given(st.text(), st.text())
def test_texts_add_up(first: str, second: str) -> None:
    """More text never has fewer tokens, and two together about as many as both alone."""
    together = estimate_tokens(first + second)
    assert max(estimate_tokens(first), estimate_tokens(second)) - 1 <= together
    assert together <= estimate_tokens(first) + estimate_tokens(second)


def test_text_that_cannot_be_written_is_counted_all_the_same() -> None:
    """A lone surrogate is one sign."""
    assert estimate_tokens("\ud800") == 1


def test_an_exact_count_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is not there by default, and an encoding that exists."""
    with pytest.raises(NotFound, match="use one of o200k_base, cl100k_base"):
        token_counter("latin-1")
    token_counter.cache_clear()
    monkeypatch.setitem(sys.modules, "splintr", None)
    with pytest.raises(MissingExtra, match=r"counting tokens exactly .* pip install 'omoide\[tokens\]'"):
        token_counter()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_exact_count_is_exact(encoding: str) -> None:
    """As many as the encoding has pieces."""
    assert token_counter(encoding)("hello world") == 2
    assert token_counter(encoding)("") == 0


@pytest.mark.parametrize(
    ("text", "newer", "older"),
    [
        ("Antidisestablishmentarianism, naïveté and 3.14159!", 17, 17),
        ("昨日、データベースを移しました。", 10, 15),
        ("a  b\n\n\tc\r\n", 6, 6),
        ("<|endoftext|>", 7, 7),
        ("🎉🙏", 3, 6),
    ],
)
def test_known_counts_of_both_encodings(text: str, newer: int, older: int) -> None:
    """The published encodings have these counts; what spells a control token is counted as text."""
    assert (token_counter("o200k_base")(text), token_counter("cl100k_base")(text)) == (newer, older)
