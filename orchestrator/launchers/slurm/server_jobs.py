"""The policy servers of a run as jobs: submitted, found, looked after, replaced where they are lost, and ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed, SlurmUnreachable
from sparring.orchestrator.launchers.slurm.end_jobs import cancel_earlier, end_jobs
from sparring.orchestrator.launchers.slurm.guard import guarded
from sparring.orchestrator.launchers.slurm.job import COMPLETING, PENDING, RUNNING, Job, JobEnd
from sparring.orchestrator.launchers.slurm.server_news import RESTART, ServerNews
from sparring.orchestrator.launchers.slurm.server_place import ServerPlace
from sparring.orchestrator.launchers.slurm.server_script import ServerScript
from sparring.orchestrator.launchers.slurm.shared_files import SharedFiles
from sparring.orchestrator.launchers.to_the_end import to_the_end
from sparring.orchestrator.machine.logs import last_words
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.serving.policy_host import (
    PolicyAccess,
    PolicyHostFailed,
    ServerEnd,
    ServerWatch,
    describe,
    end_of,
)
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import new_token
from sparring.protos.net.address import Address

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two looks at all jobs: one call of squeue."""
_NEWS_SECONDS: Final = 0.5
"""Between two looks at what servers say."""
_BEAT_SECONDS: Final = 10.0
"""Between two signs of life for servers."""
_OBEY_SECONDS: Final = 30.0
"""A server that was to be started again, and was not by then, is on a node that is gone: its job is cancelled."""
_ANSWER_SECONDS: Final = 3.0
"""In which a server answers that is there, and is not busy."""
_AGAIN_SECONDS: Final = 3.0
"""After which one that did not answer is asked again."""
_REFUSED_SECONDS: Final = 60.0
"""After which a replacement is submitted again that Slurm did not take."""
_COMPLETING_SECONDS: Final = 60.0
_WRONGLY_STARTED: Final = 2


