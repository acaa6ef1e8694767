"""What a model server of vla-eval asks of LIBERO in its hello: the parameters of their benchmark, as layouts have them.

Their harness makes its benchmark by what the server asks for; what it does not ask for is as their benchmark has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final

from sparring.policy_server.bridges.layout import STATE, BridgeLayout

PARAMS: Final = "observation_params"
"""What the hello calls them."""
WRIST, WITH_STATE, ABSOLUTE, LONG_ROTATION = "send_wrist_image", "send_state", "absolute_action", "quat_no_antipodal"
_DECIDED: Final = (WRIST, WITH_STATE, ABSOLUTE, LONG_ROTATION)
_BENCHMARK: Final = "libero"
_ACTIONS: Final = {"rotation": "axis_angle", "gripper": "binary_close_positive"}
"""What their LIBERO takes. Of positions nothing: X-VLA's server calls absolute ones `delta_xyz`."""
_STATES: Final = ("eef_pos3_axisangle3_gripper2", "rot6d_interleaved_proprio_20d")
"""States that can be made of what their LIBERO shows; the second by the server, of `controller_states`."""
_ANY: Final = "raw"
_LONGEST: Final = 100


def as_asked(layout: BridgeLayout, benchmark: str, said: Mapping[str, Any]) -> BridgeLayout:
    """Returns a layout as a server asks for it; as it is, if the server asks for nothing.

    Args:
        layout: Of the benchmark.
        benchmark: Whose layout it is.
        said: The server's hello.
    """
    asked = _asked(benchmark, said)
    if not asked:
        return layout
    images = {name: ours for name, ours in layout.images.items() if name != "wrist" or asked.get(WRIST)}
    control = "absolute" if asked.get(ABSOLUTE) else "relative"
    return replace(layout, images=images, states=_states(asked) if asked.get(WITH_STATE) else {}, control=control)


def not_met(benchmark: str, said: Mapping[str, Any], given: Set[str]) -> Iterator[str]:
    """Yields what a server says that no layout can do, each as the end of a sentence that begins with the server.

    Args:
        benchmark: That it is asked about.
        said: Its hello.
        given: What the user has decided about the layout.
    """
    if benchmark != _BENCHMARK:
        if isinstance(asked := said.get(PARAMS), Mapping) and asked:
            names = _short(", ".join(sorted(map(str, asked))))
            yield f"asks vla-eval's harness for {names}, which is known for LIBERO alone: it is shown the layout above"
        return
    for name, value in sorted(_asked(benchmark, said).items()):
        if name not in _DECIDED:
            yield (
                f"asks vla-eval's harness for {_short(name)} = {_short(value)}, which is a rule of the evaluation and "
                "none that a server decides here: this run is played by its own"
            )
    for name, ours in _ACTIONS.items():
        theirs = _format(said.get("action_spec"), name)
        if theirs not in ("", _ANY, ours) and name not in given:
            yield f"says that the {name} of its actions is {theirs}, and LIBERO takes {ours}: that alone may fail it"
    theirs = _format(said.get("observation_spec"), "state")
    if theirs not in ("", _ANY, *_STATES) and "states" not in given:
        yield f"says that it looks at a state of {theirs}, and is shown one of {_STATES[0]}: that alone may fail it"


def asked_by_us(layout: BridgeLayout, benchmark: str, wanted: Set[str], control: str) -> dict[str, Any]:
    """Returns what our own server asks their harness for, so that a policy is shown what it looks at.

    Args:
        layout: That its clients have.
        benchmark: Whose layout it is; empty: clients call things as the policy does.
        wanted: What the policy looks at.
        control: What its actions mean; empty: it does not say.
    """
    if benchmark != _BENCHMARK:
        return {}
    asked = {
        WRIST: layout.images.get("wrist") in wanted,
        WITH_STATE: STATE in wanted,
        # As in the data that policies of LeRobot's layout were trained on.
        LONG_ROTATION: STATE in wanted,
        ABSOLUTE: control == "absolute",
    }
    return {name: True for name, value in asked.items() if value}


def _asked(benchmark: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
    asked = said.get(PARAMS)
    return asked if benchmark == _BENCHMARK and isinstance(asked, Mapping) else {}


def _states(asked: Mapping[str, Any]) -> dict[str, list[str]]:
    turned = "axis-angle" if asked.get(LONG_ROTATION) else "shorter-axis-angle"
    return {
        "states": ["robot0_eef_pos", f"robot0_eef_quat:{turned}", "robot0_gripper_qpos"],
        # Of the controller, whatever is asked for: what X-VLA reads.
        "controller_states": ["robot0_eef_pos", "robot0_eef_mat:shorter-axis-angle", "robot0_gripper_qpos"],
    }


def _format(specs: Any, name: str) -> str:
    spec = specs.get(name) if isinstance(specs, Mapping) else None
    return _short(spec.get("format", "")) if isinstance(spec, Mapping) else ""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
