"""`python -m k8spilot`."""

from k8spilot.cli.main import main

if __name__ == "__main__":  # the provisioner's worker process imports this module as well (multiprocessing, spawn)
    main()
