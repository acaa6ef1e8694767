"""The `sparring` command; one file per subcommand."""

from sparring.orchestrator.cli.main import main

__all__ = ["main"]
