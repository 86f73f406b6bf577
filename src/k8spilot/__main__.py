"""`python -m k8spilot`."""

from k8spilot.cli import main

main()
