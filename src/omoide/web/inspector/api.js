// Requests to the server, and the session of the page.

// The secret of the session is in the storage of this origin: unlike a cookie, it is sent nowhere by itself.
const STORED = "omoide-secret";
let session = null;

export class Problem extends Error {
    constructor(found) {
        super(found.detail || found.title || "failed");
        this.found = found;
    }
}

const SIGNED_OUT =
    "You are not signed in. Open the address that omoide serve printed; it signs in one browser, within ten minutes. After that, start omoide serve again.";

const shown = () => ({ authorization: `Bearer ${localStorage.getItem(STORED)}` });
const configuration = () => request("session", { credentials: "omit", headers: shown() });

async function request(path, options) {
    try {
        return await fetch(path, options);
    } catch {
        throw new Problem({ detail: "The server does not answer. Check that omoide serve is still running." });
    }
}

async function signIn(key) {
    const answer = await request("sign-in", {
        method: "POST",
        credentials: "omit",
        body: JSON.stringify({ key }),
        headers: { "content-type": "application/json" },
    });
    const body = await told(answer);
    localStorage.setItem(STORED, body.secret);
}

export async function entered() {
    const key = /^#key=(.+)$/.exec(location.hash);
    if (key) history.replaceState(null, "", location.pathname);
    let answer = localStorage.getItem(STORED) && (await configuration());
    if (!answer?.ok && key) {
        await signIn(key[1]);
        answer = await configuration();
    }
    if (!answer?.ok) throw new Problem({ detail: SIGNED_OUT });
    session = await answer.json();
    return session;
}

export async function signOut() {
    try {
        await request("sign-out", { method: "POST", credentials: "omit", headers: shown() });
    } finally {
        localStorage.removeItem(STORED);
        location.reload();
    }
}

export const types = () => session.types;
export const inWords = (part, value) => (value < 0 && session.less[part]) || session.words[part] || part;

export const scope = {
    get: () =>
        Object.fromEntries(
            ["namespace", "user", "agent", "session", "project"].map((name) => [
                name,
                document.forms.scope.elements[name].value.trim(),
            ]),
        ),
    query(more = {}) {
        const found = new URLSearchParams();
        for (const [name, value] of Object.entries({ ...scope.get(), ...more }))
            if (value !== "" && value !== null && value !== undefined) found.set(name, value);
        return found.toString();
    },
};

async function told(answer) {
    const body = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
    if (!answer.ok) throw new Problem(answer.status === 401 && session ? { detail: SIGNED_OUT } : body);
    return body;
}

// Stored agents belong to no user, session or project, and their routes refuse these.
const ofAgents = { user: "", session: "", project: "" };
const agentPaths = ["agents", "identity", "spaces", "who-can"];
const query = (path, more) => {
    if (path === "namespaces") return scope.query({ ...ofAgents, agent: "" });
    return scope.query(agentPaths.includes(path) ? { ...more, ...ofAgents } : more);
};

export const get = async (path, more = {}) =>
    told(await request(`../v1/${path}?${query(path, more)}`, { credentials: "omit", headers: shown() }));

export const post = async (path, body, more = {}) =>
    told(
        await request(`../v1/${path}?${query(path, more)}`, {
            method: "POST",
            credentials: "omit",
            body: JSON.stringify(body),
            headers: { "content-type": "application/json", ...shown() },
        }),
    );
