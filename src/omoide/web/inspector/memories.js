// The list of memories, and recall with its reasons.

import { get, inWords, post, types } from "./api.js";
import { ask, clipped, decimal, el, facts, moment, notice, table } from "./dom.js";

const LONGEST = 2000; // characters that are shown of a memory

export async function show(main, given) {
    const list = el("ul", { class: "cards", "aria-label": "Memories" });
    const told = el("p", { class: "faint" });
    const more = el("button", { type: "button", hidden: true }, "More");
    const form = el(
        "form",
        {
            class: "bar",
            role: "search",
            onsubmit: (event) => {
                event.preventDefault();
                again();
            },
        },
        el(
            "label",
            {},
            "Question",
            el("input", { name: "query", type: "search", size: 34, value: given.get("query") || "" }),
        ),
        el(
            "label",
            {},
            "Type",
            el(
                "select",
                { name: "type" },
                el("option", { value: "" }, "any"),
                types().map((type) => el("option", {}, type)),
            ),
        ),
        el(
            "label",
            {},
            "Min. confidence",
            el("input", { name: "sure", type: "number", min: 0, max: 1, step: 0.05, value: 0 }),
        ),
        el(
            "label",
            {},
            "Min. relevance",
            el("input", { name: "relevance", type: "number", min: 0, max: 1, step: 0.05, value: 0 }),
        ),
        el("label", {}, "Since", el("input", { name: "since", type: "date" })),
        el("label", {}, "Until", el("input", { name: "until", type: "date" })),
        el(
            "label",
            { class: "check" },
            el("input", { name: "gone", type: "checkbox" }),
            "Include forgotten",
        ),
        el("button", { class: "main" }, "Find"),
    );
    main.append(form, told, list, more);

    async function find(cursor) {
        const said = Object.fromEntries(new FormData(form));
        const day = (text, days) => (text ? Date.parse(`${text}T00:00:00Z`) + days * 864e5 : undefined);
        const [since, until] = [day(said.since, 0), said.until ? day(said.until, 1) - 1 : undefined];
        if (!cursor) list.replaceChildren();
        if (said.query.trim()) {
            const filter = {
                ...(said.type && { types: [said.type] }),
                ...(since && { since }),
                ...(until && { until }),
                min_confidence: Number(said.sure),
                include_superseded: said.gone === "on",
            };
            const min_relevance = Number(said.relevance);
            const found = await post("recall", { query: said.query, limit: 20, filter, min_relevance });
            const withheld = found.withheld.length
                ? ` ${found.withheld.length} left out, below the min. relevance.`
                : "";
            told.replaceChildren(
                (found.hits.length
                    ? found.weak
                        ? "Nothing matches well; this is the closest there is."
                        : `${found.hits.length} found, best first.`
                    : ["Nothing found.", ...found.notices].join(" ")) + withheld,
            );
            list.replaceChildren(...found.hits.map((hit) => card(hit.entry, hit, again)));
            more.hidden = true;
            return;
        }
        const page = await get("entries", {
            limit: 25,
            cursor,
            type: said.type,
            min_confidence: said.sure,
            since,
            until,
            include_superseded: said.gone === "on",
        });
        list.append(...page.entries.map((entry) => card(entry, null, again)));
        told.replaceChildren(
            list.children.length ? "Newest first." : ["No memories in this scope.", ...page.notices].join(" "),
        );
        more.hidden = !page.cursor;
        more.onclick = () => find(page.cursor).catch(failed);
    }
    const failed = (error) => notice(error.message);
    const again = () => find(null).catch(failed);
    await find(null);
}

export function card(entry, hit, again) {
    const gone = entry.superseded_by !== null;
    return el(
        "li",
        { class: gone || entry.stale ? "card gone" : "card", "data-id": entry.id },
        el("p", { class: "content" }, clipped(entry.content, LONGEST)),
        entry.rationale ? el("p", { class: "faint" }, `because ${clipped(entry.rationale, LONGEST)}`) : null,
        facts([
            ["", entry.type || "memory"],
            ["confidence", decimal(entry.confidence)],
            ["user", entry.user_id],
            ["agent", entry.agent_id],
            ["session", entry.session_id],
            ["project", entry.project_id],
            ["at", moment(entry.occurred_at ?? entry.created_at)],
            ["rev", entry.rev],
            ["id", entry.id],
            ["relevance", hit && hit.relevance !== null ? decimal(hit.relevance) : ""],
            ["", gone ? `forgotten: ${entry.superseded_reason || entry.superseded_by}` : ""],
            ["", entry.stale ? "stale" : ""],
        ]),
        entry.tags.length
            ? el(
                  "p",
                  {},
                  entry.tags.map((tag) => [el("span", { class: "tag" }, tag), " "]),
              )
            : null,
        hit && hit.newer
            ? el(
                  "p",
                  {},
                  "Newer: ",
                  el("a", { href: `#/graph?id=${encodeURIComponent(hit.newer)}` }, hit.newer),
              )
            : null,
        hit ? el("details", {}, el("summary", {}, "Why"), reasons(hit)) : null,
        el(
            "div",
            { class: "acts" },
            el("a", { href: `#/graph?id=${encodeURIComponent(entry.id)}` }, "Provenance"),
            gone
                ? el("button", { type: "button", onclick: () => restore(entry, again) }, "Restore")
                : el("button", { type: "button", onclick: () => forget(entry, again) }, "Forget"),
            el("button", { type: "button", class: "danger", onclick: () => erase(entry, again) }, "Erase"),
        ),
    );
}

function reasons(hit) {
    if (!hit.why.reasons.length) return el("p", {}, "Nothing matched; it is among the newest.");
    const phrase = (one) => inWords(one.part, one.value) + (one.note ? `: ${one.note}` : "");
    const rows = hit.why.reasons.map((one) => [
        phrase(one),
        one.value.toFixed(2),
        one.rank === null ? "" : `#${one.rank}`,
        one.part,
    ]);
    return [
        el(
            "ul",
            { "aria-label": "Why it was found" },
            [...new Set(hit.why.reasons.map(phrase))].map((text) => el("li", {}, text)),
        ),
        el(
            "details",
            {},
            el("summary", {}, `Numbers: score ${hit.score.toFixed(2)}`),
            table("Parts of the score", ["meaning", "adds", "rank", "part"], rows),
        ),
    ];
}

const whose = (entry) => ({ user: entry.user_id, agent: entry.agent_id, session: null, project: null });

async function act(path, body, entry, done, again) {
    try {
        await post(path, body, whose(entry));
        notice(done);
        again();
    } catch (error) {
        notice(error.message);
    }
}

async function forget(entry, again) {
    const fields = [
        el("label", {}, "Reason", el("input", { name: "reason" })),
        el("label", {}, "Id of the memory that takes its place, if any", el("input", { name: "instead" })),
    ];
    const answer = await ask(
        "Forget this?",
        `It is not recalled any more; restore brings it back. “${clipped(entry.content, 120)}”`,
        "Forget",
        fields,
    );
    if (!answer) return;
    const body = { id: entry.id, reason: answer.reason || null, replacement: answer.instead.trim() || null };
    await act("forget", body, entry, "Forgotten.", again);
}

const restore = (entry, again) => act("restore", { id: entry.id }, entry, "Restored.", again);

async function erase(entry, again) {
    const answer = await ask(
        "Erase this permanently?",
        `Nothing brings it back. “${clipped(entry.content, 120)}”`,
        "Erase permanently",
    );
    if (answer) await act("erase", { id: entry.id }, entry, "Erased.", again);
}
