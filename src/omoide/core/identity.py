"""What is this agent, and what can it do?

A mostly stable self-model: `profile` (facts of its life), `capabilities` (the manifest others route by) and
`extensions` (a slice for each plugin, which the core stores and never reads, but for `__public__`).
`omoide.identity` offers the same operations on an agent.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from omoide import clock
from omoide.core.frozen import (
    EMPTY_MAP,
    FrozenList,
    FrozenMap,
    check_text,
    freeze,
    freeze_map,
    list_of,
    value_type,
)
from omoide.core.value import Count, RevisionedValue, check_count, check_function, set_field
from omoide.errors import Conflict, Invalid, WrongType

ORIGINS = ("configured", "spawned", "cloned")
PUBLIC_KEY = "__public__"
DAYS_PER_YEAR = 365

DEFAULT_PROFILE: FrozenMap[str, Any] = FrozenMap({"age": None})
DEFAULT_CAPABILITIES: FrozenMap[str, Any] = FrozenMap({"actions": [], "tags": [], "io": {}, "limits": {}})


@value_type
class Identity(RevisionedValue, frozen=True, kw_only=True):
    """An agent's self-model."""

    profile: FrozenMap[str, Any] = DEFAULT_PROFILE
    capabilities: FrozenMap[str, Any] = DEFAULT_CAPABILITIES
    extensions: FrozenMap[str, Any] = EMPTY_MAP
    days: Count = 0
    """Days lived since the last whole year, so that four times a hundred days make a year and 35 days."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "profile", _validate_profile(self.profile))
        set_field(self, "capabilities", _validate_capabilities(self.capabilities))
        for name in self.extensions:
            check_text(name, "extension name", "use the plugin's name")
        if self.days >= DAYS_PER_YEAR:
            raise Invalid("days", f"must lie between 0 and {DAYS_PER_YEAR - 1}", "use evolve(days=…)")

    @property
    def age(self) -> int | None:
        """Years lived, or None."""
        age: int | None = self.profile.get("age")
        return age

    def evolve(
        self, *, years: int = 0, days: int = 0, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """This identity after some simulated time; days that make no whole year are carried on."""
        for field, amount in (("years", years), ("days", days)):
            check_count(amount, field)
        whole, rest = divmod(self.days + days, DAYS_PER_YEAR)
        profile = self.profile.set("age", (self.age or 0) + years + whole)
        return self._with_changes(now, expected_rev, profile=profile, days=rest)

    # Profile

    def get_profile(self, key: str, default: Any = None) -> Any:
        """A fact of the profile, or the default."""
        return self.profile.get(key, default)

    def put_profile(
        self, key: str, value: Any, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """With a fact of the profile; setting the age starts its year anew."""
        check_text(key, "profile key")
        profile = _validate_profile(self.profile.set(key, value))
        return self._with_changes(now, expected_rev, profile=profile, days=0 if key == "age" else self.days)

    # Capabilities

    def actions(self) -> FrozenList[str]:
        """The actions it declares."""
        actions: FrozenList[str] = self.capabilities["actions"]
        return actions

    def tags(self) -> FrozenList[str]:
        """The tags it carries."""
        tags: FrozenList[str] = self.capabilities["tags"]
        return tags

    def supports_action(self, action: str) -> bool:
        """Whether it declares an action."""
        return action in self.actions()

    def has_tag(self, tag: str) -> bool:
        """Whether it carries a tag."""
        return tag in self.tags()

    def add_action(self, action: str, *, expected_rev: int | None = None, now: int | None = None) -> Self:
        """With an action declared."""
        return self._add_capability("actions", check_text(action, "action"), expected_rev, now)

    def remove_action(self, action: str, *, expected_rev: int | None = None, now: int | None = None) -> Self:
        """With an action no longer declared."""
        self._check_rev(expected_rev)
        left = [known for known in self.actions() if known != action]
        if len(left) == len(self.actions()):
            return self
        return self._with_changes(now, capabilities=self.capabilities.set("actions", left))

    def add_tag(self, tag: str, *, expected_rev: int | None = None, now: int | None = None) -> Self:
        """With a tag carried."""
        return self._add_capability("tags", check_text(tag, "tag"), expected_rev, now)

    def set_limit(
        self, key: str, value: Any, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """With an operational limit declared."""
        return self._set_capability("limits", key, value, expected_rev, now)

    def set_io(
        self, key: str, value: Any, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """With an I/O flag declared."""
        return self._set_capability("io", key, value, expected_rev, now)

    # Extensions: one slice for each plugin

    def get_extension(self, plugin: str, default: Any = None) -> Any:
        """A plugin's slice, or the default."""
        return self.extensions.get(plugin, default)

    def put_extension(
        self,
        plugin: str,
        slice: Mapping[str, Any],
        *,
        expected_rev: int | None = None,
        now: int | None = None,
    ) -> Self:
        """With a plugin's slice replaced."""
        name = check_text(plugin, "plugin", "use the plugin's name")
        frozen = freeze_map(slice, f"extensions.{name}")
        return self._with_changes(now, expected_rev, extensions=self.extensions.set(name, frozen))

    def update_extension(
        self,
        plugin: str,
        change: Callable[[Any], Mapping[str, Any]],
        *,
        expected_rev: int | None = None,
        now: int | None = None,
    ) -> Self:
        """With `change` applied to a plugin's slice, which is None where there is none yet."""
        self._check_rev(expected_rev)
        slice = check_function(change)(self.get_extension(plugin))
        return self.put_extension(plugin, slice, expected_rev=expected_rev, now=now)

    def merge_extension(
        self,
        plugin: str,
        patch: Mapping[str, Any],
        *,
        expected_rev: int | None = None,
        now: int | None = None,
    ) -> Self:
        """With the entries of `patch` put over a plugin's slice, one level deep."""
        merged = freeze_map(self.get_extension(plugin, EMPTY_MAP), "slice").update(freeze_map(patch, "patch"))
        return self.put_extension(plugin, merged, expected_rev=expected_rev, now=now)

    # What others may see

    def snapshot(self) -> FrozenMap[str, Any]:
        """The part that may be shared: capabilities, lifecycle facts, and what each plugin calls public."""
        return FrozenMap(
            {
                "capabilities": self.capabilities,
                "profile": {
                    key: self.profile[key] for key in ("age", "generation", "origin") if key in self.profile
                },
                "extensions": {
                    name: slice[PUBLIC_KEY]
                    for name, slice in self.extensions.items()
                    if isinstance(slice, FrozenMap) and PUBLIC_KEY in slice
                },
            }
        )

    # How every change is made

    def _check_rev(self, expected_rev: int | None) -> None:
        Conflict.check("identity", expected_rev, self.rev)

    def _with_changes(self, now: int | None, expected_rev: int | None = None, **fields: Any) -> Self:
        self._check_rev(expected_rev)
        new = self._next_revision(now)
        for field, value in fields.items():
            set_field(new, field, value)
        return new

    def _add_capability(self, field: str, item: str, expected_rev: int | None, now: int | None) -> Self:
        """Nothing counts as changed where the item was there already."""
        self._check_rev(expected_rev)
        known = self.capabilities[field]
        if item in known:
            return self
        return self._with_changes(now, capabilities=self.capabilities.set(field, known.append(item)))

    def _set_capability(
        self, field: str, key: str, value: Any, expected_rev: int | None, now: int | None
    ) -> Self:
        inner = self.capabilities[field].set(check_text(key, f"{field} key"), freeze(value, key))
        return self._with_changes(now, expected_rev, capabilities=self.capabilities.set(field, inner))


