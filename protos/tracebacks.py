"""Tracebacks of users' code: one file for each that differs, which the sentences about it refer to.

A sentence refers to a file by its path in the output folder, `(traceback: errors/policy-1f0c9a2e.txt)`, and whatever
passes the sentence on passes that on, too: journals, tables, reasons on the wire. What is in the file stays on the
machine of whoever writes it; no policy server sends one to its clients.
"""

from __future__ import annotations

import hashlib
import logging
import re
import traceback
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from sparring.protos.errors import CodeBroken, SparringError, UsageError
from sparring.protos.plain_text import plain

log = logging.getLogger(__name__)

FOLDER: Final = "errors"
"""Of the files, in the output folder of a run."""
LONGEST: Final = 64 * 1024
"""Characters of a traceback that are kept: its beginning and its end."""
_MOST_FILES: Final = 100
_REFERENCE: Final = re.compile(rf"\b{FOLDER}/[a-z]+-[0-9a-f]{{8}}\.txt\b")
_FRAME: Final = re.compile(r'^[ \t]*File "[^\n]*", line \d+, in [^\n]*$|^[\w.]+(?=:|$)', re.MULTILINE)
"""Within one line: what goes over several takes the square of their number, and texts come from anybody's workers."""
CALLERS: Final = (
    "importlib",
    "importlib._bootstrap",
    "importlib._bootstrap_external",
    "importlib.metadata",
    "sparring.env_worker.benchmark",
    "sparring.env_worker.episode.observers",
    "sparring.env_worker.episode.play",
    "sparring.env_worker.registry",
    "sparring.env_worker.worker.player",
    "sparring.env_worker.worker.slot_pool",
    "sparring.orchestrator.execution.in_process",
    "sparring.orchestrator.launchers.registry",
    "sparring.orchestrator.run.listeners",
    "sparring.orchestrator.run.make_plan",
    "sparring.orchestrator.settings.assets",
    "sparring.orchestrator.trackers.registry",
    "sparring.policy_server.calls",
    "sparring.policy_server.hosted",
    "sparring.policy_server.policies",
    "sparring.policy_server.policies.base",
    "sparring.policy_server.session",
    "sparring.protos.own_modules",
)
"""Modules that call users' code: a traceback begins with what they call."""


def cause_of(error: BaseException) -> BaseException | None:
    """Returns what users' code raised, if an error of ours came of that; None if it is a sentence of ours alone."""
    found: BaseException | None = error
    while isinstance(found, SparringError):
        found = found.__cause__
    return found


def was_raised_in(error: BaseException, package: str) -> bool:
    """Returns whether it is a package's own code that raised an exception, and nothing that it has called."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and str(last.tb_frame.f_globals.get("__name__")).startswith(f"{package}.")


def traceback_of(error: BaseException) -> str:
    """Returns the traceback of an exception as text, from users' code on."""
    told = traceback.TracebackException(type(error), error, _of_users(error.__traceback__), compact=True)
    if isinstance(error.__context__, SparringError):  # what we were dealing with meanwhile, such as others of a batch
        told.__context__ = None
    return _bounded("".join(told.format()))


def references(text: str) -> list[str]:
    """Returns the files that a text refers to, each once."""
    return list(dict.fromkeys(_REFERENCE.findall(text)))


def without_references(text: str) -> str:
    """Returns a sentence of a run whose folder does not stay, so that nobody looks for a traceback there."""
    return re.sub(rf" \(traceback: {_REFERENCE.pattern}\)", "", text)


def located(text: str, folder: Path) -> str:
    """Returns a text that refers to files by paths that can be opened from here."""
    return _REFERENCE.sub(lambda found: str(folder / found[0]), text)


class Tracebacks:
    """Keeps tracebacks, if it has a folder for them.

    Args:
        folder: The output folder of a run; None: they are only logged.
        elsewhere: Where people find one that is only logged, for a sentence: "in the policy server's log".
        logged: Whether they are logged, the first time, even if there is a folder for them.
    """

    def __init__(self, folder: Path | None = None, *, elsewhere: str = "", logged: bool = True) -> None:
        self._folder = folder
        self._elsewhere = elsewhere
        self._logged = logged or folder is None
        self._seen: set[str] = set()

    def told(self, whose: str, sentence: str, text: str) -> str:
        """Keeps a traceback, if there is one, and returns a sentence that says where it is.

        Args:
            whose: Code raised, a word: policy, simulator.
            sentence: What happened.
            text: As `traceback_of` returns it; empty if there is none.
        """
        kept = self.keep(whose, sentence, text) if text else ""
        return f"{sentence} ({kept})" if kept else sentence

    def keep(self, whose: str, sentence: str, text: str) -> str:
        """Keeps a traceback, and returns where it is, for a sentence: "traceback: ..."; empty if that is nowhere.

        Args:
            whose: Code raised, a word: policy, simulator.
            sentence: What happened.
            text: As `traceback_of` returns it.
        """
        # What was raised where, and not with which words: those may have numbers in them that are never the same.
        key = hashlib.sha256("\n".join(_FRAME.findall(text)).encode()).hexdigest()[:8]
        name = f"{FOLDER}/{whose}-{key}.txt"
        if self._logged and name not in self._seen:
            self._seen.add(name)
            log.warning("%s\n%s", sentence, text.rstrip())
        if self._folder is not None and self._written(self._folder / name, sentence, text):
            return f"traceback: {name}"
        return f"traceback: {self._elsewhere}" if self._elsewhere else ""

    def error_for(self, broken: CodeBroken) -> UsageError:
        """Keeps the traceback of code that is broken, and returns the error for its users: it says where that is."""
        cause = cause_of(broken) or broken
        kept = self.keep(broken.whose, broken.sentence, traceback_of(cause))
        error = UsageError(f"{broken.sentence} ({kept})" if references(kept) else broken.sentence)
        error.__cause__ = cause
        return error

    def _written(self, path: Path, sentence: str, text: str) -> bool:
        try:
            if path.exists():
                return True
            path.parent.mkdir(parents=True, exist_ok=True)
            if len(list(path.parent.iterdir())) >= _MOST_FILES:
                return False
            said = f"{sentence}\nThe first time: {datetime.now():%Y-%m-%d %H:%M:%S}\n\n{_bounded(text)}"
            path.write_text(plain(said), encoding="utf-8", errors="backslashreplace")
        except OSError as error:  # a full disk ends the run where results are written, and not here
            log.debug("%s cannot be written: %s", path, error)
            return False
        return True


def _of_users(found: TracebackType | None) -> TracebackType | None:
    """Returns the part of a traceback that begins in users' code; all of it, if there is none."""
    last = found
    while last is not None and last.tb_frame.f_globals.get("__name__") in CALLERS:
        last = last.tb_next
    return last or found


def _bounded(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters are left out here) ...\n{text[-half:]}"
