// Statistics and the integrity check.

import { get } from "./api.js";
import { el, percent, stacked, table } from "./dom.js";

export async function show(main) {
    const found = await get("status", { check: true });
    const { stats } = found;
    const shown = [
        ["version", found.version],
        ["store", found.store],
        ["embedder", stats.embedder || "none"],
        ["size", `${(stats.size_bytes / 1e6).toFixed(1)} MB`],
        ["memories", stats.entries],
        ["in use", stats.live],
        ["forgotten", stats.superseded],
        ["stale", stats.stale],
        ["expired", stats.expired],
        ["versions", stats.versions],
        ["links", stats.links],
        ["without vectors", stats.without_vectors],
        ["changes so far", stats.last_seq],
    ];
    main.append(
        el(
            "p",
            { class: found.problems.length ? "bad" : "good", role: "status" },
            found.problems.length ? `${found.problems.length} problems` : "No problems found.",
        ),
        el(
            "ul",
            {},
            found.problems.map((one) => el("li", {}, one)),
        ),
        table(
            "Figures",
            null,
            shown.map(([name, value]) => [name, String(value)]),
        ),
        el("h3", {}, "By type"),
        kinds(stats.by_type),
    );
}

function kinds(counts) {
    const rows = Object.entries(counts).sort((a, b) => b[1] - a[1]);
    const total = rows.reduce((sum, [, count]) => sum + count, 0);
    if (!total) return el("p", { class: "faint" }, "No memories in this scope.");
    return table(
        "Memories by type",
        ["type", "memories", "share"],
        rows.map(([name, count]) => [
            name || "memory",
            String(count),
            stacked([["share", count]], total, percent(count / total)),
        ]),
    );
}
