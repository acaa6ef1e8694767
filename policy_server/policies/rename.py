"""Other names for what a policy looks at, for any policy: `--rename CAMERA=NAME`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparring.policy_server.policies.base import Array, Observation, PolicySpec, spec_on
from sparring.protos.errors import UsageError, unknown


class RenamedPolicy:
    """A policy that asks for the benchmark's names and is shown its own; in all else it is the policy it holds.

    Args:
        policy: That knows nothing of other names.
        names: The benchmark's name for each observation of the policy that is to have another.

    Raises:
        UsageError: If the policy does not look at one of them, or two of them would have the same name.
    """

    def __init__(self, policy: Any, names: Mapping[str, str]) -> None:
        if not isinstance(names, Mapping) or not all(isinstance(name, str) for name in names.values()):
            raise UsageError(f"rename must map the policy's names to the benchmark's, not {names!r}.")
        self._policy = policy
        self._names = dict(names)
        self.spec = self._renamed(policy.spec)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def spec_for(self, benchmark: str) -> PolicySpec:
        """Returns what the policy needs on a benchmark, by the benchmark's names."""
        return self._renamed(spec_on(self._policy, benchmark))

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        """Asks the policy, with everything under its own names."""
        own = {offered: name for name, offered in self._names.items()}
        shown = [replace(o, tensors={own.get(name, name): array for name, array in o.items()}) for o in observations]
        answers: Sequence[Array] = self._policy.act(shown, states)
        return answers

    def _renamed(self, spec: PolicySpec) -> PolicySpec:
        for name in self._names:
            if name not in spec.named:
                raise unknown("observation of the policy:", name, spec.named)
        own = {name: self._names.get(name, name) for name in spec.named}
        for offered in own.values():
            if list(own.values()).count(offered) > 1:
                raise UsageError(f"two observations of the policy would both be {offered!r}; a name is given once.")
        return replace(
            spec,
            observations={own[name]: need for name, need in spec.named.items()},
            own_names={offered: name for name, offered in own.items()},
        )
