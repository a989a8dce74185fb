"""How many examples do the property tests try? One variable, `OMOIDE_EXAMPLES`, answers for all of them."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("OMOIDE_EXAMPLES", "30"))

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
