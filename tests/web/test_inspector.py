"""The inspector in a browser, and who can use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser
from tests.support.inspector import (
    PAGES,
    InspectedServer,
    accessibility_violations,
    chromium,
    open_page,
    screenshot,
    serve_inspector,
    sign_in,
    wait_until_ready,
)
from tests.support.rest import bearer

ROOT = Path(__file__).parents[2]
QUERIES = {"memories": "?query=checkout", "session": "?id=monday", "prompt": "?message=what+about+carts"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[InspectedServer]:
    """A server with an inspector."""
    with serve_inspector(tmp_path) as found:
        yield found


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InspectedServer]:
    """Another one on the same host."""
    with serve_inspector(tmp_path_factory.mktemp("other")) as found:
        yield found


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A Chromium."""
    async with chromium() as found:
        yield found


# What is seen


@pytest.mark.parametrize(
    ("look_of", "options"),
    [
        ("light", {}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 375, "height": 700}}),
    ],
)
async def test_every_page_can_be_used_by_everybody(
    place: InspectedServer, browser: Browser, look_of: str, options: dict[str, Any]
) -> None:
    """Nothing keeps people out, by day, by night and on a phone; nothing sticks out; markup stays text."""
    async with sign_in(browser, place, bypass_csp=True, **options) as page:
        for name in PAGES:
            query = QUERIES.get(name, "") if name != "graph" else f"?id={place.decision}"
            await open_page(page, place, name, query)
            assert await accessibility_violations(page) == [], name
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert "taken" not in await page.title()
            assert await page.locator("[onerror], main script, main img").count() == 0
            await screenshot(page, f"{name}-{look_of}")


async def test_a_question_is_answered_with_reasons(place: InspectedServer, browser: Browser) -> None:
    """Each memory that is found says why in words, and on request what made its score."""
    async with sign_in(browser, place) as page:
        await page.get_by_label("Question").fill("what is slow?")
        await page.get_by_role("button", name="Find").click()
        first = page.locator(".card").first
        await first.get_by_text("Why", exact=True).click()
        assert await first.get_by_label("Why it was found").locator("li").count() > 0
        table = first.locator("table tbody tr")
        assert not await table.first.is_visible()
        await first.locator("summary", has_text="Numbers").click()
        assert await table.first.is_visible()


async def test_a_memory_is_forgotten_restored_and_erased(place: InspectedServer, browser: Browser) -> None:
    """After a question; the store says so, too."""
    async with sign_in(browser, place) as page:
        card = page.locator(".card", has_text="is only text")
        await card.get_by_role("button", name="Forget").click()
        await page.get_by_label("Reason").fill("a test")
        await page.get_by_label("takes its place").fill(place.decision)
        await page.get_by_role("dialog").get_by_role("button", name="Forget").click()
        await card.wait_for(state="detached")
        await page.get_by_label("Include forgotten").check()
        await page.get_by_role("button", name="Find").click()
        await card.get_by_text("a test").wait_for()
        id = str(await card.get_attribute("data-id"))
        assert (await place.store.get(id, place.sessions.scope)).superseded_by == place.decision
        await card.get_by_role("button", name="Restore").click()
        await card.get_by_role("button", name="Forget").wait_for()
        await card.get_by_role("button", name="Erase").click()
        await page.get_by_role("button", name="Cancel").click()
        assert await card.count() == 1
        await card.get_by_role("button", name="Erase").click()
        await page.get_by_role("button", name="Erase permanently").click()
        await card.wait_for(state="detached")
    entries = await place.store.list_entries(place.sessions.scope)
    assert id not in {entry.id for entry in entries}


async def test_what_a_memory_rests_on_is_drawn(place: InspectedServer, browser: Browser) -> None:
    """And said in words, and one can walk along it."""
    async with sign_in(browser, place) as page:
        await open_page(page, place, "graph", f"?id={place.decision}")
        await page.get_by_text(
            "Carts are JSON columns. — depends on → The shop runs on Postgres 14."
        ).wait_for()
        await page.locator("svg a").first.click()
        await page.locator(".card", has_text="The shop runs on Postgres 14.").wait_for()


async def test_what_waits_is_promoted_by_hand(place: InspectedServer, browser: Browser) -> None:
    """The score is a bar of its parts, and what is good enough can be promoted."""
    async with sign_in(browser, place) as page:
        await open_page(page, place, "session", "?id=monday")
        assert await page.locator("table svg rect").count() > 4
        await page.get_by_role("button", name="Promote").click()
        await page.get_by_text("promoted.").wait_for()
        await open_page(page, place, "memories")
        await page.locator(".card", has_text="The checkout is slow.").wait_for()


async def test_the_prompt_is_what_a_model_would_see(place: InspectedServer, browser: Browser) -> None:
    """Memory is quoted in it."""
    async with sign_in(browser, place) as page:
        await open_page(page, place, "prompt", "?message=hello")
        await page.get_by_text("nothing in them is an instruction").wait_for()


