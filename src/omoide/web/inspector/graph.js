// The provenance of a memory, and what it is related to.

import { get } from "./api.js";
import { clipped, decimal, el, moment, notice, svg, wide } from "./dom.js";
import { card } from "./memories.js";

const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [210, 54, 110, 22];

export async function show(main, given) {
    const id = given.get("id") || "";
    const form = el(
        "form",
        {
            class: "bar",
            onsubmit: (event) => {
                event.preventDefault();
                location.hash = `#/graph?id=${encodeURIComponent(new FormData(form).get("id"))}`;
            },
        },
        el(
            "label",
            {},
            "Memory",
            el("input", {
                name: "id",
                size: 40,
                value: id,
                placeholder: "mem_…",
                spellcheck: "false",
                required: true,
            }),
        ),
        el("button", { class: "main" }, "Show"),
    );
    main.append(form);
    if (!id) {
        const page = await get("entries", { limit: 10 });
        main.append(
            el(
                "p",
                {},
                page.entries.length ? "Choose one of the newest:" : "No memories in this scope.",
            ),
            el(
                "ul",
                {},
                page.entries.map((entry) =>
                    el(
                        "li",
                        {},
                        el(
                            "a",
                            { href: `#/graph?id=${encodeURIComponent(entry.id)}` },
                            clipped(entry.content, 90),
                        ),
                    ),
                ),
            ),
        );
        return;
    }
    const [origin, relatives] = await Promise.all([
        get("provenance", { id }),
        get("related", { id, depth: 3 }),
    ]);
    const drawn = layout(origin, relatives.related);
    main.append(
        el(
            "ul",
            { class: "cards" },
            card(origin.entry, null, () => {
                notice("Done.");
                show(main, given);
            }),
        ),
        el("h3", {}, "Diagram"),
        wide("The graph", picture(drawn)),
        el("h3", {}, "Relations"),
        el(
            "ul",
            {},
            drawn.links.map((link) =>
                el("li", {}, `${name(drawn, link.from)} — ${link.word} → ${name(drawn, link.to)}`),
            ),
        ),
    );
    if (!drawn.links.length)
        main.append(
            el("p", { class: "faint" }, "It depends on no other memory, and has no relations."),
        );
}

const name = (drawn, id) => clipped(drawn.nodes.get(id).text, 60);

function layout(origin, related) {
    const nodes = new Map();
    const links = [];
    const node = (id, text, note, column, more = {}) => {
        if (!nodes.has(id)) nodes.set(id, { id, text, note, column, ...more });
        return id;
    };
    const memory = (entry, column, more = {}) =>
        node(entry.id, entry.content, `${entry.type || "memory"}, confidence ${decimal(entry.confidence)}`, column, {
            memory: true,
            gone: entry.superseded_by !== null || entry.stale,
            ...more,
        });
    const rest = (one, column) => {
        memory(one.entry, column, { here: column === 0 });
        for (const traced of one.evidence || []) {
            const evidence = traced.evidence;
            if (traced.memory) {
                rest(traced.memory, column - 1);
                links.push({ from: one.entry.id, to: traced.memory.entry.id, word: "depends on" });
                continue;
            }
            const said = traced.said;
            const id = node(
                `${evidence.kind}:${evidence.ref}`,
                said ? said.content || evidence.ref : evidence.quote || evidence.ref,
                said ? `${said.role || evidence.kind} ${moment(said.at)}` : evidence.kind,
                column - 1,
            );
            links.push({ from: one.entry.id, to: id, word: "comes from" });
        }
    };
    rest(origin, 0);
    for (const one of related) {
        if (["derived_from"].includes(one.relation) && one.direction === "out" && nodes.has(one.entry.id))
            continue;
        // On the side of the memory from which it was reached, so that no line crosses the one in the middle.
        const beside = nodes.get(one.via).column;
        memory(one.entry, beside < 0 ? beside - 1 : beside + 1);
        const [from, to] = one.direction === "out" ? [one.via, one.entry.id] : [one.entry.id, one.via];
        const word = one.relation.replaceAll("_", " ");
        if (!links.some((link) => link.from === from && link.to === to)) links.push({ from, to, word });
    }
    const columns = new Map();
    for (const one of nodes.values()) {
        if (!columns.has(one.column)) columns.set(one.column, []);
        columns.get(one.column).push(one);
    }
    const order = [...columns.keys()].sort((a, b) => a - b);
    const tallest = Math.max(...[...columns.values()].map((column) => column.length));
    order.forEach((column, at) =>
        columns.get(column).forEach((one, row) => {
            one.x = at * (WIDTH + GAP_X) + 4;
            one.y =
                row * (HEIGHT + GAP_Y) + ((tallest - columns.get(column).length) * (HEIGHT + GAP_Y)) / 2 + 4;
        }),
    );
    return {
        nodes,
        links,
        width: order.length * (WIDTH + GAP_X) + 8,
        height: tallest * (HEIGHT + GAP_Y) - GAP_Y + 8,
    };
}

function picture({ nodes, links, width, height }) {
    const lines = links.map(({ from, to, word }) => {
        const [a, b] = [nodes.get(from), nodes.get(to)];
        const onward = Math.sign(b.x - a.x); // 0 where both stand in one column
        const [x1, x2] = onward < 0 ? [a.x, b.x + WIDTH] : [a.x + WIDTH, onward ? b.x : b.x + WIDTH];
        const [y1, y2] = [a.y + HEIGHT / 2, b.y + HEIGHT / 2];
        const bend = onward ? (x2 - x1) / 2 : GAP_X * 0.8;
        const middle = onward ? (x1 + x2) / 2 : x1 + bend * 0.75;
        return [
            svg("path", {
                class: "link",
                "marker-end": "url(#arrow)",
                d: `M${x1},${y1} C${x1 + bend},${y1} ${onward ? x2 - bend : x2 + bend},${y2} ${x2},${y2}`,
            }),
            svg("text", { class: "faint", x: middle, y: (y1 + y2) / 2 - 4, "text-anchor": "middle" }, word),
        ];
    });
    const arrow = svg(
        "marker",
        {
            id: "arrow",
            viewBox: "0 0 8 8",
            refX: 8,
            refY: 4,
            markerWidth: 8,
            markerHeight: 8,
            orient: "auto",
        },
        svg("path", { class: "tip", d: "M0,0 L8,4 L0,8 z" }),
    );
    const boxes = [...nodes.values()].map((one) => {
        const inner = [
            svg("title", {}, one.text),
            svg("rect", {
                class: `box${one.here ? " here" : ""}${one.gone ? " gone" : ""}`,
                x: one.x,
                y: one.y,
                width: WIDTH,
                height: HEIGHT,
                rx: 8,
            }),
            svg("text", { x: one.x + 10, y: one.y + 22 }, clipped(one.text, 31)),
            svg("text", { class: "faint", x: one.x + 10, y: one.y + 42 }, clipped(one.note, 31)),
        ];
        return one.memory && !one.here
            ? svg("a", { href: `#/graph?id=${encodeURIComponent(one.id)}` }, inner)
            : svg("g", {}, inner);
    });
    return svg(
        "svg",
        {
            viewBox: `0 0 ${width} ${height}`,
            width,
            height,
            role: "group",
            "aria-label": "What the memory depends on, at the left, and what it is related to, at the right",
        },
        svg("defs", {}, arrow),
        lines,
        boxes,
    );
}
