"""What git says of the folder that a policy is in, and what a hostile repository cannot have us run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from sparring.policy_server import commit
from sparring.policy_server.commit import Commit, commit_of


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=N", "-c", "user.email=n@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip()


def repository(folder: Path, **files: str) -> str:
    """Makes one of these modules, all committed, and returns its commit."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return git(folder, "rev-parse", "HEAD")


def test_what_git_says_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text("1\n")
    assert commit_of(tmp_path, [file]) == Commit(), "no repository"
    git(tmp_path, "init", "-q")
    assert commit_of(tmp_path, [file]) == Commit(), "no commit"
    (tmp_path / "b.py").write_text("1\n")
    git(tmp_path, "add", "b.py")
    git(tmp_path, "commit", "-qm", "b")
    sha = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(tmp_path, [file]) == Commit(sha, modified=True), "the policy itself is in no commit"
    assert commit_of(tmp_path, [tmp_path / "b.py"]) == Commit(sha), "other new files are none of its business"
    (tmp_path / "b.py").write_text("2\n")
    assert commit_of(tmp_path, []) == Commit(sha, modified=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path, [file]) == Commit(), "no git"


def test_a_change_is_one_whether_it_is_added_or_not(tmp_path: Path) -> None:
    sha = repository(tmp_path, a="1\n", b="1\n")
    a, as_it_was = tmp_path / "a.py", (tmp_path / "a.py").stat()
    assert commit_of(tmp_path, [a]) == Commit(sha)
    a.touch()
    assert commit_of(tmp_path, [a]) == Commit(sha), "its bytes are the same"
    a.write_text("2\n")
    os.utime(a, ns=(as_it_was.st_atime_ns, as_it_was.st_mtime_ns))  # as long, and as old
    index = (tmp_path / ".git" / "index").stat()
    os.utime(tmp_path / ".git" / "index", ns=(index.st_atime_ns, as_it_was.st_mtime_ns))
    assert commit_of(tmp_path, [a]) == Commit(sha, modified=True), "changed as the index was written"
    git(tmp_path, "add", "a.py")
    assert commit_of(tmp_path, [a]) == Commit(sha, modified=True), "added, and not committed"
    git(tmp_path, "reset", "-q", "--hard")
    assert commit_of(tmp_path, [a]) == Commit(sha)
    (tmp_path / "b.py").unlink()
    assert commit_of(tmp_path, [a]) == Commit(sha, modified=True), "gone"
    git(tmp_path, "reset", "-q", "--hard")
    (tmp_path / "b.py").unlink()
    (tmp_path / "b.py").symlink_to("a.py")
    assert commit_of(tmp_path, [a]) == Commit(sha, modified=True), "a link is no file"


def test_links_odd_names_and_files_left_out_are_no_changes(tmp_path: Path) -> None:
    sha = repository(tmp_path, **{"ä\n b": "1\n", "left": "1\n"})
    (tmp_path / "link").symlink_to("left.py")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "link")
    sha = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "update-index", "--skip-worktree", "left.py")
    (tmp_path / "left.py").unlink()
    os.utime(tmp_path / "ä\n b.py", ns=(0, 0))
    os.utime(tmp_path / "link", ns=(0, 0), follow_symlinks=False)
    assert commit_of(tmp_path, [tmp_path / "ä\n b.py"]) == Commit(sha)


def test_a_submodule_counts_with_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    repository(inner, a="1\n")
    repository(outer, b="1\n")
    git(outer, "submodule", "--quiet", "add", str(inner), "sub")
    git(outer, "commit", "-qm", "sub")
    sha = git(outer, "rev-parse", "HEAD")
    assert commit_of(outer, []) == Commit(sha)
    (outer / "sub" / "a.py").write_text("2\n")
    assert commit_of(outer, []) == Commit(sha, modified=True)
    (outer / "sub" / "a.py").write_text("1\n")
    for most, modified in ((1, False), (0, True)):
        monkeypatch.setattr(commit, "_MOST_DEPTH", most)
        assert commit_of(outer, []) == Commit(sha, modified=modified), "what is too deep to look at may have changed"
    monkeypatch.undo()
    git(outer, "submodule", "--quiet", "deinit", "--force", "sub")
    assert commit_of(outer, []) == Commit(sha), "not fetched is not changed"


def _harm(folder: Path, ran: Path) -> None:
    """Has a repository name a program wherever git would run one."""
    program = folder.parent / "harm"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\nexit 1\n')
    program.chmod(0o755)
    git_folder = Path(git(folder, "rev-parse", "--absolute-git-dir"))
    (git_folder / "info").mkdir(exist_ok=True)
    (git_folder / "info" / "attributes").write_text("* filter=x=y diff=x=y\n*.txt filter=long diff=x\n")
    for name, value in {
        "core.fsmonitor": str(program),
        "core.hooksPath": str(git_folder / "hooks"),
        "core.pager": str(program),
        "core.sshCommand": str(program),
        "diff.external": str(program),
        "diff.x=y.textconv": str(program),
        "diff.x=y.command": str(program),
        "filter.x=y.clean": str(program),
        "filter.x=y.smudge": str(program),
        "filter.x=y.required": "true",
        "filter.long.process": str(program),
        "extensions.partialClone": "evil",
        "remote.evil.url": f"ext::{program} x",
        "remote.evil.promisor": "true",
        "remote.evil.uploadpack": str(program),
        "protocol.ext.allow": "always",
    }.items():
        git(folder, "config", name, value)
    for hook in ("post-index-change", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman"):
        (git_folder / "hooks").mkdir(exist_ok=True)
        shutil.copy(program, git_folder / "hooks" / hook)


def test_a_hostile_repository_has_nothing_run(tmp_path: Path) -> None:
    inner, outer, ran = tmp_path / "inner", tmp_path / "outer", tmp_path / "ran"
    repository(inner, a="1\n")
    sha = repository(outer, b="1\n", c="1\n")
    (outer / "d.txt").write_text("1\n")
    git(outer, "add", ".")
    git(outer, "submodule", "--quiet", "add", str(inner), "sub")
    git(outer, "commit", "-qm", "sub")
    sha = git(outer, "rev-parse", "HEAD")
    for folder in (outer / "sub", outer):
        _harm(folder, ran)
    for name in ("b.py", "d.txt", "sub/a.py"):
        (outer / name).write_text("2\n")
    ran.unlink(missing_ok=True)  # what making it has run
    assert commit_of(outer, [outer / "b.py"]) == Commit(sha, modified=True)
    for path in (outer / ".git" / "objects").glob("??/*"):  # it has nothing any more, and would have it fetched
        path.unlink()
    assert commit_of(outer, [outer / "b.py"]).modified
    assert not ran.exists(), ran.read_text()
    subprocess.run(["git", "status"], cwd=outer, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    assert ran.exists(), "git itself does run it"


def test_a_listing_of_another_form_is_taken_for_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is meant for people, and may be another one in another git."""
    sha = repository(tmp_path, a="1\n")
    asked = commit._git
    monkeypatch.setattr(
        commit, "_git", lambda folder, *what: (asked(folder, *what) or b"").replace(b"  mtime", b"  changed")
    )
    assert commit_of(tmp_path, []) == Commit(sha, modified=True)


def test_a_git_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(commit, "_GIT_SECONDS", 0.2)
    began = time.monotonic()
    assert commit_of(tmp_path, []) == Commit()
    assert time.monotonic() - began < 20
