"""One file per subcommand of `sparring`: commands/NAME.py has a click command NAME."""
