"""What other people's wires may say, and how much of it is told: what just fits, and what is one more."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import grpc
import msgpack
import numpy as np
import pytest
from bridges.foreign_servers import VlaEvalServer, pack
from bridges.served import Telling, serving
from bridges.test_fronts import openpi_client
from bridges.test_lerobot_async_front import calling
from websockets.sync.client import connect

from sparring.policy_server.bridges import arrays, front, peer, vla_eval_asks
from sparring.policy_server.bridges import lerobot_async as wire
from sparring.policy_server.bridges.arrays import BadMessage
from sparring.policy_server.bridges.clients import lerobot_async as client
from sparring.policy_server.bridges.pickles import budget, reading
from sparring.policy_server.bridges.servers import lerobot_async as server
from sparring.policy_server.bridges.servers import vla_eval, websockets_front
from sparring.policy_server.errors import PolicyFailed
from sparring.protos.limits import MAX_EXTRA_BYTES
from sparring.protos.spec import TensorSpec

READER = wire.READER


def test_the_name_of_a_type_of_numbers() -> None:
    with pytest.raises(TypeError, match="not understood"):  # it was looked up
        arrays.plain_array(b"", "x" * arrays.LONGEST_TYPE, (0,))
    with pytest.raises(ValueError, match="without a type that is one of numbers"):
        arrays.plain_array(b"", "x" * (arrays.LONGEST_TYPE + 1), (0,))


def test_what_a_foreign_server_says_of_its_failure() -> None:
    assert peer._short("x" * peer._LONGEST) == "x" * peer._LONGEST
    assert peer._short("x" * (peer._LONGEST + 1)) == "x" * peer._LONGEST + " ..."


def test_what_a_model_server_of_vla_eval_asks_for() -> None:
    most = vla_eval_asks._LONGEST
    assert vla_eval_asks._short("x" * most) == "x" * most
    assert vla_eval_asks._short("x" * (most + 1)) == "x" * most + " ..."


def test_what_a_client_is_told() -> None:
    assert front.told(BadMessage("x" * front._LONGEST_TOLD)) == "x" * front._LONGEST_TOLD
    assert front.told(BadMessage("x" * (front._LONGEST_TOLD + 1))) == "x" * front._LONGEST_TOLD + " ..."


def test_the_reason_that_a_web_socket_ends_with() -> None:
    most = websockets_front._LONGEST_REASON
    assert websockets_front._reason("x" * most) == "x" * most
    assert websockets_front._reason("x" * (most + 1)) == "x" * most
    assert websockets_front._reason("é" * most) == "é" * (most // 2), "bytes are counted, and no character is halved"


def test_the_version_of_a_harness_is_given_back_in_short() -> None:
    with serving(Telling(), "vla-eval:0/libero") as (port,), connect(f"ws://127.0.0.1:{port}") as connection:
        for length in (vla_eval._LONGEST_VERSION, vla_eval._LONGEST_VERSION + 1):
            payload = {"protocol_version": 1, "harness_version": "v" * length}
            said = {"type": "hello", "payload": payload, "seq": 1, "timestamp": 0.0}
            connection.send(msgpack.packb(said, default=VlaEvalServer.packed))
            answer = msgpack.unpackb(connection.recv(10))["payload"]
            assert answer["harness_version"] == "v" * vla_eval._LONGEST_VERSION


def test_the_sentence_of_a_task() -> None:
    """It goes straight into a tokenizer, where all others wait; our own clients' have the same limit."""
    policy = Telling(needs={"state": TensorSpec("float32", (2,))})
    with serving(policy, "openpi:0") as (port,):
        for sentence, said in (
            ("x" * MAX_EXTRA_BYTES, None),
            ("x" * (MAX_EXTRA_BYTES + 1), "a sentence of 65537 bytes"),
            ("é" * MAX_EXTRA_BYTES, "a sentence of 131072 bytes"),
        ):
            with openpi_client(port) as connection:
                connection.send(pack({"state": np.zeros(2, np.float32), "prompt": sentence}))
                answer = connection.recv(10)
                assert isinstance(answer, bytes) if said is None else said in str(answer)


def test_a_sentence_that_is_no_text() -> None:
    with calling() as caller:
        caller.instruct()
        caller.show({"a": 1.0, "b": 2.0, "task": "\ud800"})
        with pytest.raises(grpc.RpcError, match="a sentence that is no text") as caught:
            caller.ask(wire.ACTIONS)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# ------------------------------------------------------------------------------------------- pickles


