// Navigation, shortcuts and signing in.

import { entered, get, scope, signOut } from "./api.js";
import { el, notice } from "./dom.js";
import * as agents from "./agents.js";
import * as graph from "./graph.js";
import * as health from "./health.js";
import * as memories from "./memories.js";
import * as prompt from "./prompt.js";
import * as session from "./session.js";
import * as timeline from "./timeline.js";

const PAGES = { memories, graph, session, prompt, timeline, agents, health };
const TITLES = {
    memories: "Memories",
    graph: "Graph",
    session: "Session",
    prompt: "Prompt",
    timeline: "Timeline",
    agents: "Agents",
    health: "Health",
};
const main = document.getElementById("main");

function where() {
    const [page, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    return { page: PAGES[page] ? page : "memories", given: new URLSearchParams(query) };
}

async function show() {
    const { page, given } = where();
    for (const link of document.querySelectorAll("#pages a")) {
        if (link.dataset.page === page) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    document.title = `${TITLES[page]} · Omoide`;
    main.replaceChildren(el("h2", {}, TITLES[page]));
    main.dataset.ready = "";
    try {
        await PAGES[page].show(main, given);
    } catch (error) {
        main.append(el("p", { class: "bad", role: "alert" }, error.message));
    }
    main.dataset.ready = page;
}

function keys(event) {
    if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) ||
        document.getElementById("dialog").open
    )
        return;
    const names = Object.keys(PAGES);
    if (/^[1-7]$/.test(event.key)) location.hash = `#/${names[event.key - 1]}`;
    else if (event.key === "/") {
        event.preventDefault();
        (main.querySelector("input, textarea") || document.forms.scope.elements.namespace).focus();
    } else if (event.key === "?") help();
}

function help() {
    const dialog = document.getElementById("dialog");
    const rows = Object.values(TITLES).map((title, at) => [String(at + 1), title]);
    dialog.replaceChildren(
        el("h2", { id: "dialog-title" }, "Shortcuts"),
        el(
            "dl",
            { class: "keys" },
            [...rows, ["/", "First field"], ["?", "This list"]].map(([key, what]) => [
                el("dt", {}, el("kbd", {}, key)),
                el("dd", {}, what),
            ]),
        ),
        el("form", { method: "dialog" }, el("button", { autofocus: true }, "Close")),
    );
    dialog.showModal();
}

async function suggest() {
    const all = { user: "", agent: "", session: "", project: "" };
    const [found, resting, { owners }, { namespaces }] = await Promise.all([
        get("sessions", all),
        get("agents", all),
        get("owners", all),
        get("namespaces"),
    ]);
    const offer = (list, names) =>
        document
            .getElementById(list)
            .replaceChildren(
                ...[...new Set(names)].filter(Boolean).map((name) => el("option", { value: name })),
            );
    offer("namespaces", namespaces);
    offer("users", owners.map((one) => one.user_id));
    offer("agents", [
        ...owners.map((one) => one.agent_id),
        ...found.sessions.map((one) => one.agent_id),
        ...resting.agents.map((one) => one.id),
    ]);
    offer("sessions", found.sessions.map((one) => one.session_id));
    offer("projects", owners.map((one) => one.project_id));
}

async function begin() {
    document
        .getElementById("pages")
        .replaceChildren(
            ...Object.entries(TITLES).map(([page, title]) =>
                el("li", {}, el("a", { href: `#/${page}`, "data-page": page }, title)),
            ),
        );
    // The address of a sign-in differs from the page only after the #, so the browser does not load it again.
    addEventListener("hashchange", () => location.hash.startsWith("#key=") && location.reload());
    try {
        const session = await entered();
        for (const [name, value] of Object.entries(session.scope))
            document.forms.scope.elements[name].value = value || "";
    } catch (error) {
        main.replaceChildren(
            el("h2", {}, "Sign in"),
            el("p", { class: "bad", role: "alert" }, error.message),
        );
        main.dataset.ready = "signed-out";
        return;
    }
    document.forms.scope.addEventListener("submit", (event) => {
        event.preventDefault();
        notice(`Applied: namespace ${scope.get().namespace}`);
        show();
        suggest().catch(() => {});
    });
    for (const hidden of document.querySelectorAll("body [hidden]")) hidden.hidden = false;
    document.getElementById("help").addEventListener("click", help);
    document.getElementById("sign-out").addEventListener("click", signOut);
    addEventListener("hashchange", show);
    addEventListener("keydown", keys);
    await show();
    suggest().catch(() => {});
}

begin();