def _validate_profile(profile: object) -> FrozenMap[str, Any]:
    checked = DEFAULT_PROFILE.update(freeze_map(profile, "profile"))
    for key in ("age", "generation"):
        value = checked.get(key)
        if value is not None and (type(value) is not int or value < 0):
            raise Invalid(
                f"profile.{key}", f"must be an int from 0 upwards or None, not {value!r}", "correct it"
            )
    origin = checked.get("origin")
    if origin is not None and origin not in ORIGINS:
        raise Invalid("profile.origin", f"is {origin!r}", f"use one of {', '.join(ORIGINS)}")
    return checked


def _validate_capabilities(capabilities: object) -> FrozenMap[str, Any]:
    given = freeze_map(capabilities, "capabilities")
    for key, value in given.items():
        if key not in DEFAULT_CAPABILITIES:
            raise Invalid(
                f"capabilities.{key}", "is not one of actions, tags, io, limits", "use an extension for it"
            )
        if key in ("actions", "tags"):
            given = given.set(key, _validate_names(value, f"capabilities.{key}"))
        else:
            freeze_map(value, f"capabilities.{key}")
    return DEFAULT_CAPABILITIES.update(given)


def _validate_names(names: object, field: str) -> FrozenList[str]:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise WrongType(field, "a list of strings", names)
    checked = [check_text(name, f"{field}[{at}]") for at, name in enumerate(names)]
    return list_of(list(dict.fromkeys(sorted(checked) if isinstance(names, frozenset) else checked)))


def known_agent_record(
    snapshot: Mapping[str, Any], trust: float | None, now: int | None
) -> FrozenMap[str, Any]:
    """How another agent is remembered: what it showed, how far it is trusted, when it was seen."""
    if trust is not None and (type(trust) not in (int, float) or not 0 <= trust <= 1):
        raise Invalid("trust", f"must lie between 0 and 1, not {trust!r}", "leave it out if unknown")
    return FrozenMap(
        {
            "snapshot": freeze_map(snapshot, "snapshot"),
            "trust": trust,
            "last_seen": clock.resolve(now),
        }
    )
