"""The contract between policy server, env workers and orchestrator.

The .proto files, the code generated from them, the tensor codec, the typed view of the hello, and
the root of all errors. Depends on grpcio, protobuf and numpy; every other room depends on this one.
"""

PROTOCOL_VERSION = 1
"""Of policy.proto, as spoken by this release. Peers with another number refuse each other in their first message."""

WORK_PROTOCOL_VERSION = 4
"""The same of evaluation.proto: between workers and orchestrators."""
