"""The runner of the test suite: one pytest session for all parts, its order, and the account of its time.

Enter by `plugin`, which tests/conftest.py registers. `tiers` says which tests run when, and `groups` which of them
belong together and what they need. `scheduler` hands groups to workers, `pilots` shares pilot pods between them,
`sessions` removes what they leave, `times` measures, and `__main__` runs it all.
"""

from typing import Final

ORDERS: Final = "K8SPILOT_TEST_ORDERS"
"""Environment variable: the number of sequences of events in tests/engine/test_any_order.py."""
