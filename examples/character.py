"""A plugin that gives an agent a character, which drifts with the years.

Mounting writes the plugin's slice of the identity, with `__public__` for the part that others may see. One
action changes the persona; another composes the core's evolution, which counts years, with a drift of the
traits, which is the plugin's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from omoide import Agent, Context, Identity, Plugin, action, clock, identity
from omoide.core import FrozenMap

CALM = 0.5
PULL = 0.1


class Life(NamedTuple):
    """An agent before and after some years."""

    young: Agent
    old: Agent
    shown: FrozenMap[str, Any]


@action
def set_persona(ctx: Context, persona: dict[str, Any]) -> Identity:
    """Give the agent another persona; its role is public, its traits are not."""
    voice = ctx.identity.get_extension("character", {}).get("voice", {})
    return ctx.identity.put_extension("character", slice_of(persona, voice))


@action
def character_evolve(ctx: Context, years: int = 0, days: int = 0) -> Identity:
    """Let time pass: the core counts the years, and each year pulls every trait towards calm."""
    aged = ctx.identity.evolve(years=years, days=days)
    passed = (aged.age or 0) - (ctx.identity.age or 0)
    return aged.update_extension("character", lambda slice: drifted(slice, passed))


def slice_of(persona: Mapping[str, Any], voice: Mapping[str, Any]) -> dict[str, Any]:
    """The plugin's slice of the identity."""
    public = {"persona": {"role": persona.get("role")}, "voice": {"tone": voice.get("tone")}}
    return {"persona": persona, "voice": voice, "vsn": 1, "__public__": public}


def drifted(slice: FrozenMap[str, Any], years: int) -> FrozenMap[str, Any]:
    """The slice after some years."""
    persona = slice["persona"]
    traits = [
        {**trait, "intensity": round(CALM + (trait["intensity"] - CALM) * (1 - PULL) ** years, 3)}
        for trait in persona.get("traits", [])
    ]
    return slice.set("persona", persona.set("traits", traits))


class CharacterPlugin(Plugin):
    """Gives an agent a persona and a voice."""

    name = "character"
    actions = (set_persona, character_evolve)

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
        """Write the identity extension, and note when in the plugin's own slice."""
        slice = slice_of(config.get("persona", {}), config.get("voice", {}))
        agent = identity.put_extension(agent, self.name, slice)
        return {"mounted_at": clock.now()}, agent


def persona(agent: Agent) -> FrozenMap[str, Any]:
    """The persona of an agent that has this plugin."""
    found: FrozenMap[str, Any] = identity.get_extension(agent, "character")["persona"]
    return found


def main() -> Life:
    """An analyst grows seven years older."""
    traits = [{"name": "analytical", "intensity": 0.9}, {"name": "patient", "intensity": 0.2}]
    config = {
        "persona": {"role": "Data analyst", "traits": traits},
        "voice": {"tone": "professional", "style": "Concise and precise."},
    }
    young = Agent.new("analyst", plugins=[(CharacterPlugin, config)])
    print("young:", identity.age(young), persona(young).to_python())

    old, _ = young.cmd(("character_evolve", {"years": 7}))
    print("old:  ", identity.age(old), persona(old).to_python())

    old, _ = old.cmd(("set_persona", {"persona": {**persona(old), "role": "Lead analyst"}}))
    shown = identity.snapshot(old)
    assert shown is not None
    print("others see:", shown["extensions"].to_python())
    return Life(young, old, shown)


if __name__ == "__main__":
    main()
