"""`python -m k8spilot`."""

from k8spilot.cli.main import main

main()