def test_steps_of_a_pickle() -> None:
    counted = budget.PickleBudget(lambda _: ())
    counted.take(budget._MOST_STEPS)
    with pytest.raises(BadMessage, match="more than 100000 steps"):
        counted.take()


def test_things_in_things() -> None:
    def nested(levels: int) -> Any:
        thing: Any = "x"
        for _ in range(levels):
            thing = [thing]
        return thing

    def counted() -> budget.PickleBudget:
        return budget.PickleBudget(lambda thing: thing if isinstance(thing, list) else ())

    counted().take_whole(nested(budget._DEEPEST))
    with pytest.raises(BadMessage, match="in each other more than 32 times"):
        counted().take_whole(nested(budget._DEEPEST + 1))


def test_calls_in_a_pickle() -> None:
    called = b"\x80\x04(cnumpy\ndtype\nq\x00X\x02\x00\x00\x00f4\x85q\x01R"
    again = b"h\x00h\x01R"
    assert len(READER.read(called + again * (reading._MOST_CALLS - 1) + b"t.")) == reading._MOST_CALLS
    with pytest.raises(BadMessage, match="more than 4096 calls"):
        READER.read(called + again * reading._MOST_CALLS + b"t.")


def test_arrays_in_a_pickle() -> None:
    def made(count: int) -> bytes:  # their type is made once, and counts, too
        return pickle.dumps([np.full(1, number, np.float32) for number in range(count - 1)], protocol=4)

    assert len(READER.read(made(reading._MOST_UNFINISHED))) == reading._MOST_UNFINISHED - 1
    with pytest.raises(BadMessage, match="more than 256 arrays"):
        READER.read(made(reading._MOST_UNFINISHED + 1))


def test_numbers_as_keys() -> None:
    assert READER.read(pickle.dumps({reading._LARGEST_KEY - 1: 1})) == {reading._LARGEST_KEY - 1: 1}
    with pytest.raises(BadMessage, match="a large number as a key"):
        READER.read(pickle.dumps({reading._LARGEST_KEY: 1}))


# ------------------------------------------------------------------------------------- LeRobot's wire


def feature(names: int, length: int = 1) -> dict[str, Any]:
    return {"dtype": "float32", "shape": (names,), "names": ["n" * length] * names}


def test_features_of_a_robot() -> None:
    most = server._MOST_FEATURES
    assert len(server._checked_features({f"f{n}": feature(1) for n in range(most)})) == most
    with pytest.raises(BadMessage, match="more than 256 features"):
        server._checked_features({f"f{n}": feature(1) for n in range(most + 1)})


def test_names_in_all_features() -> None:
    half = server._MOST_NAMES // 2
    assert server._checked_features({"a": feature(half), "b": feature(half)})
    with pytest.raises(BadMessage, match="more than 4096 names"):
        server._checked_features({"a": feature(half), "b": feature(half + 1)})


def test_how_long_names_are() -> None:
    most = server._LONGEST_NAME
    assert server._checked_features({"f" * most: feature(1, most)})
    with pytest.raises(BadMessage, match="names that are too long"):
        server._checked_features({"f" * (most + 1): feature(1)})
    with pytest.raises(BadMessage, match="whose names are no names"):
        server._checked_features({"f": feature(1, most + 1)})


@pytest.mark.parametrize("sign", [1, -1])
def test_the_step_of_an_observation(sign: int) -> None:
    def look(step: int) -> Any:
        robot = server._Robot()
        observation = {"timestep": step, "timestamp": 1.0, "observation": {}}
        server.LeRobotAsyncFront._look(SimpleNamespace(), observation, robot)  # type: ignore[arg-type]
        return robot.waiting.get_nowait()["timestep"]

    assert look(sign * (server._LARGEST_STEP - 1)) == sign * (server._LARGEST_STEP - 1)
    with pytest.raises(BadMessage, match="a step that nobody reaches"):
        look(sign * server._LARGEST_STEP)


def test_the_numbers_of_an_action_that_is_turned() -> None:
    asking: Any = object.__new__(client.LeRobotAsyncPeer)
    asking._layout = SimpleNamespace(play=2, rotation="euler-xyz")
    asking._endpoint = "lerobot-async://here"

    def chunk(size: int) -> Any:
        return asking._chunk([{"timestep": 0, "action": np.zeros(size, np.float32)}], 0, 7)

    assert chunk(client._LONGEST_ACTION).shape == (1, client._LONGEST_ACTION)
    with pytest.raises(PolicyFailed, match="an action of 1025 numbers, where 1024 were due"):
        chunk(client._LONGEST_ACTION + 1)
