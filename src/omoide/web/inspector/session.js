// A session: its conversation, short-term memory and promotion candidates.

import { get, post, scope } from "./api.js";
import { el, facts, key, moment, notice, stacked, table } from "./dom.js";

const PARTS = ["recency", "frequency", "confidence", "salience"];
const GIVEN = "importance";

export async function show(main, given) {
    const found = await get("sessions", { session: "" });
    const id = given.get("id") || scope.get().session || (found.sessions[0] || {}).session_id || "";
    if (!found.sessions.length) {
        main.append(el("p", {}, "There are no sessions here yet."));
        return;
    }
    main.append(
        el(
            "form",
            { class: "bar" },
            el(
                "label",
                {},
                "Session",
                el(
                    "select",
                    {
                        onchange: (event) => {
                            location.hash = `#/session?id=${encodeURIComponent(event.target.value)}`;
                        },
                    },
                    found.sessions.map((one) =>
                        el(
                            "option",
                            { value: one.session_id, selected: one.session_id === id },
                            `${one.session_id} (${one.status}, ${moment(one.updated_at)})`,
                        ),
                    ),
                ),
            ),
        ),
    );
    const [talk, plan, context] = await Promise.all([
        get("transcript", { id, session: "" }),
        post("promote", { session: id, dry_run: true }, { session: "" }),
        get("context", { id, session: "" }),
    ]);
    main.append(
        facts([
            ["user", talk.session.user_id],
            ["agent", talk.session.agent_id],
            ["project", talk.session.project_id],
            ["status", talk.session.status],
            ["turns", talk.session.turns],
            ["since", moment(talk.session.created_at)],
        ]),
        el("h3", {}, "Token budget"),
        budget(context),
        el("h3", {}, "Working context"),
        working(context),
        el("h3", {}, "Promotion candidates"),
        candidates(plan, id, main, given),
        el("h3", {}, "Conversation"),
        conversation(talk),
    );
}

function budget(context) {
    const { shares, token_counts: counts } = context;
    const rows = [
        ["conversation", shares.conversation],
        ["working", shares.working],
        ["long_term", shares.long_term],
    ];
    return el(
        "div",
        {},
        rows.map(([name, share], number) => {
            const label = `${name.replace("_", "-")}: ${counts[name]} of ${share} tokens`;
            const before = Array(number).fill(["", 0]); // each part has a colour of its own
            return el(
                "p",
                { class: "budget" },
                label,
                stacked([...before, ["used", Math.min(counts[name], share)]], share, label),
            );
        }),
    );
}

function working(context) {
    const pairs = Object.entries(context.working_context);
    if (!pairs.length) return el("p", { class: "faint" }, "It is empty.");
    return table(
        "Working context",
        ["key", "value"],
        pairs.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
    );
}

function candidates(plan, id, main, given) {
    if (!plan.candidates.length) return el("p", { class: "faint" }, "No candidates.");
    const promote = async () => {
        try {
            const done = await post("promote", { session: id, dry_run: false }, { session: "" });
            notice(`${done.run ? done.run.promoted.length : 0} promoted.`);
            main.replaceChildren(el("h2", {}, "Session"));
            await show(main, given);
        } catch (error) {
            notice(error.message);
        }
    };
    const good = plan.candidates.filter((one) => one.verdict === "promote").length;
    return el(
        "div",
        {},
        el(
            "ul",
            { class: "facts" },
            [...PARTS, GIVEN].map((name, number) => key(number, name)),
            el("li", {}, `threshold ${plan.threshold}`),
        ),
        table(
            "Promotion candidates",
            ["verdict", "score", "type", "content", "why"],
            plan.candidates.map((one) => [
                el("span", { class: one.verdict === "promote" ? "good" : "" }, one.verdict),
                [bar(one), ` ${one.score.toFixed(3)}`],
                one.entry.type || "",
                one.entry.content,
                one.why,
            ]),
        ),
        el(
            "div",
            { class: "acts" },
            el(
                "button",
                { type: "button", class: "main", disabled: !good, onclick: promote },
                `Promote ${good} now`,
            ),
        ),
    );
}

function bar(one) {
    const parts = PARTS.map((name) => [name, one.parts ? one.parts[name] * one.parts.weights[name] : 0]);
    // What was proposed comes with its importance, and has no parts.
    return stacked([...parts, [GIVEN, one.parts ? 0 : one.score]], 1, `score ${one.score.toFixed(3)}`);
}

function conversation(talk) {
    const shown = talk.entries.filter((one) =>
        ["message", "tool_call", "tool_result", "error"].includes(one.kind),
    );
    if (!shown.length) return el("p", { class: "faint" }, "No messages.");
    return el(
        "div",
        {},
        shown.map(({ kind, payload, at, seq }) =>
            el(
                "div",
                { class: `said ${payload.role || ""}` },
                el(
                    "p",
                    { class: "faint" },
                    `${payload.role || kind.replace("_", " ")}${payload.name ? ` ${payload.name}` : ""}, ${moment(at)}, #${seq}`,
                ),
                el(
                    "p",
                    { class: "content" },
                    payload.content ||
                        payload.problem ||
                        (payload.params ? JSON.stringify(payload.params) : ""),
                ),
            ),
        ),
    );
}
