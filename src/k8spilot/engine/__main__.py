"""`python -m k8spilot.engine`: the engine process, which the supervisor starts."""

import sys

from k8spilot.engine.memory import imported

sys.exit(imported().main())
