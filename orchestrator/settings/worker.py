"""Settings of the workers: what they are made of, and how they come."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator

from sparring.env_worker.rendering.device import AUTO, parse_devices
from sparring.orchestrator.launchers.base import LauncherSettings
from sparring.orchestrator.settings.group import SettingsGroup, check_text
from sparring.protos.net.address import Address, parse_listen


def _devices(value: Any) -> Any:
    """Reads a number, or a list of them, as a file may have it, as what a flag has."""
    numbers = value if isinstance(value, (list, tuple)) else [value]
    plain = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    return ",".join(map(str, numbers)) if plain else value


class WorkerSettings(SettingsGroup):
    """What workers are made of, beside their benchmark. In `evaluate()`, others start new workers."""

    assets: Path | None = Field(None, description="folder of the benchmark's assets, where it has any (libero)")
    launcher: str = Field(
        "process",
        description="how workers are started: as processes, as containers (docker), or none: they come by themselves "
        "(sparring worker); see: sparring ls launchers",
    )
    listen: str | None = Field(
        None,
        description="where workers may dial in, HOST:PORT or unix:///path; default: nowhere, or with --launcher "
        "none at 127.0.0.1:50052, or any free port",
    )
    join_token_file: Path | None = Field(
        None,
        description="file with the secret that workers must bring, for those from elsewhere (sparring worker "
        "--join-token-file); default: one is made for each run; only its path is saved",
    )
    listen_tls_cert: Path | None = Field(
        None, description="PEM certificate (chain): encrypts --listen; workers dial tls://HOST:PORT"
    )
    listen_tls_key: Path | None = Field(None, description="PEM private key of --listen-tls-cert, without a passphrase")
    listen_client_ca: Path | None = Field(
        None,
        description="PEM file with the CA of workers' certificates: at --listen only those are let in that have one "
        "(sparring worker --tls-cert); they need no join token unless --join-token-file is given",
    )
    render_device: Annotated[str, BeforeValidator(_devices)] = Field(
        AUTO,
        description="what simulators draw on: auto, software, or numbers of EGL's devices where workers run (sparring "
        "doctor), comma-separated; slots are spread over those that work",
    )
    insecure: bool = Field(
        False, description="let in whoever reaches --listen or --metrics from beyond this machine, without a secret"
    )
    own: SerializeAsAny[LauncherSettings]
    """The launcher's own settings."""

    @field_validator("render_device")
    @classmethod
    def _known_devices(cls, devices: str) -> str:
        check_text(parse_devices, devices)
        return devices or AUTO

    @field_validator("listen")
    @classmethod
    def _known_port(cls, address: str | None) -> str | None:
        if address is not None:
            check_text(parse_listen, address)
        return address

    @property
    def listen_address(self) -> Address | None:
        """Where workers may dial in, if that is set."""
        return None if self.listen is None else parse_listen(self.listen)
