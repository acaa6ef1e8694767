"""Policy servers as jobs: who is told what when they come, end and move; with a made-up Slurm, and made-up servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring.orchestrator.launchers.registry import hosting_of
from sparring.orchestrator.launchers.slurm import commands, end_jobs, server_jobs
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed
from sparring.orchestrator.launchers.slurm.hosting import SlurmHosting
from sparring.orchestrator.launchers.slurm.job import PENDING, RUNNING, Job, JobEnd
from sparring.orchestrator.launchers.slurm.server_jobs import ServerJobs
from sparring.orchestrator.launchers.slurm.server_news import ServerNews
from sparring.orchestrator.launchers.slurm.server_script import ServerScript
from sparring.orchestrator.launchers.slurm.settings import SlurmHostingSettings
from sparring.orchestrator.launchers.slurm.shared_files import SharedFiles
from sparring.orchestrator.retry import DEFAULT_RULES, RetryRules
from sparring.orchestrator.serving.policy_host import PolicyAccess, PolicyHostFailed, ServerEnd
from sparring.orchestrator.settings import read_settings, saved_settings
from sparring.policy_server.client import PolicyUnreachable
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError

TICK = 0.01
RULES = replace(DEFAULT_RULES, first_pause=0.0)


class MadeUpSlurm:
    """Answers for the commands, and for policy servers that are asked whether they are there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue: dict[str, Job] = {}
        self.scripts: dict[str, str] = {}
        self.asked: list[tuple[str, ...]] = []
        self.ends: dict[str, JobEnd] = {}
        self.answers = self.starts = True
        self.busy: set[str] = set()
        self.unanswered = 0
        for name in ("jobs", "submit", "cancel", "cancel_names", "own_jobs", "end_of", "signal"):
            monkeypatch.setattr(commands, name, getattr(self, name))
        for module, name in ((server_jobs, "LOOK_SECONDS"), (server_jobs, "_NEWS_SECONDS"), (end_jobs, "_END_LOOK")):
            monkeypatch.setattr(module, name, TICK)
        monkeypatch.setattr(server_jobs, "describe", self.describe)

    async def describe(self, access: PolicyAccess, timeout: float) -> None:
        if not self.answers or {address.host for address in access.addresses} & self.busy:
            self.unanswered += 1
            raise PolicyUnreachable("nobody answers.")

    def jobs(self, names: Sequence[str]) -> list[Job]:
        return list(self.queue.values())

    def submit(self, script: str) -> str:
        number = str(len(self.scripts) + 1)
        self.scripts[number] = script
        running = Job(number, RUNNING, 0, "name", "node1", "")
        never = Job(number, PENDING, 0, "name", "", "PartitionTimeLimit")
        self.queue[number] = running if self.starts else never
        return number

    def cancel(self, numbers: Sequence[str]) -> None:
        self.asked.append(("cancel", *numbers))
        for number in numbers:
            self.end(number, JobEnd("CANCELLED"))

    def cancel_names(self, names: Sequence[str]) -> None:
        self.queue.clear()

    def own_jobs(self) -> list[Any]:
        return []

    def end_of(self, job: str, state: str) -> JobEnd:
        return self.ends.get(job, JobEnd("CANCELLED"))

    def signal(self, numbers: Sequence[str], name: str) -> None:
        self.asked.append((name, *numbers))

    def end(self, number: str, end: JobEnd) -> None:
        self.ends[number] = end
        self.queue.pop(number, None)

    def news_of(self, number: str) -> Path:
        return Path(next(w for w in self.scripts[number].split() if w.startswith("--news=")).removeprefix("--news="))

    def serves(self, number: str, port: int = 1) -> None:
        ServerNews(f"tls://10.0.0.{number}:{port}", f"cert {number}").append_to(self.news_of(number))

    def dies(self, number: str, code: int) -> None:
        ServerNews(code=code).append_to(self.news_of(number))


