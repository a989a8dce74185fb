// The stored agents, and those that can do an action.

import { get, post } from "./api.js";
import { el, facts, notice } from "./dom.js";

export async function show(main) {
    const found = await get("agents");
    const answer = el("ol", {});
    const form = el(
        "form",
        {
            class: "bar",
            onsubmit: (event) => {
                event.preventDefault();
                find().catch((error) => notice(error.message));
            },
        },
        el("label", {}, "Action", el("input", { name: "action", placeholder: "fetch_url" })),
        el("label", {}, "Tags", el("input", { name: "tags", placeholder: "web, fast" })),
        el("button", { class: "main" }, "Find"),
    );
    main.append(el("h3", {}, "Find an agent"), form, answer, el("h3", {}, "All agents"));
    if (!found.agents.length) {
        main.append(el("p", {}, "No agent is stored in this namespace yet."));
        return;
    }
    main.append(el("ul", { class: "cards" }, found.agents.map(identity)));

    async function find() {
        const said = Object.fromEntries(new FormData(form));
        const tags = said.tags
            .split(",")
            .map((tag) => tag.trim())
            .filter(Boolean);
        const { choices } = await post("who-can", {
            ...(said.action.trim() && { action: said.action.trim() }),
            tags,
        });
        answer.replaceChildren(
            ...(choices.length
                ? choices.map((one) => el("li", {}, el("b", {}, one.id), ` — ${one.reason}`))
                : [el("li", {}, "No agent can do this.")]),
        );
    }
}

function identity(one) {
    const known = one.identity || { capabilities: { actions: [], tags: [] }, profile: {}, extensions: {} };
    const { actions = [], tags = [], limits = {} } = known.capabilities || {};
    const spaces = el("div", {});
    const look = async () => {
        const found = await get("spaces", { id: one.id });
        spaces.replaceChildren(
            ...found.spaces.map((space) =>
                el(
                    "details",
                    {},
                    el("summary", {}, `${space.name}, rev ${space.rev}`),
                    el("pre", {}, JSON.stringify(space.data, null, 2)),
                ),
            ),
        );
    };
    return el(
        "li",
        { class: "card" },
        el("p", { class: "content" }, el("b", {}, one.id), one.description ? ` — ${one.description}` : ""),
        one.problem ? el("p", { class: "bad" }, one.problem) : null,
        facts([
            ["kind", one.name],
            ["age", known.profile ? known.profile.age : null],
            ["hibernated", `${one.rev}×`],
            ["spaces", one.spaces.join(", ")],
        ]),
        actions.length
            ? el(
                  "p",
                  {},
                  "can ",
                  actions.map((name) => [el("span", { class: "tag" }, name), " "]),
              )
            : null,
        tags.length
            ? el(
                  "p",
                  {},
                  "is ",
                  tags.map((name) => [el("span", { class: "tag" }, name), " "]),
              )
            : null,
        Object.keys(limits).length ? facts(Object.entries(limits)) : null,
        one.spaces.length
            ? el(
                  "div",
                  { class: "acts" },
                  el(
                      "button",
                      { type: "button", onclick: () => look().catch((error) => notice(error.message)) },
                      "Show spaces",
                  ),
              )
            : null,
        spaces,
    );
}
