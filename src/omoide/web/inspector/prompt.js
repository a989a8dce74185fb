// The prompt of a model for a message, and what was cut.

import { get, post, scope } from "./api.js";
import { decimal, el, notice } from "./dom.js";

export async function show(main, given) {
    const found = await get("sessions", { session: "" });
    if (!found.sessions.length) {
        main.append(el("p", {}, "There are no sessions here yet."));
        return;
    }
    const answer = el("div", {});
    const form = el(
        "form",
        {
            class: "bar",
            onsubmit: (event) => {
                event.preventDefault();
                look().catch((error) => notice(error.message));
            },
        },
        el(
            "label",
            {},
            "Session",
            el(
                "select",
                { name: "session" },
                found.sessions.map((one) =>
                    el("option", { selected: one.session_id === scope.get().session }, one.session_id),
                ),
            ),
        ),
        el(
            "label",
            {},
            "Message",
            el("input", { name: "message", size: 40, required: true, value: given.get("message") || "" }),
        ),
        el("button", { class: "main" }, "Show"),
    );
    main.append(el("p", { class: "faint" }, "No model is called, and nothing is written."), form, answer);

    async function look() {
        const said = Object.fromEntries(new FormData(form));
        const seen = await post(
            "preflight",
            { session: said.session, message: said.message },
            { session: "" },
        );
        const messages = seen.prompt.messages;
        const entries = seen.prompt.memory ? seen.prompt.memory.entries : [];
        const cut = seen.prompt.cut.map((one) => `${one.part} ${one.ref}: ${one.reason}`);
        const notes = [...cut, ...(seen.diagnostics || []), ...(seen.notices || [])];
        answer.replaceChildren(
            el("h3", {}, "Messages"),
            ...messages.map((one) =>
                el(
                    "div",
                    { class: `said ${one.role}` },
                    el("p", { class: "faint" }, one.role),
                    el("p", { class: "content" }, one.content || ""),
                ),
            ),
            el("h3", {}, "Memories"),
            entries.length
                ? el(
                      "ul",
                      {},
                      entries.map((one) =>
                          el(
                              "li",
                              {},
                              one.content,
                              el(
                                  "span",
                                  { class: "faint" },
                                  one.confidence === undefined ? "" : ` (confidence ${decimal(one.confidence)})`,
                                  one.relevance === null ? "" : ` relevance ${decimal(one.relevance)}`,
                                  one.newer === null ? "" : ` Newer: ${one.newer}`,
                              ),
                          ),
                      ),
                  )
                : el("p", { class: "faint" }, "None."),
            el("h3", {}, "Cut parts and notes"),
            notes.length
                ? el(
                      "ul",
                      {},
                      notes.map((one) =>
                          el("li", {}, typeof one === "string" ? one : one.message || JSON.stringify(one)),
                      ),
                  )
                : el("p", { class: "faint" }, "None."),
        );
    }
    if (given.get("message")) await look();
}