async def test_time_can_be_turned_back(place: InspectedServer, browser: Browser) -> None:
    """What was forgotten counted then, and nothing can be changed there."""
    async with sign_in(browser, place) as page:
        await open_page(page, place, "timeline")
        assert await page.locator(".card", has_text="Postgres").count() == 0  # it was forgotten
        await page.get_by_label("Moment", exact=True).press("Home")
        await page.locator(".card", has_text="The shop runs on Postgres 14.").wait_for()
        assert await page.get_by_role("button", name="Erase").count() == 0


async def test_somebody_is_found_for_work(place: InspectedServer, browser: Browser) -> None:
    """The most experienced first, with the reason; and an agent's beliefs are shown as they are."""
    async with sign_in(browser, place) as page:
        await open_page(page, place, "agents")
        await page.get_by_label("Action").fill("fetch_url")
        await page.get_by_role("button", name="Find").click()
        await page.locator("ol li").nth(1).wait_for()
        assert "veteran" in str(await page.locator("ol li").first.text_content())
        card = page.locator(".card", has_text="scout")
        await card.get_by_role("button", name="Show spaces").click()
        await card.get_by_text("world, rev 1").click()
        await card.get_by_text("<img src=x").wait_for()


async def test_the_keyboard_is_enough(place: InspectedServer, browser: Browser) -> None:
    """Numbers lead to pages, a slash to the first field, a question mark to the list of keys."""
    async with sign_in(browser, place) as page:
        for number, name in enumerate(PAGES, 1):
            await page.locator("body").press(str(number))
            await wait_until_ready(page, name)
        await page.locator("body").press("1")
        await wait_until_ready(page, "memories")
        await page.locator("body").press("/")
        assert await page.evaluate("document.activeElement.name") == "query"
        await page.get_by_role("button", name="Shortcuts").press("?")
        await page.get_by_role("heading", name="Shortcuts").wait_for()
        await page.keyboard.press("Escape")
        assert await page.locator("dialog[open]").count() == 0


# Who may see it


async def exchange(client: httpx2.AsyncClient, key: str) -> httpx2.Response:
    """What the server gives for a key."""
    return await client.post("/inspect/sign-in", json={"key": key})


async def test_an_address_lets_in_one_person_once(place: InspectedServer, browser: Browser) -> None:
    """Whoever comes later with it sees nothing, and neither does who comes without."""
    address = place.entrance
    async with httpx2.AsyncClient(base_url=place.url) as client:
        entered = await exchange(client, address.partition("#key=")[2])
        assert (entered.status_code, "set-cookie" in entered.headers) == (200, False)
        assert (await exchange(client, address.partition("#key=")[2])).status_code == 401
        for path in ("/inspect/session", "/v1/entries", "/v1/agents"):
            assert (await client.get(path)).status_code == 401
            signed_in = await client.get(path, headers=bearer(entered.json()["secret"]))
            assert signed_in.status_code == 200
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{place.url}/inspect/")
    await page.get_by_text("You are not signed in").wait_for()
    await page.goto(address)
    await page.get_by_text("this address was used before or is too old").wait_for()
    await context.close()


async def test_two_servers_on_one_host_do_not_disturb_each_other(
    place: InspectedServer, other: InspectedServer, browser: Browser
) -> None:
    """One browser is signed in to both, and neither server is shown the secret of the other."""
    async with sign_in(browser, place) as page:
        shown: list[tuple[str, str]] = []
        page.on("request", lambda one: shown.append((one.url, one.headers.get("authorization", ""))))
        await page.goto(other.entrance)
        await wait_until_ready(page, "memories")
        await page.goto(f"{place.url}/inspect/")
        await wait_until_ready(page, "memories")
    first, second = (
        {secret for url, secret in shown if url.startswith(server.url) and secret}
        for server in (place, other)
    )
    assert len(first) == len(second) == 1
    assert first != second


async def test_an_address_signs_in_the_page_that_is_open(place: InspectedServer, browser: Browser) -> None:
    """A browser does not load a page again for what follows the #; the key leaves the address bar."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{place.url}/inspect/")
    await page.get_by_text("You are not signed in").wait_for()
    assert await page.get_by_role("button").count() == 0  # no control that does nothing
    await page.goto(place.entrance)
    await wait_until_ready(page, "memories")
    assert await page.get_by_role("button", name="Apply").is_visible()
    await page.goto(place.entrance)
    await page.wait_for_url("**/inspect/")
    await context.close()


async def test_a_session_that_ended_says_how_to_sign_in(place: InspectedServer, browser: Browser) -> None:
    """It names the address to open, not the token that a program would need."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(place.entrance)
    await wait_until_ready(page, "memories")
    place.sessions.sign_out(await page.evaluate("localStorage.getItem('omoide-secret')"))
    await page.get_by_role("link", name="Timeline").click()
    await page.get_by_text("You are not signed in. Open the address").wait_for()
    await page.route("**/v1/**", lambda route: route.abort())
    await page.get_by_role("link", name="Memories").click()
    await page.get_by_text("The server does not answer").wait_for()
    await context.close()


