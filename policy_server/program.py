"""What a policy is made of: source files of the user's own, packages, data, the commit, and the machine."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping

from sparring.policy_server.commit import Commit, commit_of
from sparring.policy_server.policies import POLICIES_PACKAGE, distribution_of, policy_modules
from sparring.protos import policy_pb2 as pb
from sparring.protos.machine import machine
from sparring.protos.sources import Sources, sources_of


def code_of(policy: object, name: str, experts: Mapping[str, str]) -> Sources:
    """Reads the source of a policy that is about to be made, or is an object already; imports nothing.

    Args:
        policy: An object, or what makes it.
        name: As users know it.
        experts: What `expert` means, by benchmark.
    """
    is_made = hasattr(policy, "act") and hasattr(policy, "new_session")
    modules = [type(policy).__module__] if is_made else policy_modules(name, experts)
    return sources_of(modules, walked=POLICIES_PACKAGE)


def program_of(code: Sources, name: str, data: Mapping[str, str]) -> pb.Program:
    """Returns what is told of a policy's program.

    Args:
        code: Its source, as it was when it was made.
        name: As users know it.
        data: Hashes of the files that its arguments name.
    """
    commit = Commit()
    if code.folder is not None:
        # By the names of modules: some may have been found elsewhere on the path, and are no part of this folder.
        here = [code.folder / file for file in code.files]
        commit = commit_of(code.folder, [file for file in here if file.exists()])
    return pb.Program(
        files=code.files,
        packages=code.packages,
        data=data,
        machine={"host": socket.gethostname(), **machine()},
        commit=commit.sha,
        modified=commit.modified,
        package=distribution_of(name),
    )


def program_sha256(program: pb.Program) -> str:
    """Returns the hash of what decides answers: code, and the versions of what it imports.

    Data is left out: a policy may write to a file that an argument names, and is the same policy.
    """
    content = json.dumps([sorted(program.files.items()), sorted(program.packages.items())])
    return hashlib.sha256(content.encode()).hexdigest()
