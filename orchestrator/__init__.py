"""Plans episodes, launches and feeds workers, keeps the journal, reports; the `sparring` command."""
