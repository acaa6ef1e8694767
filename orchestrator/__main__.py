"""`python -m orchestrator` is the `sparring` command."""

from orchestrator.cli import main

if __name__ == "__main__":
    main()
