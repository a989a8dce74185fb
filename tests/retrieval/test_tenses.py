"""Tests of the tense of queries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.retrieval.queries import parse_query, tense_of


@pytest.mark.parametrize(
    ("text", "tense"),
    [
        ("Where do I live now?", "current"),
        ("Where does Ann currently live?", "current"),
        ("What is the latest version?", "current"),
        ("What is my most recent job?", "current"),
        ("Which phone do I have these days?", "current"),
        ("Do I still work at Acme?", "current"),
        ("What is my current address?", "current"),
        ("What's today's plan?", "current"),
        ("Who is my doctor at the moment?", "current"),
        ("As of May, who leads the team?", "current"),
        ("Wo wohne ich jetzt?", "current"),
        ("Was ist meine aktuelle Adresse?", "current"),
        ("Où est-ce que j'habite maintenant ?", "current"),
        ("Quelle est mon adresse actuelle ?", "current"),
        ("¿Dónde vivo ahora?", "current"),
        ("¿Cuál es mi trabajo actual?", "current"),
        ("現在の住所は?", "current"),
        ("Arbeite ich immer noch bei Acme?", "current"),
        ("newest phone", "current"),
        ("Where did I live before Paris?", "past"),
        ("Where did I use to live?", "past"),
        ("What car did I used to drive?", "past"),
        ("What was the plan originally?", "past"),
        ("What did I think at first?", "past"),
        ("What was the first city I lived in?", "past"),
        ("Where did I work previously?", "past"),
        ("What was my old address?", "past"),
        ("Who was my former boss?", "past"),
        ("What was the initial budget?", "past"),
        ("Which database did we use before Postgres?", "past"),
        ("What was my job back then?", "past"),
        ("What did I use before?", "past"),
        ("Wo habe ich früher gewohnt?", "past"),
        ("Was war meine alte Adresse?", "past"),
        ("Où habitais-je avant Paris ?", "past"),
        ("Quelle était mon ancienne adresse ?", "past"),
        ("¿Dónde vivía antes?", "past"),
        ("¿Cuál era mi antigua dirección?", "past"),
        ("What was my previous phone?", "past"),
        ("Where did I live before I moved to where I live now?", "past"),
        ("When did Nate win his first tournament?", "past"),
        ("Wo wohnte ich ursprünglich?", "past"),
        ("What was our original deadline?", "past"),
        ("以前どこに住んでいましたか", "past"),
        ("What is my first name?", ""),
        ("What is my last name?", ""),
        ("Where is the first aid kit?", ""),
        ("What did I do before lunch?", ""),
        ("What did I do before the meeting?", ""),
        ("How old am I?", ""),
        ("What is my dog called?", ""),
        ("What happened last week?", ""),
        ("Who won first place?", ""),
        ("I am used to noise", ""),
        ("Have I been to Rome before?", ""),
        ("What was due before Friday?", ""),
        ("What did we decide the previous week?", ""),
        ("What's the actual cost?", ""),
        ("By Friday at the latest?", ""),
        ("What is knowledge?", ""),
        ("He is two years old", ""),
        ("from now on be brief", ""),
        ("now and then", ""),
        ("What is the first quarter result?", ""),
        ("What happened before 5 June?", ""),
        ("the first five results", ""),
        ("What is my middle initial?", ""),
        ("Was habe ich gestern gemacht?", ""),
        ("¿Qué hice ayer?", ""),
    ],
)
def test_the_tense_of_a_question(text: str, tense: str) -> None:
    """A question asks for the present state, for an earlier one, or for neither."""
    assert parse_query(text, now=1_700_000_000_000).tense == tense


@given(st.text(max_size=200))
def test_any_text_has_a_tense(text: str) -> None:
    """Nothing raises, whatever is asked."""
    assert tense_of(f"{text} where I used to live") in ("past", "current", "")
