"""`python -m sparring` is the `sparring` command."""

from sparring.orchestrator.cli import main

if __name__ == "__main__":
    main()
