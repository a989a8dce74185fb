"""Patterns of signal types: matching and specificity."""

import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Signal
from omoide.core import signal
from omoide.core.definition import matching_routes
from omoide.errors import Invalid, InvalidDefinition, WrongType
from omoide.strategy import Route

segments = st.sampled_from(["a", "b", "c1"])
types = st.lists(segments, min_size=1, max_size=6).map(".".join)
patterns = st.lists(segments | st.sampled_from(["*", "**"]), min_size=1, max_size=5).map(".".join)


def fits(wanted: list[str], segments: list[str]) -> bool:
    """The meaning of a pattern, tried out by brute force."""
    match wanted:
        case []:
            return not segments
        case ["**", *rest]:
            return any(fits(rest, segments[skipped:]) for skipped in range(len(segments) + 1))
        case _:
            return bool(segments) and wanted[0] in ("*", segments[0]) and fits(wanted[1:], segments[1:])


@pytest.mark.parametrize(
    ("wanted", "fitting", "unfitting"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.bb", "A.b"]),
        ("a.*", ["a.b", "a.c"], ["a", "a.b.c", "b.a"]),
        ("*.b", ["a.b"], ["b", "a.a.b"]),
        ("a.**", ["a", "a.b", "a.b.c"], ["b", "ab", "b.a"]),
        ("**.b", ["b", "a.b", "a.a.b"], ["b.a"]),
        ("a.**.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "b", "a.b.c"]),
        ("a.*.**", ["a.b", "a.b.c"], ["a"]),
        ("**", ["a", "a.b"], []),
        ("*", ["a"], ["a.b"]),
    ],
)
def test_exact_one_segment_and_any_number(wanted: str, fitting: list[str], unfitting: list[str]) -> None:
    """A name fits itself, `*` one segment, `**` any number of them, none included."""
    assert [one for one in fitting if not Signal(type=one).matches(wanted)] == []
    assert [one for one in unfitting if Signal(type=one).matches(wanted)] == []


@given(wanted=patterns, signal_type=types)
def test_matching_agrees_with_brute_force(wanted: str, signal_type: str) -> None:
    """The fast match gives the same answer as trying everything."""
    assert signal.matches_pattern(wanted, signal_type) == fits(wanted.split("."), signal_type.split("."))


@given(signal_type=types)
def test_every_type_is_its_own_pattern(signal_type: str) -> None:
    """Exact patterns are types."""
    assert signal.matches_pattern(signal.check_pattern(signal_type), signal_type)


def test_many_open_patterns_are_matched_at_once() -> None:
    """Sixty `**` against sixty segments need no more than a moment, match or not."""
    wanted = ".".join(["**", "a"] * 60)
    assert signal.matches_pattern(wanted, ".".join(["a"] * 60))
    assert not signal.matches_pattern(wanted + ".b", ".".join(["a"] * 119))


@pytest.mark.parametrize("wanted", ["a..b", ".a", "a.", "a*", "a.b*.c", "***", "a.***", ".", ""])
def test_a_pattern_has_whole_segments(wanted: str) -> None:
    """Empty segments and stars inside names are refused, with the forms to use."""
    with pytest.raises(Invalid, match="use ") as raised:
        Signal(type="a").matches(wanted)
    assert raised.value.field == "pattern"


def test_a_pattern_is_text() -> None:
    """Anything else is refused."""
    with pytest.raises(WrongType):
        signal.check_pattern(5)


def test_more_specific_patterns_sort_higher() -> None:
    """More names first, then fewer `**`, then more segments that have to be there."""
    ordered = ["a.b.c", "a.b.*", "a.b.**", "a.*.*", "a.*.**", "a.**", "*.*.*", "**.*", "**"]
    for shuffled in (ordered[::-1], sorted(ordered)):
        assert sorted(shuffled, key=signal.specificity, reverse=True) == ordered


def order(*routes: tuple[str, int]) -> list[int]:
    """The positions of the routes for `a.b`, in the order they run."""
    given_routes = [
        Route(pattern=wanted, target=f"n{at}", priority=prio) for at, (wanted, prio) in enumerate(routes)
    ]
    return [int(route.target[1:]) for route in matching_routes(given_routes, "a.b")]


def test_specificity_comes_before_priority() -> None:
    """An exact route runs before a wild one, however urgent that is."""
    assert order(("**", 100), ("a.*", 50), ("a.b", -100)) == [2, 1, 0]


def test_priority_decides_between_equally_specific_routes() -> None:
    """Of two equal patterns the higher priority runs first."""
    for priorities in permutations([-100, 0, 100]):
        found = order(*(("a.b", priority) for priority in priorities))
        assert [priorities[at] for at in found] == [100, 0, -100]


def test_registration_decides_last() -> None:
    """Of two routes alike in both, the one registered earlier runs first."""
    assert order(("a.*", 5), ("*.b", 5), ("a.*", 5)) == [0, 1, 2]


@given(st.lists(st.tuples(patterns, st.integers(-100, 100)), max_size=8))
def test_routes_run_by_specificity_priority_and_registration(routes: list[tuple[str, int]]) -> None:
    """The order is the same as that of a sort by all three."""
    found = [at for at, (wanted, _) in enumerate(routes) if fits(wanted.split("."), ["a", "b"])]
    expected = sorted(
        found, key=lambda at: (signal.specificity(routes[at][0]), routes[at][1], -at), reverse=True
    )
    assert order(*routes) == expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"pattern": "a..b", "target": "x"}, "pattern"),
        ({"pattern": 5, "target": "x"}, "pattern"),
        ({"pattern": "a", "target": 5}, "target"),
        ({"pattern": "a", "target": ""}, "target"),
        ({"pattern": "a", "target": ()}, "target"),
        ({"pattern": "a", "target": None}, "target"),
        ({"pattern": "a", "target": ("strategy_cmd",)}, "target"),
        ({"pattern": "a", "target": ("act", 5)}, "target"),
        ({"pattern": "a", "target": "x", "priority": 101}, "priority"),
        ({"pattern": "a", "target": "x", "priority": -101}, "priority"),
        ({"pattern": "a", "target": "x", "priority": 1.5}, "priority"),
        ({"pattern": "a", "target": "x", "priority": True}, "priority"),
    ],
)
def test_a_route_made_wrongly_is_refused_by_name(fields: dict[str, object], field: str) -> None:
    """Pattern, target and priority are checked when the route is made."""
    with pytest.raises(Invalid) as raised:
        Route(**fields)  # type: ignore[arg-type]
    assert raised.value.field == field
    assert raised.value.remedy


def test_what_is_no_route_is_refused_with_the_forms_to_use() -> None:
    """A route is a pattern with a target, and perhaps a priority."""
    for like in ("a.b", ("a.b",), ("a.b", "x", "urgent"), 5, None):
        with pytest.raises(InvalidDefinition, match=re.escape("use (pattern, target)")):
            Route.of(like, "agent 'a'", 0)
