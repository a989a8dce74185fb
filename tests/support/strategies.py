"""Hypothesis strategies for data that can be stored, tags of the codec included."""

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

TAGS = ("$map", "$set", "$datetime", "$bytes", "$Space", "$Memory", "$unknown", "$")

Anything = st.SearchStrategy[Any]

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
names = text.filter(str.strip)
keys = st.one_of(text, st.sampled_from(("id", *TAGS)))
integers = st.integers(-(2**63), 2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
zones = st.none() | st.builds(lambda s: timezone(timedelta(seconds=s)), st.integers(-86_399, 86_399))
moments: st.SearchStrategy[datetime] = st.datetimes(timezones=zones)


def _containers(inner: Anything) -> Anything:
    lookalikes = st.dictionaries(st.sampled_from(TAGS), inner, min_size=1, max_size=1)
    return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | lookalikes


def _members(inner: Anything) -> Anything:
    return st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3)


json_scalars: Anything = st.none() | st.booleans() | integers | floats | text
json_data: Anything = st.recursive(json_scalars, _containers, max_leaves=12)

scalars: Anything = json_scalars | moments | st.binary(max_size=8)
hashables: Anything = st.recursive(scalars, _members, max_leaves=6)
sets: Anything = st.sets(hashables, max_size=4)
data: Anything = st.recursive(scalars | sets, _containers, max_leaves=12)

maps: st.SearchStrategy[dict[str, Any]] = st.dictionaries(keys, data, max_size=4)
lists: st.SearchStrategy[list[Any]] = st.lists(data, max_size=4)


def scramble(value: object) -> None:
    """Change everything that can be changed in plain data, as a careless owner would."""
    match value:
        case dict():
            for item in value.values():
                scramble(item)
            value.clear()
            value["scrambled"] = True
        case list():
            for item in value:
                scramble(item)
            value[:] = ["scrambled"]
        case set():
            value.add("scrambled")
        case _:
            pass
