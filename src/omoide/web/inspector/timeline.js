// The memories at an earlier time.

import { get } from "./api.js";
import { el, moment, notice } from "./dom.js";
import { card } from "./memories.js";

export async function show(main) {
    const changes = [];
    for (let after = 0; changes.length < 5000;) {
        const found = (await get("changes", { after, limit: 500 })).changes;
        changes.push(...found);
        if (found.length < 500) break;
        after = found[found.length - 1].seq;
    }
    if (!changes.length) {
        main.append(el("p", {}, "No changes in this scope."));
        return;
    }
    const moments = [...new Set(changes.map((one) => one.at))].sort((a, b) => a - b);
    const list = el("ul", { class: "cards", "aria-label": "Memories at that moment" });
    const told = el("p", { "aria-live": "polite" });
    const slider = el("input", {
        type: "range",
        min: 0,
        max: moments.length - 1,
        value: moments.length - 1,
        step: 1,
        "aria-label": "Moment",
    });
    const label = el("output", {});
    main.append(el("div", { class: "bar" }, el("label", {}, "Moment", slider), label), told, list);
    let asked = 0;
    async function look() {
        const at = moments[Number(slider.value)];
        const mine = ++asked;
        label.textContent = moment(at);
        slider.setAttribute("aria-valuetext", moment(at));
        const page = await get("entries", { as_of: at, limit: 50 });
        if (mine !== asked) return;
        told.textContent = `${page.entries.length}${page.cursor ? " or more" : ""} memories in use at that time; ${changes.filter((one) => one.at <= at).length} of ${changes.length} changes.`;
        list.replaceChildren(...page.entries.map((entry) => card(entry, null, () => {})));
        for (const act of list.querySelectorAll(".acts button")) act.remove();
    }
    slider.addEventListener("input", () => look().catch((error) => notice(error.message)));
    await look();
}
