"""The inspector in a real Chromium; screenshots go to `.cache/inspector`."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import axe_playwright_python
from playwright.async_api import Browser, Page, async_playwright
from tests.support.rest import open_test_store, serve

from omoide import Agent, AgentSpec, Evidence, Runtime, Scope, Session, forget, identity, memory
from omoide.stores import AsyncStore
from omoide.web import InspectorSessions

SHOTS = Path(__file__).parents[2] / ".cache" / "inspector"
PAGES = ("memories", "graph", "session", "prompt", "timeline", "agents", "health")
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
PROJECT = "shop"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
CODER = AgentSpec(id="coder", instructions="Help with the shop.", memory={"scope": "project"})


class InspectedServer(NamedTuple):
    """A server with an inspector, and something to look at."""

    url: str
    store: AsyncStore
    sessions: InspectorSessions
    decision: str

    @property
    def entrance(self) -> str:
        """An address with which somebody can sign in."""
        return f"{self.url}/inspect/#key={self.sessions.create_key()}"


@contextmanager
def serve_inspector(folder: Path) -> Iterator[InspectedServer]:
    """A server over a store in which something happened."""
    sessions = InspectorSessions(Scope(project_id=PROJECT))
    with open_test_store(folder) as store:
        decision = anyio.run(fill_project, store)
        with serve(store, inspector_sessions=sessions) as server:
            yield InspectedServer(server.url, store, sessions, decision)


async def fill_project(store: AsyncStore) -> str:
    """Two sessions, knowledge that hangs together, markup in content, and two agents at rest; a decision."""
    async with Session.open(CODER, "monday", store=store, project_id=PROJECT, llm=_reply) as session:
        await session.chat("We run on Postgres 14, and carts are JSON columns.")
        await session.chat(f"Write tests first. {HOSTILE}")
        session.context.put("framework", "Phoenix 1.7", source="tool", confidence=0.9)
        fact = await session.remember("The shop runs on Postgres 14.", type="fact", confidence=0.95)
        decision = await session.remember(
            "Carts are JSON columns.",
            type="decision",
            rationale="one database",
            evidence=[Evidence(kind="entry", ref=fact.entry.id)],
        )
        await session.remember(f"{HOSTILE} is only text.", type="discovery", tags=["markup"])
        session.set_promotion(enabled=False)  # something is left to be promoted by hand
        session.propose("The checkout is slow.", type="discovery", confidence=0.9)
    await forget(store, fact.entry.id, Scope(project_id=PROJECT), reason="moved to MySQL")
    async with Runtime(store=store) as runtime:
        for id, age, actions in (("veteran", 7, ["fetch_url"]), ("scout", 1, ["fetch_url", "zoom"])):
            agent = identity.ensure(
                Agent.new("worker", id=id, description="Fetches pages."),
                profile={"age": age},
                capabilities={"actions": actions, "tags": ["web"]},
            )
            await runtime.start(memory.world_put(agent, "pages", HOSTILE))
            await runtime.hibernate(id)
    return decision.entry.id


def _reply(request: Any, journal: Any) -> str:
    return "Noted."


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser."""
    path = shutil.which("chromium")
    assert path is not None, "make test installs it: scripts/packages"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def sign_in(browser: Browser, place: InspectedServer, **options: Any) -> AsyncIterator[Page]:
    """Sign in and yield a page; a problem in the page is an error here."""
    context = await browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
    page = await context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    await page.goto(place.entrance)
    await wait_until_ready(page, "memories")
    assert await context.cookies() == []
    assert "key=" not in page.url
    yield page
    assert wrong == []
    await context.close()


async def open_page(page: Page, place: InspectedServer, name: str, query: str = "") -> None:
    """Go to a page, and wait until it is there."""
    await page.goto(f"{place.url}/inspect/#/{name}{query}")
    await page.reload()
    await wait_until_ready(page, name)


async def wait_until_ready(page: Page, name: str) -> None:
    """Until a page shows what it has to show."""
    await page.wait_for_selector(f"main[data-ready={name}]")


async def screenshot(page: Page, name: str) -> None:
    """A picture, for whoever wants to see how it looks."""
    await page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


async def accessibility_violations(page: Page) -> list[str]:
    """What keeps people from using a page, as far as axe can see."""
    await page.evaluate(AXE)
    found = await page.evaluate("axe.run()")
    return [f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:100]}" for one in found["violations"]]
