"""Count the work of a function of text: the same number on every machine, however busy it is.

`counted` imports Omoide anew with counting patterns in place of its regular expressions. A pattern answers
as `re` does, and beside it a small backtracking matcher over the same parse tree counts the steps that the
search takes. Executed lines, the lengths of texts whose methods are called, and those of texts that are
assigned, count as well.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from random import Random
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as op
from types import FrameType
from typing import Any

_sre: Any = import_module("_sre")
Continue = Callable[[int], bool]
Matcher = Callable[[int, Continue], bool]
"""Matches at a position and continues with the position after it; False where neither way leads on."""

_INFINITE = op.MAXREPEAT
_SINGLE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN, op.RANGE, op.CATEGORY)


class StepCounter:
    """A backtracking matcher for one pattern that counts its steps."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.steps = 0
        self.text = ""
        self.end = 0
        self._flags = pattern.flags
        self._groups: dict[int, tuple[int, int]] = {}
        self._single: dict[Any, dict[str, bool]] = {}
        tree = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
        self._first = self._first_of(tree, pattern.flags)
        self._match = self._sequence(list(tree), pattern.flags)

    def search(self, text: str, start: int, end: int) -> tuple[int, int] | None:
        """Return the span of the first match, as `re` finds it."""
        for at in range(start, end + 1):
            if (found := self.match(text, at, end)) is not None:
                return found
        return None

    def match(self, text: str, at: int, end: int, whole: bool = False) -> tuple[int, int] | None:
        """Return the span of the match at a position."""
        self.steps += 1
        # As `re` does: no attempt where no match can begin.
        if self._first is not None and (at >= end or not self._is_first(text[at])):
            return None
        self.text, self.end = text, end
        self._groups = {}
        found = -1

        def finish(position: int) -> bool:
            nonlocal found
            if whole and position != end:
                return False
            found = position
            return True

        return (at, found) if self._match(at, finish) else None

    def _is_first(self, char: str) -> bool:
        return any(accepts(char) for accepts in self._first or ())

    def _first_of(self, nodes: Any, flags: int) -> list[Callable[[str], bool]] | None:
        """Return what the first character of a match may be; None if anything, or there may be none."""
        for kind, value in nodes:
            if kind in (op.AT, op.ASSERT, op.ASSERT_NOT):
                continue
            if kind in _SINGLE:
                return [self._accepts(kind, value, flags)]
            if kind is op.SUBPATTERN:
                return self._first_of(value[3], (flags | value[1]) & ~value[2])
            if kind is op.ATOMIC_GROUP:
                return self._first_of(value, flags)
            if kind is op.BRANCH:
                parts = [self._first_of(branch, flags) for branch in value[1]]
                return None if None in parts else [one for part in parts if part for one in part]
            if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[0]:
                return self._first_of(value[2], flags)
            return None
        return None

    def _accepts(self, kind: Any, value: Any, flags: int) -> Callable[[str], bool]:
        """Return whether a node accepts one character, as `re` decides it."""
        known: dict[str, bool] = {}
        part = _parser.SubPattern(_parser.State(), [(kind, value)])
        compiled = _sre.compile("", flags, _compiler._code(part, flags), 0, {}, (None,))

        def accepts(char: str) -> bool:
            answer = known.get(char)
            if answer is None:
                answer = known[char] = compiled.match(char) is not None
            return answer

        return accepts

    def _sequence(self, nodes: list[Any], flags: int) -> Matcher:
        matcher: Matcher | None = None
        for node in reversed(nodes):
            matcher = self._then(self._node(node, flags), matcher)
        return matcher or (lambda at, go_on: go_on(at))

    @staticmethod
    def _then(first: Matcher, second: Matcher | None) -> Matcher:
        if second is None:
            return first
        return lambda at, go_on: first(at, lambda middle: second(middle, go_on))

    def _node(self, node: Any, flags: int) -> Matcher:
        kind, value = node
        if kind in _SINGLE:
            return self._one(self._accepts(kind, value, flags))
        if kind is op.AT:
            return self._at(value, flags)
        if kind is op.SUBPATTERN:
            group, added, removed, inner = value
            return self._group(group, self._sequence(list(inner), (flags | added) & ~removed))
        if kind is op.BRANCH:
            return self._branch(value[1], flags)
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._repeat(kind, value, flags)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            return self._look(kind is op.ASSERT, value, flags)
        if kind is op.ATOMIC_GROUP:
            return self._atomic(self._sequence(list(value), flags))
        if kind is op.GROUPREF:
            return self._reference(value)
        raise NotImplementedError(kind)

    def _one(self, accepts: Callable[[str], bool]) -> Matcher:
        def match(at: int, go_on: Continue) -> bool:
            self.steps += 1
            return at < self.end and accepts(self.text[at]) and go_on(at + 1)

        return match

    def _at(self, where: Any, flags: int) -> Matcher:
        names = {
            op.AT_BEGINNING: r"(?m:^)" if flags & re.MULTILINE else r"\A",
            op.AT_BEGINNING_STRING: r"\A",
            op.AT_END: r"(?m:$)" if flags & re.MULTILINE else r"$",
            op.AT_END_STRING: r"\Z",
            op.AT_BOUNDARY: r"\b",
            op.AT_NON_BOUNDARY: r"\B",
        }
        compiled = re.compile(names[where], flags & re.ASCII)

        def match(at: int, go_on: Continue) -> bool:
            self.steps += 1
            return compiled.match(self.text, at, self.end) is not None and go_on(at)

        return match

    def _group(self, group: int | None, inner: Matcher) -> Matcher:
        if group is None:
            return inner

        def match(at: int, go_on: Continue) -> bool:
            before = self._groups.get(group)

            def close(end: int) -> bool:
                outer = self._groups.get(group)
                self._groups[group] = (at, end)
                if go_on(end):
                    return True
                self._restore(group, outer)
                return False

            if inner(at, close):
                return True
            self._restore(group, before)
            return False

        return match

    def _restore(self, group: int, span: tuple[int, int] | None) -> None:
        if span is None:
            self._groups.pop(group, None)
        else:
            self._groups[group] = span

    def _branch(self, branches: list[Any], flags: int) -> Matcher:
        ways = [(self._first_of(one, flags), self._sequence(list(one), flags)) for one in branches]

        def match(at: int, go_on: Continue) -> bool:
            self.steps += 1
            char = self.text[at] if at < self.end else ""
            for first, way in ways:
                if first is not None and not (char and any(accepts(char) for accepts in first)):
                    continue
                if way(at, go_on):
                    return True
            return False

        return match

    def _repeat(self, kind: Any, value: Any, flags: int) -> Matcher:
        least, most, inner = value
        nodes = list(inner)
        if len(nodes) == 1 and nodes[0][0] in _SINGLE:
            return self._repeat_one(kind, least, most, self._accepts(nodes[0][0], nodes[0][1], flags))
        body = self._sequence(nodes, flags)

        def attempt(at: int, count: int, go_on: Continue) -> bool:
            def again() -> bool:
                if most is not _INFINITE and count >= most:
                    return False
                self.steps += 1
                # An empty turn ends a repetition that has its least number.
                return body(at, lambda end: (end != at or count < least) and attempt(end, count + 1, go_on))

            if count < least:
                return again()
            return go_on(at) or again() if kind is op.MIN_REPEAT else again() or go_on(at)

        repeat: Matcher = lambda at, go_on: attempt(at, 0, go_on)  # noqa: E731
        return self._atomic(repeat) if kind is op.POSSESSIVE_REPEAT else repeat

    def _repeat_one(self, kind: Any, least: int, most: int, accepts: Callable[[str], bool]) -> Matcher:
        def match(at: int, go_on: Continue) -> bool:
            limit = self.end if most is _INFINITE else min(self.end, at + most)
            end = at
            if kind is op.MIN_REPEAT:
                while True:
                    if end - at >= least and go_on(end):
                        return True
                    self.steps += 1
                    if end >= limit or not accepts(self.text[end]):
                        return False
                    end += 1
            while end < limit and accepts(self.text[end]):
                end += 1
            self.steps += end - at + 1
            if kind is op.POSSESSIVE_REPEAT:
                return end - at >= least and go_on(end)
            while end - at >= least:
                self.steps += 1
                if go_on(end):
                    return True
                end -= 1
            return False

        return match

    def _atomic(self, inner: Matcher) -> Matcher:
        def match(at: int, go_on: Continue) -> bool:
            end = -1

            def close(position: int) -> bool:
                nonlocal end
                end = position
                return True

            return inner(at, close) and go_on(end)

        return match

    def _look(self, wanted: bool, value: Any, flags: int) -> Matcher:
        way, inner = value
        body = self._sequence(list(inner), flags)
        width = inner.getwidth()[0] if way < 0 else 0

        def match(at: int, go_on: Continue) -> bool:
            self.steps += 1
            found = at >= width and body(at - width, lambda _: True)
            return found == wanted and go_on(at)

        return match

    def _reference(self, group: int) -> Matcher:
        def match(at: int, go_on: Continue) -> bool:
            span = self._groups.get(group)
            if span is None:
                return False
            said = self.text[span[0] : span[1]]
            self.steps += len(said) + 1
            return self.text.startswith(said, at) and go_on(at + len(said))

        return match