class Told:
    """Who is told of all that happens."""

    def __init__(self, *, explained: bool = False) -> None:
        self.words: list[str] = []
        self.explained = explained

    def policy_ended(self, end: ServerEnd) -> bool:
        self.words.append(end.kind)
        return self.explained

    def policy_ready(self) -> None:
        self.words.append("ready")

    def moved(self, access: PolicyAccess) -> None:
        self.words.append(" ".join(address.host for address in access.addresses))


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> MadeUpSlurm:
    return MadeUpSlurm(monkeypatch)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(TICK)


Play = Callable[[ServerJobs, Told], Awaitable[None]]


@pytest.fixture
def hosted(slurm: MadeUpSlurm, tmp_path: Path) -> Callable[..., None]:
    def play(then: Play, *, replicas: int = 1, rules: RetryRules = RULES, told: Told | None = None) -> None:
        files = SharedFiles.of(None, tmp_path, "abc", encrypted=False)
        script = ServerScript(
            name="name",
            comment="comment",
            folder=tmp_path,
            logs=files.logs,
            options={},
            token=files.token,
            alive=files.beside("alive"),
            towards="10.0.0.9",
            arguments=["--policy=zero"],
        )
        jobs = ServerJobs(script, files, tmp_path, replicas=replicas, rules=rules, timeout=1.0)

        async def run() -> None:
            ready = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(jobs.run(ready))
            await until(lambda: len(slurm.scripts) == replicas or task.done())
            if len(slurm.scripts) == replicas:
                slurm.serves("1")
            await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
            watch = jobs.watch = told or Told()
            jobs.on_moved = watch.moved
            playing = asyncio.ensure_future(then(jobs, watch))
            await asyncio.wait([playing, task], return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            playing.cancel()
            results = await asyncio.gather(task, playing, return_exceptions=True)
            assert not (tmp_path / "slurm").exists(), "nothing is left, whatever happened"
            assert slurm.queue == {}
            for result in results:
                if isinstance(result, Exception):
                    raise result

        asyncio.run(run())

    return play


def test_a_server_that_is_lost_is_replaced_elsewhere_and_everybody_hears_of_it(
    hosted: Callable[..., None], slurm: MadeUpSlurm
) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        assert jobs.access.addresses[0].host == "10.0.0.1"
        slurm.end("1", JobEnd("NODE_FAIL"))
        await until(lambda: "2" in slurm.scripts)
        assert jobs.access.addresses[0].host == "10.0.0.1", "where it was: nobody plays meanwhile"
        slurm.serves("2")
        await until(lambda: "ready" in told.words)
        assert told.words == ["killed", "10.0.0.2", "ready"], "where it is comes before anything is played there"
        assert jobs.access.ca == b"cert 2"
        assert not jobs.access.replicas

    hosted(play)


def test_a_server_that_crashes_comes_back_in_its_job(hosted: Callable[..., None], slurm: MadeUpSlurm) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.dies("1", -11)
        slurm.serves("1")
        await until(lambda: "ready" in told.words)
        assert told.words == ["crashed", "ready"], "it is where it was"
        assert len(slurm.scripts) == 1

    hosted(play)


def test_others_go_on_when_one_of_several_is_lost_and_are_suspects_when_it_crashed(
    hosted: Callable[..., None], slurm: MadeUpSlurm
) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.serves("2")
        await until(lambda: told.words == ["10.0.0.1 10.0.0.2"])
        assert jobs.access.replicas
        assert jobs.access.ca == b"cert 1\ncert 2"
        slurm.end("1", JobEnd("PREEMPTED"))
        await until(lambda: len(told.words) == 2)
        assert told.words[1:] == ["10.0.0.2"], "nobody waits for it"
        await until(lambda: "3" in slurm.scripts)
        slurm.serves("3")
        await until(lambda: len(told.words) == 3)
        assert told.words[2:] == ["10.0.0.3 10.0.0.2"]
        slurm.dies("2", 9)
        await until(lambda: len(told.words) == 6)
        assert told.words[3:] == ["crashed", "ready", "10.0.0.3"]

    hosted(play, replicas=2)


def test_servers_that_hang_are_signalled_and_where_that_is_of_no_use_cancelled(
    hosted: Callable[..., None], slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_jobs, "_OBEY_SECONDS", 5 * TICK)

    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.serves("2")
        await until(lambda: len(told.words) == 1)
        assert not jobs.restart("does not answer", only_if_stopped=True)
        assert jobs.restart("did not answer")
        assert not jobs.restart("did not answer"), "once is enough"
        slurm.dies("1", -9)
        slurm.serves("1")
        await until(lambda: len(slurm.scripts) == 3)  # the other does not do as it is told
        assert slurm.asked == [("SIGUSR2", "1", "2"), ("cancel", "2")]
        assert told.words[1:] == ["hung", "10.0.0.1", "ready"], "told once, whoever it was"

    hosted(play, replicas=2)


def test_nothing_is_played_until_it_is_known_why_a_session_broke_off(
    hosted: Callable[..., None], slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_jobs, "_OBEY_SECONDS", 10 * TICK)

    async def play(jobs: ServerJobs, told: Told) -> None:
        assert jobs.session_broke()
        await until(lambda: told.words)
        assert told.words == ["ready"], "it is there: it was that session's own affair"
        slurm.answers = False
        assert jobs.session_broke()
        await asyncio.sleep(3 * TICK)
        assert told.words == ["ready"]
        slurm.dies("1", -11)
        await until(lambda: len(told.words) == 2)
        assert told.words[1:] == ["crashed"], "what it was is told, and not that it did not answer"
        slurm.answers = True
        slurm.serves("1")
        await until(lambda: len(told.words) == 3)
        assert told.words[2:] == ["ready"]
        slurm.answers = False
        assert jobs.session_broke()
        await until(lambda: ("cancel", "1") in slurm.asked)  # nobody says that it has ended
        await until(lambda: len(told.words) == 4)
        assert told.words[3:] == ["killed"]

    hosted(play)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_server_that_was_only_too_busy_to_answer_keeps_its_job(
    hosted: Callable[..., None], slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    monkeypatch.setattr(server_jobs, "_OBEY_SECONDS", 30 * TICK)
    monkeypatch.setattr(server_jobs, "_AGAIN_SECONDS", TICK)

    async def play(jobs: ServerJobs, told: Told) -> None:
        if replicas == 2:
            slurm.serves("2")
            await until(lambda: told.words)
            told.words.clear()
        slurm.busy = {"10.0.0.1"}
        assert jobs.session_broke()
        await until(lambda: slurm.unanswered > 3)
        assert told.words == ([] if replicas == 1 else ["10.0.0.2", "ready"]), "another one goes on meanwhile"
        told.words.clear()
        slurm.busy = set()
        await until(lambda: "ready" in told.words)
        assert told.words == (["ready"] if replicas == 1 else ["10.0.0.1 10.0.0.2", "ready"])
        await asyncio.sleep(40 * TICK)
        assert slurm.asked == []
        assert len(slurm.scripts) == replicas
        slurm.dies("1", -11)
        await until(lambda: "crashed" in told.words)

    hosted(play, replicas=replicas)


def test_one_that_answers_again_is_used_though_the_other_crashed_meanwhile(
    hosted: Callable[..., None], slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_jobs, "_AGAIN_SECONDS", TICK)

    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.serves("2")
        await until(lambda: told.words)
        slurm.busy = {"10.0.0.1"}
        assert jobs.session_broke()
        await until(lambda: "ready" in told.words)
        told.words.clear()
        slurm.dies("2", -11)
        await until(lambda: told.words)
        assert told.words == ["crashed"]
        slurm.busy = set()
        await until(lambda: len(told.words) == 3)
        assert told.words[1:] == ["10.0.0.1", "ready"]

    hosted(play, replicas=2)


def test_a_server_that_dies_again_and_again_ends_the_run(hosted: Callable[..., None], slurm: MadeUpSlurm) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        for number in range(1, 9):
            slurm.end(str(number), JobEnd("OUT_OF_MEMORY"))
            await until(lambda last=number: len(slurm.scripts) > last)  # type: ignore[misc]
            slurm.serves(str(number + 1))
            await until(lambda last=number: told.words.count("ready") == last)  # type: ignore[misc]

    with pytest.raises(PolicyHostFailed, match=r"died 6 times soon after .* job 6 ran out of memory"):
        hosted(play)


def test_deaths_that_an_episode_explains_do_not_count(hosted: Callable[..., None], slurm: MadeUpSlurm) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        for number in range(8):
            slurm.dies("1", 9)
            slurm.serves("1")
            await until(lambda last=number: told.words.count("ready") == last + 1)  # type: ignore[misc]

    hosted(play, told=Told(explained=True))


def test_one_that_comes_back_and_cannot_be_reached_is_replaced(hosted: Callable[..., None], slurm: MadeUpSlurm) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.answers = False
        slurm.dies("1", 9)
        slurm.serves("1")
        await until(lambda: "2" in slurm.scripts)
        slurm.answers = True
        slurm.serves("2")
        await until(lambda: "ready" in told.words)
        assert told.words == ["crashed", "10.0.0.2", "ready"]

    hosted(play)


@pytest.mark.parametrize(("code", "kind"), [(2, UsageError), (1, PolicyHostFailed), (-9, PolicyHostFailed)])
def test_a_policy_that_cannot_be_loaded_ends_the_run_at_once(
    hosted: Callable[..., None],
    slurm: MadeUpSlurm,
    code: int,
    kind: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dies(number: str, port: int = 1) -> None:
        (tmp_path / "logs" / "policy-server-1.log").write_text("error: no such policy.")
        slurm.dies(number, code)

    monkeypatch.setattr(slurm, "serves", dies)

    async def never(jobs: ServerJobs, told: Told) -> None:
        await asyncio.sleep(5)
        raise AssertionError

    with pytest.raises(kind, match="no such policy"):
        hosted(never)


def test_a_job_that_will_never_start_ends_the_run(hosted: Callable[..., None], slurm: MadeUpSlurm) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.queue["1"] = Job("1", PENDING, 0, "name", "", "PartitionTimeLimit")
        await asyncio.sleep(5)

    with pytest.raises(PolicyHostFailed, match="will never start it: PartitionTimeLimit"):
        hosted(play)


def test_a_replacement_that_will_never_start_ends_no_run_that_another_serves(
    hosted: Callable[..., None], slurm: MadeUpSlurm, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.serves("2")
        await until(lambda: told.words)
        slurm.starts = False
        slurm.end("1", JobEnd("TIMEOUT"))
        await until(lambda: "3 waits: PartitionTimeLimit" in caplog.text)
        await asyncio.sleep(10 * TICK)
        assert caplog.text.count("3 waits: PartitionTimeLimit") == 1, "told once"
        assert jobs.access.addresses[0].host == "10.0.0.2", "it goes on"
        slurm.dies("2", -11)
        slurm.serves("2")
        await until(lambda: told.words[-1] == "ready")
        told.words.append("went on")
        slurm.end("2", JobEnd("TIMEOUT"))  # and now there is nobody left
        await asyncio.sleep(5)

    told = Told()
    with pytest.raises(PolicyHostFailed, match="will never start it: PartitionTimeLimit"):
        hosted(play, replicas=2, told=told)
    assert "went on" in told.words


def test_a_replacement_that_slurm_does_not_take_ends_no_run_that_another_serves(
    hosted: Callable[..., None], slurm: MadeUpSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_jobs, "_REFUSED_SECONDS", TICK)
    submit, refused = slurm.submit, list[str]()

    def refuses(script: str) -> str:
        refused.append(script)
        raise SlurmFailed("AssocMaxSubmitJobLimit.")

    async def play(jobs: ServerJobs, told: Told) -> None:
        slurm.serves("2")
        await until(lambda: told.words)
        monkeypatch.setattr(commands, "submit", refuses)
        slurm.end("1", JobEnd("TIMEOUT"))
        await until(lambda: len(refused) == 3)
        monkeypatch.setattr(commands, "submit", submit)
        await until(lambda: "3" in slurm.scripts)
        slurm.serves("3")
        await until(lambda: told.words[-1] == "10.0.0.3 10.0.0.2")
        told.words.append("went on")
        monkeypatch.setattr(commands, "submit", refuses)
        slurm.end("2", JobEnd("TIMEOUT"))
        slurm.end("3", JobEnd("TIMEOUT"))  # and now there is nobody left
        await asyncio.sleep(5)

    told = Told()
    with pytest.raises(PolicyHostFailed, match="does not take the policy server's job: AssocMaxSubmitJobLimit"):
        hosted(play, replicas=2, told=told)
    assert "went on" in told.words


def test_news_are_read_line_by_line_and_a_broken_one_is_an_end(tmp_path: Path) -> None:
    path = tmp_path / "news"
    gone = ServerNews(code=1)
    gone.append_to(path)
    assert not path.exists(), "its run has ended: nothing is left behind"
    path.touch()
    served = ServerNews("tls://10.0.0.1:5", "cert\nof two lines")
    served.append_to(path)
    with path.open("a") as file:
        file.write('{"address": "tls://1')
    assert ServerNews.of(path, known=0) == [served]
    with path.open("a") as file:
        file.write("\n")
    assert ServerNews.of(path, known=1) == [gone]


def settings(**given: Any) -> Any:
    return read_settings({"benchmark": "toy", "task": "short", "policy": "zero", **given})


def test_the_script_has_what_the_user_wants_and_no_secret(tmp_path: Path) -> None:
    run = settings(serve_on="slurm", serve_slurm={"gres": "gpu:1", "time": "8:00:00"}, output=str(tmp_path / "a b"))
    hosting = hosting_of(run)
    assert isinstance(hosting, SlurmHosting)
    first, *script = hosting.preview()
    assert first == "1 job, by sbatch:"
    assert "#SBATCH --gres=gpu:1" in script
    assert "#SBATCH --time=8:00:00" in script
    assert "#SBATCH --no-requeue" in script
    assert script[-1].startswith("exec ")
    assert f"'--token-file={tmp_path}/a b/slurm/EXECUTION.token'" in script[-1]
    assert "--listen" not in script[-1], "where it listens is found out there"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": "zero", "serve_slurm": {"gres": "gpu:1"}}, "serve_slurm.* goes with .*serve_on"),
        ({"policy_server": "a:1", "serve_on": "slurm"}, "serve_on.* goes with .*policy"),
        ({"policy": "zero", "serve_on": "slurm", "serve_slurm": {"array": "1-2"}}, "`serve_replicas` says that"),
        ({"policy": "zero", "serve_on": "slurm", "in_process": True}, "serve_on.* is of no use with .*in_process"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_settings({"benchmark": "toy", "task": "short", **given})
    assert re.search(said.replace("_", "[-_]"), refused.value.told(FLAGS))


def test_a_place_that_hosts_nothing_is_told() -> None:
    with pytest.raises(UsageError, match=r"unknown place for a policy: 'docker'\. Known: here, slurm"):
        hosting_of(settings(serve_on="docker"))


def test_what_was_said_of_one_place_says_nothing_about_another() -> None:
    asked = {"gres": "gpu:1"}
    saved = settings(serve_on="slurm", serve_slurm=asked).flat()
    assert "serve_slurm" not in read_settings(saved_settings(saved, {"serve_on": "here"})).flat()
    assert read_settings(saved_settings(saved, {})).policy.hosting == SlurmHostingSettings(serve_slurm=asked)
    kept = read_settings(saved_settings(saved, {"launcher": "none"}))
    assert kept.flat()["serve_slurm"] == asked, "who starts the workers is another matter"
