"""Settings of the policy: which one, and where it is hosted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, SerializeAsAny, create_model, field_validator, model_validator

from sparring.orchestrator.launchers.base import LauncherSettings
from sparring.orchestrator.launchers.registry import HERE
from sparring.orchestrator.settings.group import Listed, SettingsGroup, check_text
from sparring.policy_server.client import ServerOptions, is_plainly_foreign, server_options
from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address, parse_servers

_of_run: Any = {
    option.name: (
        Annotated[option.kind, BeforeValidator(option.read)],
        Field(option.default, description=option.help),
    )
    for option in server_options()
    if option.of_run
}
HostedServerSettings = create_model("HostedServerSettings", __base__=SettingsGroup, **_of_run)
"""The options of a policy server that are settings of a run: of the server that it hosts."""

_SERVING: Final = ("serve_on", "serve_replicas", "serve_folder")


class PolicySettings(SettingsGroup):
    """Says which policy is evaluated, hosted for this run or elsewhere."""

    name: str | None = Field(
        None, alias="policy", description="a policy to host for this run; see: sparring ls policies"
    )
    policy_arg: dict[str, Any] = Field(
        default_factory=dict, description="an argument of the policy, KEY=VALUE; may be repeated"
    )
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="an observation of the policy and the benchmark's name for it, CAMERA=NAME; may be repeated",
    )
    policy_server: Listed | None = Field(
        None,
        description="address of a policy that is hosted elsewhere, HOST:PORT, tls://HOST:PORT or unix:///path; "
        "several servers of the same policy are comma-separated",
    )
    policy_token_file: Path | None = Field(
        None, description="file with the token that --policy-server wants; only its path is saved"
    )
    policy_ca: Path | None = Field(
        None,
        description="PEM file with the CA of --policy-server; turns TLS on. tls:// without it trusts the system's CAs",
    )
    policy_tls_cert: Path | None = Field(
        None, description="PEM certificate to show to a --policy-server that wants one (its --client-ca)"
    )
    policy_tls_key: Path | None = Field(
        None, description="PEM private key of --policy-tls-cert; only its path is saved"
    )
    policy_timeout: float = Field(
        60.0, gt=0, description="seconds to wait for the policy server, and for each of its answers"
    )
    serve_on: str = Field(
        HERE,
        description="where --policy is hosted: here, beside the run, or on a cluster, by its launcher: slurm",
    )
    serve_replicas: int = Field(
        1, ge=1, le=256, description="policy servers with --serve-on; the run begins with the first that is there"
    )
    serve_folder: Path | None = Field(
        None,
        description="folder on storage that all nodes share, for what a policy server with --serve-on needs, says and "
        "logs; default: that of the results",
    )
    own: SerializeAsAny[SettingsGroup]
    """`HostedServerSettings`; `server_options` hands them to the server."""
    hosting: SerializeAsAny[LauncherSettings]
    """Those of the launcher that `serve_on` names."""

    @model_validator(mode="after")
    def _one_policy(self) -> PolicySettings:
        policy, server = Hint("policy"), Hint("policy_server")
        if (self.name is None) == (self.policy_server is None):
            raise ValueError(f"{policy} (hosted for this run) or {server} (hosted elsewhere): give one of them")
        if self.policy_arg and self.name is None:
            raise ValueError(
                f"{Hint('policy_arg')} goes with {policy}; a policy hosted elsewhere has its arguments already"
            )
        if self.rename and self.name is None:
            raise ValueError(
                f"{Hint('rename')} goes with {policy}; a policy hosted elsewhere is started with it (sparring serve)"
            )
        if self.rename and "rename" in self.policy_arg:
            same = f"{Hint('rename')} and {Hint('policy_arg', 'rename')}"
            raise ValueError(f"{same} are the same; give one of them")
        for name in self.own.model_fields_set if self.name is None else ():
            if getattr(self.own, name) != type(self.own).model_fields[name].default:
                raise ValueError(
                    f"{Hint(name)} goes with {policy}; give it to the servers of a policy hosted elsewhere"
                )
        for name in _SERVING:
            field = type(self).model_fields[name]
            if getattr(self, name) == field.get_default(call_default_factory=True):
                continue
            if self.name is None:
                raise ValueError(f"{Hint(name)} goes with {policy}; one that is hosted elsewhere is where it is")
            if self.serve_on == HERE:
                raise ValueError(f"{Hint(name)} goes with {Hint('serve_on')}")
        for name in ("policy_token_file", "policy_ca", "policy_tls_cert", "policy_tls_key"):
            if getattr(self, name) is not None and self.policy_server is None:
                raise ValueError(f"{Hint(name)} goes with {server}; a policy hosted for this run needs none")
        return self

    @field_validator("policy_server")
    @classmethod
    def _known_servers(cls, servers: str | None) -> str | None:
        if servers is not None:
            check_text(_parse_ours, servers)
        return servers

    @property
    def servers(self) -> Sequence[Address]:
        """Where the policy is hosted, if that is elsewhere."""
        return [] if self.policy_server is None else parse_servers(self.policy_server)

    @property
    def computed_elsewhere(self) -> bool:
        """Whether other processors compute the policy than the cores that simulators have, as far as can be told."""
        if self.name is None:
            return all(server.leaves_the_machine for server in self.servers)
        if self.serve_on != HERE:
            return True
        return str(self.policy_arg.get("device", "cpu")).partition(":")[0] not in ("cpu", "auto")

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All arguments of the policy, `rename` among them."""
        return {**self.policy_arg, "rename": self.rename} if self.rename else self.policy_arg

    def server_options(self, **others: Any) -> ServerOptions:
        """Returns the options of the server that hosts the policy; `others` are those that are no settings."""
        assert self.name is not None
        return ServerOptions(policy=self.name, policy_args=self.arguments, **self.own.model_dump(), **others)


def _parse_ours(servers: str) -> None:
    """Reads addresses of our own servers; where one may be of another project, it is said how those are asked.

    Raises:
        UsageError: If one is no address of ours.
    """
    try:
        parse_servers(servers)
    except UsageError as error:
        foreign = next((server for server in comma_list(servers) if is_plainly_foreign(server)), None)
        if foreign is None:
            raise
        said = f"{error.sentence} A server of another project is a policy: {Hint('policy', value=foreign)}"
        raise UsageError(said) from error