class ServerJobs:
    """Hosts the policy of a run in jobs of its own; a `Hosting`.

    Args:
        script: That the jobs are made of.
        files: That the jobs share with the run.
        folder: Of the run.
        replicas: How many servers there shall be.
        rules: How often one is started again.
        timeout: Seconds in which one that says it serves must answer.
    """

    def __init__(
        self,
        script: ServerScript,
        files: SharedFiles,
        folder: Path,
        *,
        replicas: int,
        rules: RetryRules,
        timeout: float,
    ) -> None:
        self._script = script
        self._files = files
        self._folder = folder
        self._rules = rules
        self._timeout = timeout
        self._places = [ServerPlace(number) for number in range(replicas)]
        self._token = new_token()
        self._is_ready = False
        self._is_down = False
        self._attempts = 0
        self._next_submission = 0.0
        self._next_question = 0.0
        self._unreachable = False
        self._last: PolicyAccess = PolicyAccess([], token=self._token)
        self._asking: set[asyncio.Future[None]] = set()
        self._broken_off = asyncio.Event()
        self.watch: ServerWatch | None = None
        self.on_moved: Callable[[PolicyAccess], None] | None = None

    @property
    def access(self) -> PolicyAccess:
        """Where the policy is; while no server is there, where it was last."""
        up = [place for place in self._places if place.is_up and place.address is not None]
        if up:
            addresses = [place.address for place in up if place.address is not None]
            ca = b"\n".join(dict.fromkeys(place.cert for place in up))
            self._last = PolicyAccess(addresses, token=self._token, ca=ca, replicas=len(self._places) > 1)
        return self._last

    async def run(self, ready: asyncio.Future[None]) -> None:
        """Serves until cancelled; `ready` is set when the first server does.

        Raises:
            UsageError: If the policy cannot be made.
            PolicyHostFailed: If servers do not start or do not stay.
        """
        with self._files.written(self._token, b"") as ended:
            await cancel_earlier(self._folder, ended)
            async with guarded([self._script.name]) as guard:
                try:
                    await self._keep(ready)
                except SlurmFailed as error:
                    raise PolicyHostFailed(error.sentence) from error
                finally:
                    guard.is_needed = not await end_jobs([self._script.name])

    def restart(self, reason: str, *, only_if_stopped: bool = False) -> bool:
        """Has servers that do not answer started again: all of them, as nobody says which one it is."""
        up = [place for place in self._places if place.is_up]
        if only_if_stopped or not up:
            return False
        for place in up:
            place.verdict, place.asked = ServerEnd("hung", reason), _now()
        self._later(commands.signal, [place.job for place in up], RESTART.name)
        return True

    def session_broke(self) -> bool:
        """Hears that a session broke off: all servers are asked whether they are there, before others have the same."""
        self._broken_off.set()
        return True

    async def _keep(self, ready: asyncio.Future[None]) -> None:
        looked = beaten = 0.0
        while True:
            if self._broken_off.is_set():
                await self._ask_all()
                looked = 0.0
            await self._ask_silent()
            if _now() - beaten > _BEAT_SECONDS:
                beaten = _now()
                await asyncio.to_thread(self._beat, beaten)
            await self._submit()
            for place in self._places:
                await self._hear(place, ready)
                self._cancel_if_deaf(place)
            if _now() - looked > LOOK_SECONDS:
                await self._look(ready)
                looked = _now()
            with suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_SECONDS):
                    await self._broken_off.wait()

    async def _ask_all(self) -> None:
        """Finds out which servers are there; if one is, what is to be played may be played there."""
        self._broken_off.clear()
        up = [(place, place.address) for place in self._places if place.is_up and place.address is not None]
        answers = await asyncio.gather(*(self._answers(place, address) for place, address in up))
        for (place, address), fault in zip(up, answers, strict=True):
            if fault:
                log.info("the policy server of job %s does not answer: %s", place.job, fault)
                place.address, place.silent, place.unheard = None, address, _now()
                self._next_question = _now() + _AGAIN_SECONDS
        self._moved()
        if any(place.is_up for place in self._places) and self.watch is not None and not self._is_down:
            self.watch.policy_ready()

    async def _ask_silent(self) -> None:
        """Asks those again that did not answer: one may only have been busy, and goes on as if nothing had been."""
        silent = [(place, place.silent) for place in self._places if place.silent is not None]
        if not silent or _now() < self._next_question:
            return
        answers = await asyncio.gather(*(self._answers(place, address) for place, address in silent))
        self._next_question = _now() + _AGAIN_SECONDS
        for (place, address), fault in zip(silent, answers, strict=True):
            if not fault:
                log.info("the policy server of job %s answers again", place.job)
                place.address, place.silent, place.unheard = address, None, 0.0
        if any(place.is_up for place, _ in silent):
            self._moved()
            self._is_down = False
            if self.watch is not None:
                self.watch.policy_ready()

    async def _answers(self, place: ServerPlace, address: Address) -> str:
        """Asks a server whether it is there; returns what is wrong, or nothing."""
        try:
            await describe(PolicyAccess([address], token=self._token, ca=place.cert), _ANSWER_SECONDS)
        except SparringError as error:
            return error.sentence
        return ""

    def _cancel_if_deaf(self, place: ServerPlace) -> None:
        """Cancels a job whose server does not do as it is told, or does not answer, while nobody says that it ended."""
        since = place.asked if place.verdict is not None else place.unheard
        if place.job and since and _now() - since > _OBEY_SECONDS:
            place.asked = place.unheard = _now()
            place.silent = None  # it is too late to answer
            self._later(commands.cancel, [place.job])

    def _beat(self, now: float) -> None:
        with suppress(OSError):  # storage that is away for a while; servers wait for minutes
            self._script.alive.write_text(str(now))

    async def _submit(self) -> None:
        if self._unreachable or _now() < self._next_submission:
            return
        for place in (place for place in self._places if not place.job and place.not_before <= _now()):
            self._attempts += 1
            place.news = self._files.beside(f"server-{place.number}-{self._attempts}")
            place.news.touch(mode=0o600)  # before anybody looks for it on a node
            try:
                job = await to_the_end(commands.submit, self._script.text(place.news))
            except SlurmUnreachable as error:
                self._is_away(error)
                self._next_submission = _now() + LOOK_SECONDS  # by then it is seen whether it was taken after all
                return
            except SlurmFailed as error:
                why = f"Slurm does not take the policy server's job: {error.sentence}"
                if not any(other.is_up for other in self._places):
                    raise PolicyHostFailed(why) from error
                log.warning("%s The others go on; it is tried again in %g s", why, _REFUSED_SECONDS)
                place.not_before = _now() + _REFUSED_SECONDS
                continue
            place.job, place.known, place.has_served, place.completing, place.told = job, 0, False, None, ""
            log.info("job %s was submitted: a policy server; see it with: squeue --job %s", job, job)

    async def _hear(self, place: ServerPlace, ready: asyncio.Future[None]) -> None:
        """Deals with what a job says of its server."""
        if not place.job:
            return
        for news in await asyncio.to_thread(ServerNews.of, place.news, known=place.known):
            place.known += 1
            if news.address:
                await self._serves(place, Address.parse(news.address), news.cert.encode(), ready)
            elif place.has_served:
                await self._ended(place, place.verdict or end_of(news.code))
            elif not self._is_ready:  # whoever starts it again would see the same
                raise await self._failed_to_start(place, news.code)

    async def _serves(self, place: ServerPlace, address: Address, cert: bytes, ready: asyncio.Future[None]) -> None:
        """Lets a server be used that says where it is, if it answers there."""
        access = PolicyAccess([address], token=self._token, ca=cert)
        try:
            await describe(access, self._timeout)
        except SparringError as error:
            why = f"the policy server of job {place.job} cannot be used: {error.sentence}"
            if not self._is_ready:
                raise PolicyHostFailed(why) from error
            log.warning("%s", why)
            self._later(commands.cancel, [place.job])
            return
        place.address, place.cert, place.verdict = address, cert, None
        place.silent, place.unheard = None, 0.0
        place.has_served, place.since = True, _now()
        log.info("the policy server of job %s serves at %s", place.job, address)
        self._moved()
        if not self._is_ready:
            self._is_ready = True
            ready.set_result(None)
        if self._is_down and self.watch is not None:
            self.watch.policy_ready()
        self._is_down = False

    def _moved(self) -> None:
        before, now = self._last, self.access
        if self.on_moved is not None and now != before:
            self.on_moved(now)

    async def _failed_to_start(self, place: ServerPlace, code: int) -> SparringError:
        words = await asyncio.to_thread(last_words, self._script.log_of(place.job))
        words = words or f"the policy server of job {place.job} {end_of(code).sentence} before it served."
        if code < 0:
            return PolicyHostFailed(
                f"the policy server of job {place.job} {end_of(code).sentence} while it loaded the policy. Did memory "
                f"run out? Its log ends with:\n{words}"
            )
        return UsageError(words) if code == _WRONGLY_STARTED else PolicyHostFailed(words)

    async def _ended(self, place: ServerPlace, end: ServerEnd) -> None:
        """Deals with the end of a server, or of its job.

        Raises:
            PolicyHostFailed: If starting it again is of no use.
        """
        was_up = place.since > 0
        lived = _now() - place.since if was_up else 0.0
        place.address = place.verdict = place.silent = None
        place.since = place.unheard = 0.0
        others, explained = any(other.is_up for other in self._places), False
        if was_up and self.watch is not None and not self._is_down and not (others and end.kind == "killed"):
            explained, self._is_down = self.watch.policy_ended(end), True
            if others:
                self.watch.policy_ready()
                self._is_down = False
        self._moved()
        place.deaths = 0 if explained else place.deaths + 1 if lived < self._rules.policy_server_settled else 1
        if self._rules.gives_up_policy_server(place.deaths):
            words = await asyncio.to_thread(last_words, self._script.log_of(place.job))
            raise PolicyHostFailed(
                f"the policy server died {place.deaths} times soon after it had started; the last time, job "
                f"{place.job} {end.sentence}. Its log ends with:\n{words}"
            )
        log.warning("the policy server of job %s %s; it is started again", place.job, end.sentence)

    async def _look(self, ready: asyncio.Future[None]) -> None:
        try:
            found = await to_the_end(commands.jobs, [self._script.name])
        except SlurmFailed as error:
            self._is_away(error)
            return
        if self._unreachable:
            log.info("Slurm answers again")
        self._unreachable = False
        jobs = {job.number: job for job in found}
        ours = {place.job for place in self._places}
        if strays := [job.number for job in found if not job.has_ended and job.number not in ours]:
            log.info("jobs %s were submitted after all, and are not needed", ", ".join(strays))
            self._later(commands.cancel, strays)
        for place in self._places:
            if place.job:
                await self._look_at(place, jobs.get(place.job), ready)
        self._check_hope(jobs)

    def _check_hope(self, jobs: Mapping[str, Job]) -> None:
        """Checks that some server serves, or may have its turn.

        Raises:
            PolicyHostFailed: If none ever will as it was submitted, with Slurm's own words.
        """
        ours = [jobs[place.job] for place in self._places if place.job in jobs]
        if ours and all(job.is_hopeless for job in ours):
            raise PolicyHostFailed(
                f"Slurm has taken the policy server's job and will never start it: {ours[0].reason}. Submit it "
                f"otherwise with {Hint('serve_slurm', 'KEY', 'VALUE')}."
            )

    async def _look_at(self, place: ServerPlace, job: Job | None, ready: asyncio.Future[None]) -> None:
        if job is None or job.has_ended:
            await self._hear(place, ready)  # what it said last
            await self._job_ended(place, await to_the_end(commands.end_of, place.job, job.state if job else ""))
            return
        if job.state == COMPLETING:
            place.completing = _now() if place.completing is None else place.completing
            if _now() - place.completing > _COMPLETING_SECONDS:
                await self._job_ended(place, JobEnd(COMPLETING, nodes=job.nodes, reason=job.reason))
            return
        where = f"runs on {job.nodes}" if job.state == RUNNING else f"waits: {job.reason}"
        if job.state in (RUNNING, PENDING) and where != place.told:
            place.told = where
            level = logging.WARNING if job.waits_for_somebody else logging.INFO
            log.log(level, "the policy server's job %s %s", place.job, where)

    async def _job_ended(self, place: ServerPlace, end: JobEnd) -> None:
        if end.cannot_be_logged:
            raise PolicyHostFailed(
                f"job {place.job} {end}: its node cannot write {str(self._script.log_of(place.job))!r}. The policy "
                f"server needs a folder that all nodes share; name one with {Hint('serve_folder')}."
            )
        if end.code == _WRONGLY_STARTED and not self._is_ready:
            raise await self._failed_to_start(place, end.code)
        await self._ended(place, ServerEnd("killed", str(end)))
        place.job, place.not_before = "", _now() + self._rules.pause(place.deaths)

    def _later(self, command: Callable[..., None], *arguments: object) -> None:
        """Has a command of Slurm's called, for which nobody waits; if it fails, what follows shows that."""

        async def call() -> None:
            try:
                await to_the_end(command, *arguments)
            except SparringError as error:
                log.warning("%s", error.sentence)

        task: asyncio.Future[None] = asyncio.ensure_future(call())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _is_away(self, error: SparringError) -> None:
        if not self._unreachable:
            log.warning(
                "Slurm does not answer; the run goes on with the policy servers that are there. %s", error.sentence
            )
        self._unreachable = True


def _now() -> float:
    return asyncio.get_running_loop().time()
