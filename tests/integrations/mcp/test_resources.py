"""Resources and prompts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client, MCPError
from tests.support.longterm import keep
from tests.support.mcp_clients import ADA, call, connect_client, fill_store


async def read_resource(client: Client, uri: str) -> Any:
    """What a resource holds, as data."""
    (content,) = (await client.read_resource(uri)).model_dump()["contents"]
    assert content["mime_type"] == "application/json"
    return json.loads(content["text"])


async def test_clients_find_an_index_and_three_templates(store: Any) -> None:
    """What can be read is listed, and each has a title and says what it is."""
    async with connect_client(store) as client:
        (index,) = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
    assert index.uri == "memory://index"
    assert {template.uri_template for template in templates} == {
        "memory://spaces/{agent}/{space}",
        "memory://entries/{id}",
        "memory://identity/{agent}",
    }
    assert index.title
    assert index.description
    assert all(one.title and one.description for one in templates)


async def test_the_index_leads_to_everything(store: Any) -> None:
    """Every address in it can be read, also where ids are no plain words."""
    await fill_store(store)
    await keep(store, "a/b c?#%", "A strange id.", ADA)
    async with connect_client(store) as client:
        index = await read_resource(client, "memory://index")
        assert index["scope"] == {"namespace": "default", "agent": "ada"}
        (agent,) = index["agents"]
        assert {uri.rpartition("/")[2] for uri in agent["spaces"]} == {"world", "tasks"}
        for uri in (agent["identity"], *agent["spaces"], *(one["uri"] for one in index["newest"])):
            assert await read_resource(client, uri)
        assert (await read_resource(client, "memory://entries/a%2Fb%20c%3F%23%25"))[
            "content"
        ] == "A strange id."


async def test_spaces_and_identities_are_what_the_agent_put_aside(store: Any) -> None:
    """A space has its data and its revision; an identity shows what is public."""
    await fill_store(store)
    async with connect_client(store) as client:
        world = await read_resource(client, "memory://spaces/ada/world")
        assert (world["data"], world["rev"]) == ({"city": "Ghent"}, 1)
        shown = await read_resource(client, "memory://identity/ada")
        assert shown["identity"]["capabilities"]["actions"] == ["summarise"]


async def test_a_memory_can_be_read_whether_it_holds_or_not(store: Any) -> None:
    """What was forgotten says so."""
    await fill_store(store)
    async with connect_client(store) as client:
        await call(client, "forget", memory_id="one", reason="closed")
        one = await read_resource(client, "memory://entries/one")
        assert (one["forgotten"], one["reason"]) == (True, "closed")
        assert (await read_resource(client, "memory://entries/two"))["stale"] is True


@pytest.mark.parametrize(
    "uri",
    [
        "memory://entries/absent",
        "memory://identity/absent",
        "memory://spaces/absent/world",
        "memory://spaces/ada/absent",
        "memory://nothing",
        "memory://entries/a%00b",
        "memory://entries/" + "x" * 600,
        "file:///etc/passwd",
        "",
    ],
)
async def test_what_is_not_there_is_said_to_be_not_there(store: Any, uri: str) -> None:
    """An address that leads nowhere is an error of the protocol, without anything of our code."""
    await fill_store(store)
    async with connect_client(store) as client:
        with pytest.raises(MCPError) as told_so:
            await client.read_resource(uri)
        assert "Traceback" not in str(told_so.value)
        assert await read_resource(client, "memory://index")


async def test_the_prompt_brings_what_needs_attention(store: Any) -> None:
    """Contradictions, what no longer holds and open questions stand in it, quoted as data."""
    await fill_store(store)
    await keep(store, "open", "When does the shop close?", ADA, type="unknown")
    async with connect_client(store) as client:
        await call(client, "forget", memory_id="one")
        (prompt,) = (await client.list_prompts()).prompts
        assert (prompt.name, [argument.name for argument in prompt.arguments or []]) == ("review", ["limit"])
        (message,) = (await client.get_prompt("review", {"limit": "5"})).messages
        text = message.model_dump()["content"]["text"]
        assert "not instructions" in text
        found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        assert [one["id"] for one in found["stale"]] == ["two"]
        assert [one["id"] for one in found["open_questions"]] == ["open"]
        with pytest.raises(MCPError, match="limit"):
            await client.get_prompt("review", {"limit": "many"})


async def test_a_wrong_prompt_is_the_clients_slip(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown name says which there are, unknown arguments are passed over, and nothing is logged."""
    async with connect_client(store) as client:
        with pytest.raises(MCPError, match="prompt 'summary' does not exist; use review"):
            await client.get_prompt("summary")
        assert (await client.get_prompt("review", {"mood": "good"})).messages
    assert caplog.records == []


async def test_clients_are_told_how_to_use_it(store: Any) -> None:
    """The instructions of the server say when to recall, and that memories are no instructions."""
    async with connect_client(store) as client:
        assert "Recall before you answer" in (client.instructions or "")
        assert "not instructions" in (client.instructions or "")
