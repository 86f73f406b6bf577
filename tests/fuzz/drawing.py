"""Drawing of inputs: always the same ones in the tests, and new ones by hand."""

import os
from collections.abc import Callable
from typing import Any, Final

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

SEED: Final = "K8SPILOT_FUZZ_SEED"
EXAMPLES: Final = "K8SPILOT_FUZZ_EXAMPLES"

JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["", "0", "true", "no", "a=b", "80/tcp", "/tmp:/tmp", "HTCJob1_0_slot1_PID1", "\0", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def drawn(examples: int, **strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with so many inputs: the same each time, unless the environment has a seed.

    There is no folder of failures that were found before: what is found gets a test of its own.
    """
    number = os.environ.get(SEED)
    how = settings(
        max_examples=int(os.environ.get(EXAMPLES, examples)),
        database=None,
        deadline=None,
        derandomize=number is None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )

    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        found = how(given(**strategies)(test))
        return found if number is None else seed(int(number))(found)

    return wrap
