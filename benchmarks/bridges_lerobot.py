"""LeRobot's side of bridges.py: its own policy server, which computes nothing here, and a client of its own classes."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, Final

CHUNK: Final = 10


def serve_lerobot(say: Callable[[str], None]) -> None:
    """Serves LeRobot's wire by LeRobot's own servicer until it is ended; says where."""
    import grpc

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it leaves logs where it is imported
        import logging

        import torch
        from lerobot.async_inference.configs import PolicyServerConfig
        from lerobot.async_inference.policy_server import PolicyServer
        from lerobot.transport import services_pb2, services_pb2_grpc

        logging.disable()

        class Nothing(PolicyServer):  # type: ignore[misc]
            """Has no policy: what it answers is there before it is asked."""

            def SendPolicyInstructions(self, request: Any, context: Any) -> Any:
                pickle.loads(request.data)  # noqa: S301  # of our own client
                return services_pb2.Empty()

            def _predict_action_chunk(self, observation_t: Any) -> Any:
                moment, step = observation_t.get_timestamp(), observation_t.get_timestep()
                return self._time_action_chunk(moment, [torch.zeros(7)] * CHUNK, step)

        server = grpc.server(futures.ThreadPoolExecutor(4))
        servicer = Nothing(PolicyServerConfig(inference_latency=0.0))
        services_pb2_grpc.add_AsyncInferenceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        say(f"127.0.0.1:{port}")
        server.wait_for_termination()


def lerobot_client(address: str, shown: Mapping[str, Any]) -> Callable[[], Any]:
    """Returns what asks the server as LeRobot's robot client does, with its stubs, classes and pickles."""
    import grpc
    from lerobot.async_inference.helpers import RemotePolicyConfig, TimedObservation
    from lerobot.transport import services_pb2, services_pb2_grpc
    from lerobot.transport.utils import send_bytes_in_chunks

    stub = services_pb2_grpc.AsyncInferenceStub(grpc.insecure_channel(address))
    stub.Ready(services_pb2.Empty())
    raw = {f"state.{number}": float(value) for number, value in enumerate(shown["observation.state"])}
    raw |= {name.rpartition(".")[2]: array for name, array in shown.items() if array.ndim == 3}
    features = {
        name: {"dtype": "image", "shape": array.shape, "names": ["height", "width", "channels"]}
        if array.ndim == 3
        else {"dtype": "float32", "shape": array.shape, "names": [f"state.{number}" for number in range(array.size)]}
        for name, array in shown.items()
    }
    instructions = RemotePolicyConfig("act", "nothing", features, CHUNK, "cpu")
    stub.SendPolicyInstructions(services_pb2.PolicySetup(data=pickle.dumps(instructions)))
    step = 0

    def ask() -> Any:
        nonlocal step
        step += 1
        observation = TimedObservation(time.time(), step, {**raw, "task": "go"}, must_go=True)
        pieces = send_bytes_in_chunks(pickle.dumps(observation), services_pb2.Observation)
        stub.SendObservations(pieces)
        return pickle.loads(stub.GetActions(services_pb2.Empty()).data)  # noqa: S301  # of our own server

    return ask
