"""The `sparring` command; one file per subcommand."""

try:
    from sparring.orchestrator.cli.main import main
except KeyboardInterrupt:  # on a slow disk this takes seconds, and nobody who gives up wants a traceback
    raise SystemExit(130) from None

__all__ = ["main"]
