"""Environment variables set the length of the tests; `make soak` sets them high.

`OMOIDE_EXAMPLES`: how many examples each property is tried with. `OMOIDE_KILLS`: how often a writing process
is killed, `OMOIDE_SEED`: the seed of those that fork. `OMOIDE_SECONDS`, `OMOIDE_WORKERS`: for how long, and
by how many processes × threads, one file is used at once. `OMOIDE_TURNS`: how many turns of two tenants are
interleaved. `OMOIDE_MCP_SERVERS`, `OMOIDE_MCP_CALLS`: how many MCP servers use one file at once, and how
often each is called.
`OMOIDE_SCHEMA_EXAMPLES`: how many requests are made up for each route of the service.
`OMOIDE_DIALOGUES`: how many conversations are replayed through sessions.
`OMOIDE_WEB_SECONDS`: for how long several connections use a service.
`OMOIDE_TRIES`: how often is tried to cross scopes on SQLite; a tenth of it on each other store, a hundredth
through REST, MCP and the blocking verbs, and a five-thousandth through the shell.
"""

import os
import signal

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("OMOIDE_EXAMPLES", "30"))
SOAK = "OMOIDE_EXAMPLES" in os.environ
"""Sizes that only cost time are small unless the length of the tests was set."""

settings.register_profile(
    "omoide",
    max_examples=EXAMPLES,
    stateful_step_count=min(50, max(30, EXAMPLES // 40)),
    deadline=None,
    derandomize=False,
    print_blob=True,
    # A busy machine is not a broken property.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("omoide")

FEW = settings(max_examples=EXAMPLES if SOAK else 10)
"""For properties whose every example opens all back ends."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it runs in the background ignore Ctrl-C, and so would every process of the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
