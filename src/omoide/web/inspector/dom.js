// Elements of a page, made of text and never of markup: memories are data.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, properties, children) {
    for (const [name, value] of Object.entries(properties)) {
        if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
        else if (value !== null && value !== undefined && value !== false)
            node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(3))
        if (child !== null && child !== undefined && child !== false) node.append(child);
    return node;
}

export const el = (tag, properties = {}, ...children) =>
    filled(document.createElement(tag), properties, children);
export const svg = (tag, properties = {}, ...children) =>
    filled(document.createElementNS(SVG, tag), properties, children);
export const facts = (pairs) =>
    el(
        "ul",
        { class: "facts" },
        pairs
            .filter(([, value]) => value !== null && value !== undefined && value !== "")
            .map(([name, value]) => el("li", {}, name ? `${name} ` : "", el("b", {}, value))),
    );
export const wide = (label, child) =>
    el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, child);
export const table = (label, titles, rows) =>
    wide(
        label,
        el(
            "table",
            {},
            titles
                ? el(
                      "thead",
                      {},
                      el(
                          "tr",
                          {},
                          titles.map((title) => el("th", { scope: "col" }, title)),
                      ),
                  )
                : null,
            el(
                "tbody",
                {},
                rows.map((row) =>
                    el(
                        "tr",
                        {},
                        row.map((cell, at) =>
                            at === 0 ? el("th", { scope: "row" }, cell) : el("td", {}, cell),
                        ),
                    ),
                ),
            ),
        ),
    );
export const clipped = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
export const moment = (ms) =>
    ms === null || ms === undefined ? "" : new Date(ms).toISOString().replace("T", " ").slice(0, 16);
export const percent = (part) => `${Math.round(part * 100)} %`;
export const decimal = (part) => String(Math.round(part * 100) / 100);
export const key = (number, text) => el("li", {}, el("span", { class: `key s${number}` }), text);

export function notice(text) {
    document.getElementById("notice").replaceChildren(el("span", {}, text));
    clearTimeout(notice.timer);
    notice.timer = setTimeout(() => document.getElementById("notice").replaceChildren(), 6000);
}

export function ask(title, text, word, more = []) {
    const dialog = document.getElementById("dialog");
    return new Promise((resolve) => {
        const done = (answer) => {
            dialog.close();
            resolve(answer);
        };
        const form = el(
            "form",
            {
                method: "dialog",
                onsubmit: (event) => {
                    event.preventDefault();
                    done(Object.fromEntries(new FormData(form)));
                },
            },
            el("h2", { id: "dialog-title" }, title),
            el("p", {}, text),
            more,
            el(
                "div",
                { class: "acts" },
                el("button", { type: "submit", class: "danger" }, word),
                el("button", { type: "button", onclick: () => done(null), autofocus: true }, "Cancel"),
            ),
        );
        dialog.replaceChildren(form);
        dialog.oncancel = () => resolve(null);
        dialog.showModal();
    });
}

export function stacked(parts, total, label) {
    let at = 0;
    const bars = parts.map(([name, value], number) => {
        const width = total > 0 ? (Math.max(0, value) / total) * 100 : 0;
        const bar = svg(
            "rect",
            { x: at, y: 0, width, height: 14, class: `s${number % 5}` },
            svg("title", {}, `${name}: ${Number(value.toFixed(3))}`),
        );
        at += width;
        return bar;
    });
    return svg(
        "svg",
        {
            viewBox: "0 0 100 14",
            width: 260,
            height: 16,
            preserveAspectRatio: "none",
            role: "img",
            "aria-label": label,
        },
        svg("rect", { x: 0, y: 0, width: 100, height: 14, class: "box" }),
        bars,
    );
}
