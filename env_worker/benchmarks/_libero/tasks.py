"""The tasks of LIBERO, as data: names, sentences, episode limits.

The orchestrator plans episodes in an interpreter that has no LIBERO in it, so the names live here and nothing is
imported. The order is the package's own; a task's number is its place in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparring.env_worker.task_table import TaskTable

EPISODE_LIMITS: Mapping[str, int] = {
    "libero_spatial": 280,
    "libero_object": 280,
    "libero_goal": 300,
    "libero_10": 520,
    "libero_90": 400,
}
"""Control steps after which an episode of a suite is truncated, as LeRobot sets them."""

INITIAL_STATES = 50
"""Official initial states of every task."""

ALL_SUITES: Sequence[str] = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
"""What the selection `all` means: the four suites of ten that policies are reported on."""


@dataclass(frozen=True, slots=True)
class LiberoTask:
    """One task. Two tasks may share a sentence; they never share `id`."""

    suite: str
    number: int
    name: str

    @property
    def id(self) -> str:
        """`libero_spatial/3`: what selections, journals and reports call the task."""
        return f"{self.suite}/{self.number}"

    @property
    def sentence(self) -> str:
        """The instruction, taken from the file name as LeRobot does (the BDDL's own sentence often differs)."""
        return sentence_of(self.name)

    @property
    def limit(self) -> int:
        """Control steps after which an episode is truncated."""
        return EPISODE_LIMITS[self.suite]


def sentence_of(name: str) -> str:
    """Turns a task's file name into its instruction, dropping the scene prefix of the LIBERO-100 suites."""
    return re.sub(r"^[A-Z][A-Z_]*_SCENE\d+_", "", name).replace("_", " ")


def tasks_of(suite: str) -> tuple[LiberoTask, ...]:
    """Returns all tasks of a suite, in order."""
    return tuple(LiberoTask(suite, number, name) for number, name in enumerate(_NAMES[suite].split()))


def find(name: str) -> LiberoTask:
    """Returns the task of a name such as `libero_spatial/3`."""
    suite, _, number = name.rpartition("/")
    return tasks_of(suite)[int(number)]


_NAMES: Mapping[str, str] = {
    "libero_spatial": """
        pick_up_the_black_bowl_between_the_plate_and_the_ramekin_and_place_it_on_the_plate
        pick_up_the_black_bowl_next_to_the_ramekin_and_place_it_on_the_plate
        pick_up_the_black_bowl_from_table_center_and_place_it_on_the_plate
        pick_up_the_black_bowl_on_the_cookie_box_and_place_it_on_the_plate
        pick_up_the_black_bowl_in_the_top_drawer_of_the_wooden_cabinet_and_place_it_on_the_plate
        pick_up_the_black_bowl_on_the_ramekin_and_place_it_on_the_plate
        pick_up_the_black_bowl_next_to_the_cookie_box_and_place_it_on_the_plate
        pick_up_the_black_bowl_on_the_stove_and_place_it_on_the_plate
        pick_up_the_black_bowl_next_to_the_plate_and_place_it_on_the_plate
        pick_up_the_black_bowl_on_the_wooden_cabinet_and_place_it_on_the_plate
    """,
    "libero_object": """
        pick_up_the_alphabet_soup_and_place_it_in_the_basket
        pick_up_the_cream_cheese_and_place_it_in_the_basket
        pick_up_the_salad_dressing_and_place_it_in_the_basket
        pick_up_the_bbq_sauce_and_place_it_in_the_basket
        pick_up_the_ketchup_and_place_it_in_the_basket
        pick_up_the_tomato_sauce_and_place_it_in_the_basket
        pick_up_the_butter_and_place_it_in_the_basket
        pick_up_the_milk_and_place_it_in_the_basket
        pick_up_the_chocolate_pudding_and_place_it_in_the_basket
        pick_up_the_orange_juice_and_place_it_in_the_basket
    """,
    "libero_goal": """
        open_the_middle_drawer_of_the_cabinet
        put_the_bowl_on_the_stove
        put_the_wine_bottle_on_top_of_the_cabinet
        open_the_top_drawer_and_put_the_bowl_inside
        put_the_bowl_on_top_of_the_cabinet
        push_the_plate_to_the_front_of_the_stove
        put_the_cream_cheese_in_the_bowl
        turn_on_the_stove
        put_the_bowl_on_the_plate
        put_the_wine_bottle_on_the_rack
    """,
    "libero_10": """
        LIVING_ROOM_SCENE2_put_both_the_alphabet_soup_and_the_tomato_sauce_in_the_basket
        LIVING_ROOM_SCENE2_put_both_the_cream_cheese_box_and_the_butter_in_the_basket
        KITCHEN_SCENE3_turn_on_the_stove_and_put_the_moka_pot_on_it
        KITCHEN_SCENE4_put_the_black_bowl_in_the_bottom_drawer_of_the_cabinet_and_close_it
        LIVING_ROOM_SCENE5_put_the_white_mug_on_the_left_plate_and_put_the_yellow_and_white_mug_on_the_right_plate
        STUDY_SCENE1_pick_up_the_book_and_place_it_in_the_back_compartment_of_the_caddy
        LIVING_ROOM_SCENE6_put_the_white_mug_on_the_plate_and_put_the_chocolate_pudding_to_the_right_of_the_plate
        LIVING_ROOM_SCENE1_put_both_the_alphabet_soup_and_the_cream_cheese_box_in_the_basket
        KITCHEN_SCENE8_put_both_moka_pots_on_the_stove
        KITCHEN_SCENE6_put_the_yellow_and_white_mug_in_the_microwave_and_close_it
    """,
    "libero_90": """
        KITCHEN_SCENE10_close_the_top_drawer_of_the_cabinet
        KITCHEN_SCENE10_close_the_top_drawer_of_the_cabinet_and_put_the_black_bowl_on_top_of_it
        KITCHEN_SCENE10_put_the_black_bowl_in_the_top_drawer_of_the_cabinet
        KITCHEN_SCENE10_put_the_butter_at_the_back_in_the_top_drawer_of_the_cabinet_and_close_it
        KITCHEN_SCENE10_put_the_butter_at_the_front_in_the_top_drawer_of_the_cabinet_and_close_it
        KITCHEN_SCENE10_put_the_chocolate_pudding_in_the_top_drawer_of_the_cabinet_and_close_it
        KITCHEN_SCENE1_open_the_bottom_drawer_of_the_cabinet
        KITCHEN_SCENE1_open_the_top_drawer_of_the_cabinet
        KITCHEN_SCENE1_open_the_top_drawer_of_the_cabinet_and_put_the_bowl_in_it
        KITCHEN_SCENE1_put_the_black_bowl_on_the_plate
        KITCHEN_SCENE1_put_the_black_bowl_on_top_of_the_cabinet
        KITCHEN_SCENE2_open_the_top_drawer_of_the_cabinet
        KITCHEN_SCENE2_put_the_black_bowl_at_the_back_on_the_plate
        KITCHEN_SCENE2_put_the_black_bowl_at_the_front_on_the_plate
        KITCHEN_SCENE2_put_the_middle_black_bowl_on_the_plate
        KITCHEN_SCENE2_put_the_middle_black_bowl_on_top_of_the_cabinet
        KITCHEN_SCENE2_stack_the_black_bowl_at_the_front_on_the_black_bowl_in_the_middle
        KITCHEN_SCENE2_stack_the_middle_black_bowl_on_the_back_black_bowl
        KITCHEN_SCENE3_put_the_frying_pan_on_the_stove
        KITCHEN_SCENE3_put_the_moka_pot_on_the_stove
        KITCHEN_SCENE3_turn_on_the_stove
        KITCHEN_SCENE3_turn_on_the_stove_and_put_the_frying_pan_on_it
        KITCHEN_SCENE4_close_the_bottom_drawer_of_the_cabinet
        KITCHEN_SCENE4_close_the_bottom_drawer_of_the_cabinet_and_open_the_top_drawer
        KITCHEN_SCENE4_put_the_black_bowl_in_the_bottom_drawer_of_the_cabinet
        KITCHEN_SCENE4_put_the_black_bowl_on_top_of_the_cabinet
        KITCHEN_SCENE4_put_the_wine_bottle_in_the_bottom_drawer_of_the_cabinet
        KITCHEN_SCENE4_put_the_wine_bottle_on_the_wine_rack
        KITCHEN_SCENE5_close_the_top_drawer_of_the_cabinet
        KITCHEN_SCENE5_put_the_black_bowl_in_the_top_drawer_of_the_cabinet
        KITCHEN_SCENE5_put_the_black_bowl_on_the_plate
        KITCHEN_SCENE5_put_the_black_bowl_on_top_of_the_cabinet
        KITCHEN_SCENE5_put_the_ketchup_in_the_top_drawer_of_the_cabinet
        KITCHEN_SCENE6_close_the_microwave
        KITCHEN_SCENE6_put_the_yellow_and_white_mug_to_the_front_of_the_white_mug
        KITCHEN_SCENE7_open_the_microwave
        KITCHEN_SCENE7_put_the_white_bowl_on_the_plate
        KITCHEN_SCENE7_put_the_white_bowl_to_the_right_of_the_plate
        KITCHEN_SCENE8_put_the_right_moka_pot_on_the_stove
        KITCHEN_SCENE8_turn_off_the_stove
        KITCHEN_SCENE9_put_the_frying_pan_on_the_cabinet_shelf
        KITCHEN_SCENE9_put_the_frying_pan_on_top_of_the_cabinet
        KITCHEN_SCENE9_put_the_frying_pan_under_the_cabinet_shelf
        KITCHEN_SCENE9_put_the_white_bowl_on_top_of_the_cabinet
        KITCHEN_SCENE9_turn_on_the_stove
        KITCHEN_SCENE9_turn_on_the_stove_and_put_the_frying_pan_on_it
        LIVING_ROOM_SCENE1_pick_up_the_alphabet_soup_and_put_it_in_the_basket
        LIVING_ROOM_SCENE1_pick_up_the_cream_cheese_box_and_put_it_in_the_basket
        LIVING_ROOM_SCENE1_pick_up_the_ketchup_and_put_it_in_the_basket
        LIVING_ROOM_SCENE1_pick_up_the_tomato_sauce_and_put_it_in_the_basket
        LIVING_ROOM_SCENE2_pick_up_the_alphabet_soup_and_put_it_in_the_basket
        LIVING_ROOM_SCENE2_pick_up_the_butter_and_put_it_in_the_basket
        LIVING_ROOM_SCENE2_pick_up_the_milk_and_put_it_in_the_basket
        LIVING_ROOM_SCENE2_pick_up_the_orange_juice_and_put_it_in_the_basket
        LIVING_ROOM_SCENE2_pick_up_the_tomato_sauce_and_put_it_in_the_basket
        LIVING_ROOM_SCENE3_pick_up_the_alphabet_soup_and_put_it_in_the_tray
        LIVING_ROOM_SCENE3_pick_up_the_butter_and_put_it_in_the_tray
        LIVING_ROOM_SCENE3_pick_up_the_cream_cheese_and_put_it_in_the_tray
        LIVING_ROOM_SCENE3_pick_up_the_ketchup_and_put_it_in_the_tray
        LIVING_ROOM_SCENE3_pick_up_the_tomato_sauce_and_put_it_in_the_tray
        LIVING_ROOM_SCENE4_pick_up_the_black_bowl_on_the_left_and_put_it_in_the_tray
        LIVING_ROOM_SCENE4_pick_up_the_chocolate_pudding_and_put_it_in_the_tray
        LIVING_ROOM_SCENE4_pick_up_the_salad_dressing_and_put_it_in_the_tray
        LIVING_ROOM_SCENE4_stack_the_left_bowl_on_the_right_bowl_and_place_them_in_the_tray
        LIVING_ROOM_SCENE4_stack_the_right_bowl_on_the_left_bowl_and_place_them_in_the_tray
        LIVING_ROOM_SCENE5_put_the_red_mug_on_the_left_plate
        LIVING_ROOM_SCENE5_put_the_red_mug_on_the_right_plate
        LIVING_ROOM_SCENE5_put_the_white_mug_on_the_left_plate
        LIVING_ROOM_SCENE5_put_the_yellow_and_white_mug_on_the_right_plate
        LIVING_ROOM_SCENE6_put_the_chocolate_pudding_to_the_left_of_the_plate
        LIVING_ROOM_SCENE6_put_the_chocolate_pudding_to_the_right_of_the_plate
        LIVING_ROOM_SCENE6_put_the_red_mug_on_the_plate
        LIVING_ROOM_SCENE6_put_the_white_mug_on_the_plate
        STUDY_SCENE1_pick_up_the_book_and_place_it_in_the_front_compartment_of_the_caddy
        STUDY_SCENE1_pick_up_the_book_and_place_it_in_the_left_compartment_of_the_caddy
        STUDY_SCENE1_pick_up_the_book_and_place_it_in_the_right_compartment_of_the_caddy
        STUDY_SCENE1_pick_up_the_yellow_and_white_mug_and_place_it_to_the_right_of_the_caddy
        STUDY_SCENE2_pick_up_the_book_and_place_it_in_the_back_compartment_of_the_caddy
        STUDY_SCENE2_pick_up_the_book_and_place_it_in_the_front_compartment_of_the_caddy
        STUDY_SCENE2_pick_up_the_book_and_place_it_in_the_left_compartment_of_the_caddy
        STUDY_SCENE2_pick_up_the_book_and_place_it_in_the_right_compartment_of_the_caddy
        STUDY_SCENE3_pick_up_the_book_and_place_it_in_the_front_compartment_of_the_caddy
        STUDY_SCENE3_pick_up_the_book_and_place_it_in_the_left_compartment_of_the_caddy
        STUDY_SCENE3_pick_up_the_book_and_place_it_in_the_right_compartment_of_the_caddy
        STUDY_SCENE3_pick_up_the_red_mug_and_place_it_to_the_right_of_the_caddy
        STUDY_SCENE3_pick_up_the_white_mug_and_place_it_to_the_right_of_the_caddy
        STUDY_SCENE4_pick_up_the_book_in_the_middle_and_place_it_on_the_cabinet_shelf
        STUDY_SCENE4_pick_up_the_book_on_the_left_and_place_it_on_top_of_the_shelf
        STUDY_SCENE4_pick_up_the_book_on_the_right_and_place_it_on_the_cabinet_shelf
        STUDY_SCENE4_pick_up_the_book_on_the_right_and_place_it_under_the_cabinet_shelf
    """,
}

_TASKS: Mapping[str, LiberoTask] = {task.id: task for suite in _NAMES for task in tasks_of(suite)}

TASKS = TaskTable(
    benchmark="libero",
    instructions={name: task.sentence for name, task in _TASKS.items()},
    groups={suite: [task.id for task in tasks_of(suite)] for suite in EPISODE_LIMITS},
    aliases={"all": ",".join(ALL_SUITES)},
    initial_states=INITIAL_STATES,
    max_steps={name: task.limit for name, task in _TASKS.items()},
)
"""What selections are made of."""