class CountingPattern:
    """A pattern that answers as `re` does and counts its steps into a meter."""

    def __init__(self, pattern: re.Pattern[str], meter: Meter) -> None:
        self._pattern = pattern
        self._meter = meter
        self._counter: StepCounter | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def _count(
        self, text: str, start: int, end: int, match: re.Match[str] | None, anchor: str = "search"
    ) -> None:
        if not self._meter.is_on:
            return
        if self._counter is None:
            self._counter = StepCounter(self._pattern)
        counter, before = self._counter, self._counter.steps
        end = min(end, len(text))
        with self._meter.paused():
            if anchor == "search":
                found = counter.search(text, start, end)
            else:
                found = counter.match(text, start, end, anchor == "fullmatch")
        assert found == (None if match is None else match.span()), (self._pattern.pattern, text, found, match)
        self._meter.add(counter.steps - before, self._pattern.pattern)

    def search(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        match = self._pattern.search(text, pos, endpos)
        self._count(text, pos, endpos, match)
        return match

    def match(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        match = self._pattern.match(text, pos, endpos)
        self._count(text, pos, endpos, match, "match")
        return match

    def fullmatch(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        match = self._pattern.fullmatch(text, pos, endpos)
        self._count(text, pos, endpos, match, "fullmatch")
        return match

    def finditer(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> Iterator[re.Match[str]]:
        for match in self._pattern.finditer(text, pos, endpos):
            # `re` does not find an empty match where the last one ended; the meter begins one further then.
            self._count(text, match.start() if match.start() == match.end() else pos, endpos, match)
            pos = match.end() + (match.start() == match.end())
            yield match
        if pos <= min(endpos, len(text)) and self._meter.is_on:
            self._rest(text, pos, endpos)

    def _rest(self, text: str, pos: int, endpos: int) -> None:
        """Count the search after the last match, which finds nothing but an empty match, if that."""
        if self._pattern.search(text, pos, endpos) is None:
            self._count(text, pos, endpos, None)

    def findall(self, text: str) -> list[Any]:
        [*self.finditer(text)]
        return self._pattern.findall(text)

    def split(self, text: str, maxsplit: int = 0) -> list[Any]:
        [*self.finditer(text)]
        return self._pattern.split(text, maxsplit)

    def sub(self, replacement: Any, text: str, count: int = 0) -> str:
        [*self.finditer(text)]
        return self._pattern.sub(replacement, text, count)


class Meter:
    """Counts the work of the calls made through `measure`."""

    def __init__(self) -> None:
        self.work = 0
        self.by_source: dict[str, int] = {}
        self.is_on = False
        self.patterns: dict[tuple[str, int], CountingPattern] = {}
        self._seen: dict[int, dict[str, int]] = {}

    def add(self, work: int, source: str) -> None:
        self.work += work
        self.by_source[source] = self.by_source.get(source, 0) + work

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing of what the meter does itself."""
        trace, profile = sys.gettrace(), sys.getprofile()
        sys.settrace(None)
        sys.setprofile(None)
        try:
            yield
        finally:
            sys.setprofile(profile)
            sys.settrace(trace)

    def measure(self, call: Callable[[], object]) -> int:
        """Return the work of a call; what it raises is a result like another."""
        self.work, self.by_source, self._seen, self.is_on = 0, {}, {}, True
        before, limit = sys.gettrace(), sys.getrecursionlimit()
        sys.setrecursionlimit(1_000_000)
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        try:
            call()
        except self.expected:
            pass
        finally:
            sys.setprofile(None)
            sys.settrace(before)
            sys.setrecursionlimit(limit)
            self.is_on = False
        return self.work

    expected: tuple[type[Exception], ...] = ()

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_globals.get("__name__", "").startswith("omoide"):
            return None
        if event == "call":  # arguments are no copies, nor is what a generator held when it is resumed
            self._seen[id(frame)] = {name: id(value) for name, value in frame.f_locals.items()}
        elif event in ("line", "return"):
            name = frame.f_code.co_qualname
            cost = 1
            seen = self._seen.setdefault(id(frame), {})
            for local, value in frame.f_locals.items():
                if seen.get(local) != id(value):
                    seen[local] = id(value)
                    cost += len(value) if type(value) in (str, bytes) else 0
            self.add(cost, name)
            if event == "return":
                self._seen.pop(id(frame), None)
        return self._trace

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and frame.f_globals.get("__name__", "").startswith("omoide"):
            owner = getattr(arg, "__self__", None)
            if isinstance(owner, (str, bytes)):
                self.add(len(owner), f"{frame.f_code.co_name}: {arg.__name__}")


@contextmanager
def counted() -> Iterator[Meter]:
    """Have Omoide imported anew inside the block, with patterns that count their steps."""
    meter, plain = Meter(), re._compile  # type: ignore[attr-defined]
    patterns = meter.patterns

    def compile_counting(pattern: Any, flags: Any) -> Any:
        compiled = plain(pattern, flags)
        caller = sys._getframe(2).f_globals.get("__name__", "")
        if not caller.startswith("omoide") or not isinstance(compiled.pattern, str):
            return compiled
        return patterns.setdefault((compiled.pattern, compiled.flags), CountingPattern(compiled, meter))

    outside = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    for name in outside:
        del sys.modules[name]
    re._compile = compile_counting  # type: ignore[attr-defined]
    try:
        yield meter
    finally:
        re._compile = plain  # type: ignore[attr-defined]
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(outside)


def _is_ours(name: str) -> bool:
    return name == "omoide" or name.startswith("omoide.")


def sample(pattern: str, flags: int, random: Random) -> str:
    """Return a short text that is like what a pattern matches: the parts that it looks for, in its order."""
    return "".join(_parts(_parser.parse(pattern, flags & ~re.UNICODE), random))


def _parts(nodes: Any, random: Random) -> Iterator[str]:
    for kind, value in nodes:
        if kind is op.LITERAL:
            yield chr(value)
        elif kind is op.IN:
            yield _one_of(value, random)
        elif kind in (op.NOT_LITERAL, op.ANY):
            yield random.choice(_CHARACTERS)
        elif kind is op.SUBPATTERN:
            yield from _parts(value[3], random)
        elif kind is op.BRANCH:
            yield from _parts(random.choice(value[1]), random)
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            least, most, inner = value
            for _ in range(random.randint(least, min(most, least + 2))):
                yield from _parts(inner, random)
        elif kind is op.ATOMIC_GROUP:
            yield from _parts(value, random)
        elif kind is op.ASSERT:
            yield from _parts(value[1], random)


_CHARACTERS = "aA1 .:-_@/'\"\n(){}<>,=é日"


def _one_of(choices: Any, random: Random) -> str:
    kind, value = random.choice(choices)
    if kind is op.LITERAL:
        return chr(value)
    if kind is op.RANGE:
        return chr(random.randint(*value))
    return random.choice(_CHARACTERS)
