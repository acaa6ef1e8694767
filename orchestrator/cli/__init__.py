"""The `sparring` command; one file per subcommand."""

from orchestrator.cli.main import main

__all__ = ["main"]
