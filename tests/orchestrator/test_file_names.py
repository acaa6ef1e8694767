"""What films and recordings are called: no file outside its folder, and none that two episodes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.file_names import FileNames, file_name, unique_file_names


def names_of(**benchmarks: list[str]) -> FileNames:
    tasks = {
        name: [Task(task, "", group="all", number=number) for number, task in enumerate(tasks)]
        for name, tasks in benchmarks.items()
    }
    return FileNames(Plan(tasks, episodes=4, seed=0))


@pytest.mark.parametrize("name", ["", ".", "..", "...", "../..", "/etc", "a/../../b", "plain", ".hidden"])
def test_whatever_a_task_is_called_its_recording_is_two_folders_below_that_of_recordings(name: str) -> None:
    for episode in (EpisodeId("toy", name, 3), EpisodeId(name, "short", 3)):
        path = names_of(**{episode.benchmark: [episode.task]}).recording(Path("demos"), episode)
        assert (path.parts[0], len(path.parts), path.name) == ("demos", 4, "0003.npz")
        assert ".." not in path.parts
    assert file_name("plain") == "plain"


def test_names_are_those_of_earlier_releases_where_nothing_clashes() -> None:
    names = names_of(libero=["libero_goal/8", "libero_goal/9"])
    episode = EpisodeId("libero", "libero_goal/8", 2)
    assert names.film(episode, "failure") == "libero_goal_8_0002_failure.mp4"
    assert names.film(episode, "success", "gif") == "libero_goal_8_0002_success.gif"
    assert names.lerobots_film(episode) == "all_0/eval_episode_2.mp4"
    assert names.recording(Path("demos"), episode) == Path("demos/libero/libero_goal_8/0002.npz")


def test_tasks_that_would_share_a_name_do_not() -> None:
    names = names_of(toy=["a/b", "a_b", "a:b", "c"])
    episodes = [EpisodeId("toy", task, 0) for task in ("a/b", "a_b", "a:b", "c")]
    films = [names.film(episode, "failure") for episode in episodes]
    assert len(set(films)) == 4
    assert films[1] == "a_b_0000_failure.mp4"  # which has that name already
    assert films[3] == "c_0000_failure.mp4"
    assert len({names.recording(Path("demos"), episode) for episode in episodes}) == 4


def test_benchmarks_and_groups_that_would_share_a_name_do_not() -> None:
    names = names_of(**{"my:toy": ["a"], "my_toy": ["a"]})
    episodes = [EpisodeId(benchmark, "a", 0) for benchmark in ("my:toy", "my_toy")]
    for made in (lambda e: names.film(e, "success"), names.lerobots_film, lambda e: names.recording(Path("d"), e)):
        assert len({made(episode) for episode in episodes}) == 2


def test_a_name_depends_on_what_it_is_of_and_on_nothing_else() -> None:
    assert unique_file_names(["a/b", "a_b"]) == unique_file_names(["a_b", "a/b"])
