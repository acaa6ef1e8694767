"""A policy server with limits that a test can wait for: `--limits`, a JSON object, beside the flags of the real one."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from functools import partial

from sparring.policy_server.__main__ import _parser, options_of
from sparring.policy_server.limits import Limits
from sparring.policy_server.options import ServerOptions
from sparring.policy_server.policies import load_policy
from sparring.policy_server.server import PolicyServer


async def serve(options: ServerOptions, limits: Limits) -> None:
    server = PolicyServer(partial(load_policy, options.policy, options.policy_args), options, limits=limits)
    bound = await server.start(options.listen)
    sys.stdout.write(json.dumps({"listening": [str(address) for address in bound]}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--limits", type=json.loads, default={})
    given, rest = parser.parse_known_args()
    options = options_of(_parser().parse_args(rest))
    asyncio.run(serve(options, replace(Limits.of(options), **given.limits)))