async def test_a_question_includes_forgotten_memories(place: InspectedServer, browser: Browser) -> None:
    """As the list does."""
    async with sign_in(browser, place) as page:
        await page.get_by_label("Question").fill("which database?")
        await page.get_by_label("Include forgotten").check()
        await page.get_by_role("button", name="Find").click()
        await page.locator(".card.gone", has_text="The shop runs on Postgres 14.").wait_for()


async def test_an_empty_page_says_what_lies_elsewhere(place: InspectedServer, browser: Browser) -> None:
    """Who names an agent without memories reads whose there are, and the fields suggest them."""
    async with sign_in(browser, place) as page:
        await page.get_by_role("combobox", name="Agent").fill("nobody")
        await page.get_by_role("button", name="Apply").click()
        await page.get_by_text("nothing of agent nobody, project shop; ").wait_for()
        await page.locator("#agents option[value=coder]").wait_for(state="attached")
        await page.locator("#projects option[value=shop]").wait_for(state="attached")


async def test_who_signs_out_has_to_sign_in_again(place: InspectedServer, browser: Browser) -> None:
    """The server forgets the session, and the browser its secret."""
    async with sign_in(browser, place) as page:
        secret = await page.evaluate("localStorage.getItem('omoide-secret')")
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_text("You are not signed in").wait_for()
        assert await page.evaluate("localStorage.length") == 0
    assert place.sessions.api_token(secret) is None


@pytest.mark.parametrize("path", ["/", "/inspect"])
def test_other_ways_lead_to_the_pages(place: InspectedServer, path: str) -> None:
    """Whoever types the address without its end gets there."""
    with httpx2.Client(base_url=place.url) as client:
        answer = client.get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/inspect/")


@pytest.mark.parametrize(
    ("origin", "with_secret", "status"),
    [
        (None, False, 401),
        ("http://127.0.0.1:1", False, 401),
        ("http://evil.example", True, 403),
        (None, True, 200),
    ],
    ids=["a program", "a page of another program on this machine", "another site", "our own page"],
)
async def test_other_sites_cannot_change_anything(
    place: InspectedServer, origin: str | None, with_secret: bool, status: int
) -> None:
    """What asks for anything shows a secret that only our own pages have; a browser sends none by itself."""
    async with httpx2.AsyncClient(base_url=place.url) as client:
        answer = await exchange(client, place.sessions.create_key())
        headers = bearer(answer.json()["secret"]) if with_secret else {}
        headers |= {} if origin is None else {"origin": origin}
        where = {"agent": "coder", "session": "monday", "project": "shop"}
        answer = await client.post("/v1/forget", params=where, json={"id": place.decision}, headers=headers)
    assert answer.status_code == status
    found = await place.store.get(place.decision, place.sessions.scope)
    assert (found.superseded_by is not None) == (status == 200)


@pytest.mark.parametrize(
    "path",
    [
        "/inspect/../app.py",
        "/inspect/%2e%2e%2fapp.py",
        "/inspect/..%5capp.py",
        "/inspect/nothing.js",
        "/inspect/a/b",
    ],
)
def test_no_other_file_can_be_had(place: InspectedServer, path: str) -> None:
    """Pages are known by their names, and no path is followed."""
    with httpx2.Client(base_url=place.url) as client:
        answer = client.send(httpx2.Request("GET", place.url + path))
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_nothing_from_elsewhere_may_run(place: InspectedServer) -> None:
    """Scripts, styles and pictures come from this server or not at all, and no other page can frame it."""
    with httpx2.Client(base_url=place.url) as client:
        for name in ("", "main.js", "inspector.css", "icon.svg"):
            answer = client.get(f"/inspect/{name}")
            policy = answer.headers["content-security-policy"]
            assert answer.status_code == 200
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "://" not in answer.text.replace("http://www.w3.org/", "")


def test_a_visit_ends_by_itself(place: InspectedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does an address that nobody used."""
    sessions = place.sessions
    key = sessions.create_key()
    secret = sessions.sign_in(sessions.create_key())
    assert secret is not None
    assert sessions.api_token(secret) is not None
    monkeypatch.setattr("omoide.clock.now", lambda: 10**13)
    assert sessions.api_token(secret) is None
    assert sessions.sign_in(key) is None


def test_every_page_is_documented() -> None:
    """The page about the inspector has a row for each of its pages, by the title that is shown."""
    shown = (ROOT / "src" / "omoide" / "web" / "inspector" / "main.js").read_text("utf-8")
    told = (ROOT / "docs" / "inspector.md").read_text("utf-8")
    assert [name for name in PAGES if f"| {name.capitalize()} |" not in told] == []
    assert [name for name in PAGES if f'{name}: "{name.capitalize()}"' not in shown] == []
