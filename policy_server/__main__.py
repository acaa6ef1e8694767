"""`python -m sparring.policy_server`: hosts a policy until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from sparring.policy_server.options import Option, ServerOptions, server_options
from sparring.policy_server.policies import known_policies, load_policy
from sparring.policy_server.server import PolicyServer, serve_until
from sparring.protos.advice import FLAGS, RenderedFormatter
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.process import keep_freed_memory, stop_with_parent
from sparring.protos.tracebacks import Tracebacks
from sparring.protos.watchdog import watch_if_asked

log = logging.getLogger("sparring.policy_server")


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, serves, and exits with 2 if it was asked for something that cannot be."""
    given = _parser().parse_args(argv)
    options = options_of(given)
    keep_freed_memory()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RenderedFormatter(FLAGS, "%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        if given.list:
            sys.stdout.write(json.dumps(known_policies(options.experts)) + "\n")
            return
        asyncio.run(_serve(options, exit_with_parent=given.exit_with_parent))
    except SparringError as error:
        # A program that has started this one, and reads this, knows whom to tell it; else people do.
        sys.stderr.write(f"error: {error.sentence if given.exit_with_parent else error.told(FLAGS)}\n")
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from error
    # A policy that never answers holds its thread, and Python would wait for that at exit.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


async def _serve(options: ServerOptions, *, exit_with_parent: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if exit_with_parent:
        stop_with_parent(stop)
    watching = asyncio.create_task(watch_if_asked())  # kept here: the loop would forget it
    server = PolicyServer(
        partial(load_policy, options.policy, options.policy_args, experts=options.experts),
        options,
        tracebacks=Tracebacks(options.output, elsewhere="in the policy server's log"),
    )
    addresses = await server.listen(options.listen)
    listening = [str(address) for address in addresses]
    log.info("loading %s; listening at %s", options.policy, ", ".join(listening))
    loaded = False
    try:
        loaded = await _loaded(server, stop)
    finally:
        if not loaded:
            await server.drain(0)
    if not loaded:
        return
    # The one line on stdout is for the program that started this one: where it can be reached.
    metrics = {"metrics": str(server.metrics.address)} if server.metrics else {}
    sys.stdout.write(json.dumps({"listening": listening, **metrics}) + "\n")
    sys.stdout.flush()
    sys.stdout = sys.stderr  # nobody reads on: a policy that prints would fill the pipe, and stop there
    log.info("serving %s at %s", options.policy, ", ".join(listening))
    if server.metrics:
        log.info("metrics at http://%s/metrics", server.metrics.address)
    for wire, also in zip(options.also, server.also, strict=True):
        log.info("and for clients of %s at %s", wire.partition(":")[0], also)
    encrypted = [address.with_tls() if options.tls_cert else address for address in server.also]
    for address in [*addresses, *encrypted]:
        if options.token_file and address.leaves_the_machine and not address.is_encrypted:
            log.warning("the token travels unencrypted to %s; encrypt with --tls-cert and --tls-key", address)
    await serve_until(server, stop, grace=options.grace)
    watching.cancel()


async def _loaded(server: PolicyServer, stop: asyncio.Event) -> bool:
    """Returns whether the policy was loaded before somebody wanted this program to end."""
    loading, stopping = asyncio.ensure_future(server.load()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if loading.done():
        stopping.cancel()
        loading.result()
        return True
    loading.cancel()  # its thread goes on; main() does not wait for it
    return False


def options_of(given: argparse.Namespace) -> ServerOptions:
    """Returns the server's options among what was parsed."""
    values: dict[str, Any] = {}
    for option in server_options():
        value = getattr(given, option.name)
        if value is not None:
            values[option.name] = tuple(value) if option.repeated else value
    return ServerOptions(**values)


def _reader(option: Option) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return option.read(text)
        except ValueError as error:
            quoted = repr(text) in str(error)
            raise argparse.ArgumentTypeError(f"{error}." if quoted else f"{error}, not {text!r}.") from error

    return read


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error: {message}\n")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m sparring.policy_server", description="Hosts a policy over gRPC.")

    def add(*names: str, **settings: Any) -> None:
        parser.add_argument(*names, **settings)

    add("--list", action="store_true", help="print the known policies as JSON and exit")
    for option in server_options():
        # Not given is None: an argument that is appended to a default would never be rid of it.
        if option.is_switch:
            add(option.flag, action="store_const", const=True, help=option.help)
            continue
        add(option.flag, type=_reader(option), action="append" if option.repeated else "store", help=option.help)
    add("--exit-with-parent", action="store_true", help="stop when standard input closes")
    return parser


if __name__ == "__main__":
    main()
