"""An identity behaves like a dict under any sequence of operations."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.strategies import data, scramble

from omoide import Identity
from omoide.errors import Conflict

names = st.sampled_from(["fetch", "parse", "web", "日本", "a b"])
slices = st.dictionaries(st.sampled_from(["persona", "voice", "__public__"]), data, max_size=3)
expectations = st.sampled_from(["none", "right", "stale"])
waits = st.integers(0, 1_000)

Change = Callable[..., Identity]


class IdentityMachine(RuleBasedStateMachine):
    """An identity beside a model made of dicts, lists and counters."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.identity = Identity.new(now=self.now)
        self.profile: dict[str, Any] = {"age": None}
        self.actions: list[str] = []
        self.tags: list[str] = []
        self.limits: dict[str, Any] = {}
        self.io: dict[str, Any] = {}
        self.extensions: dict[str, dict[str, Any]] = {}
        self.lived = 0
        self.rev = 0
        self.updated_at = self.now
        self.versions: list[tuple[Identity, bytes]] = []

    def expect(self, change: Change, expectation: str, changes: bool = True) -> bool:
        """Whether a change went through: a stale one is refused, one without effect counts for nothing."""
        before = self.identity
        if expectation == "stale":
            with pytest.raises(Conflict):
                change(expected_rev=self.rev + 1, now=self.now)
            assert self.identity is before
            return False
        options: dict[str, int] = {"expected_rev": self.rev} if expectation == "right" else {}
        self.versions.append((before, before.to_json()))
        self.identity = change(now=self.now, **options)
        if changes:
            self.rev += 1
            self.updated_at = self.now
        else:
            assert self.identity is before
        return True

    @rule(by=waits)
    def wait(self, by: int) -> None:
        self.now += by

    @rule(key=st.sampled_from(["generation", "mood"]), value=st.integers(0, 99), expectation=expectations)
    def put_profile(self, key: str, value: int, expectation: str) -> None:
        if self.expect(lambda **o: self.identity.put_profile(key, value, **o), expectation):
            self.profile[key] = value

    @rule(age=st.none() | st.integers(0, 9), expectation=expectations)
    def put_age(self, age: int | None, expectation: str) -> None:
        if self.expect(lambda **o: self.identity.put_profile("age", age, **o), expectation):
            self.profile["age"] = age
            self.lived = 0

    @rule(name=names, expectation=expectations)
    def add_action(self, name: str, expectation: str) -> None:
        new = name not in self.actions
        if self.expect(lambda **o: self.identity.add_action(name, **o), expectation, changes=new) and new:
            self.actions.append(name)

    @rule(name=names, expectation=expectations)
    def remove_action(self, name: str, expectation: str) -> None:
        known = name in self.actions
        if (
            self.expect(lambda **o: self.identity.remove_action(name, **o), expectation, changes=known)
            and known
        ):
            self.actions.remove(name)

    @rule(name=names, expectation=expectations)
    def add_tag(self, name: str, expectation: str) -> None:
        new = name not in self.tags
        if self.expect(lambda **o: self.identity.add_tag(name, **o), expectation, changes=new) and new:
            self.tags.append(name)

    @rule(key=names, value=data, expectation=expectations)
    def set_limit(self, key: str, value: Any, expectation: str) -> None:
        self._given(
            value, lambda given, **o: self.identity.set_limit(key, given, **o), expectation, self.limits, key
        )

    @rule(key=names, value=data, expectation=expectations)
    def set_io(self, key: str, value: Any, expectation: str) -> None:
        self._given(
            value, lambda given, **o: self.identity.set_io(key, given, **o), expectation, self.io, key
        )

    @rule(plugin=names, slice=slices, expectation=expectations)
    def put_extension(self, plugin: str, slice: dict[str, Any], expectation: str) -> None:
        self._given(
            slice,
            lambda given, **o: self.identity.put_extension(plugin, given, **o),
            expectation,
            self.extensions,
            plugin,
        )

    @rule(plugin=names, patch=slices, expectation=expectations)
    def merge_extension(self, plugin: str, patch: dict[str, Any], expectation: str) -> None:
        merged = {**self.extensions.get(plugin, {}), **deepcopy(patch)}
        if self.expect(lambda **o: self.identity.merge_extension(plugin, patch, **o), expectation):
            self.extensions[plugin] = merged
        scramble(patch)

    @rule(plugin=names, value=data, expectation=expectations)
    def update_extension(self, plugin: str, value: Any, expectation: str) -> None:
        def change(old: Mapping[str, Any] | None) -> dict[str, Any]:
            assert (old is None) == (plugin not in self.extensions)
            return {**(old or {}), "voice": value}

        updated = {**self.extensions.get(plugin, {}), "voice": deepcopy(value)}
        if self.expect(lambda **o: self.identity.update_extension(plugin, change, **o), expectation):
            self.extensions[plugin] = updated

    @rule(years=st.integers(0, 3), days=st.integers(0, 800), expectation=expectations)
    def evolve(self, years: int, days: int, expectation: str) -> None:
        if self.expect(lambda **o: self.identity.evolve(years=years, days=days, **o), expectation):
            whole, self.lived = divmod(self.lived + days, 365)
            self.profile["age"] = (self.profile["age"] or 0) + years + whole

    @precondition(lambda self: self.versions)
    @rule()
    def write_and_read(self) -> None:
        self.identity = Identity.from_json(self.identity.to_json())

    def _given(self, value: Any, change: Change, expectation: str, part: dict[str, Any], key: str) -> None:
        """Hand over a mutable value, see that it is left alone, and spoil it afterwards."""
        copy = deepcopy(value)
        done = self.expect(lambda **o: change(value, **o), expectation)
        assert value == copy
        scramble(value)
        if done:
            part[key] = copy

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        capabilities = {"actions": self.actions, "tags": self.tags, "limits": self.limits, "io": self.io}
        assert self.identity.profile == self.profile
        assert self.identity.capabilities == capabilities
        assert self.identity.extensions == self.extensions
        assert self.identity.days == self.lived

    @invariant()
    def counts_and_dates_every_change(self) -> None:
        assert (self.identity.rev, self.identity.updated_at) == (self.rev, self.updated_at)
        assert self.identity.created_at == 1_000

    @invariant()
    def shows_only_what_is_public(self) -> None:
        public = {name: part["__public__"] for name, part in self.extensions.items() if "__public__" in part}
        assert self.identity.snapshot()["extensions"] == public

    @invariant()
    def survives_json(self) -> None:
        assert Identity.from_json(self.identity.to_json()) == self.identity

    def teardown(self) -> None:
        for version, written in self.versions:
            assert version.to_json() == written


TestIdentity = IdentityMachine.TestCase
