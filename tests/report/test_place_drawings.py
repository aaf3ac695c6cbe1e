"""Maps of places that have names and moves but no coordinates."""

from dataclasses import replace

import numpy as np
import pytest

from trustirl.report.drawing import NARROW, WIDE
from trustirl.report.place_drawings import arranged, distances, draw_map, draw_paid, draw_times, sections
from trustirl.report.places import Moment, Place, Story


def apart(points: np.ndarray) -> np.ndarray:
    return np.linalg.norm(points[:, None] - points[None], axis=2)


@pytest.fixture
def told() -> Story:
    places = [
        Place(name, seen, seen, 0.1, 0.1, paid, None, None, [("rests", 1.0)])
        for name, seen, paid in (
            ("池 & wood", 0.6, 0.5),
            ("гнездо", 0.3, -0.5),
            ("a meadow with a very long name", 0.1, None),
        )
    ]
    moves = [[0.0, 0.02, 0.0], [0.02, 0.0, 0.01], [0.0, 0.0, 0.0]]
    times = [Moment(0, [0.7, 0.2, 0.1], [0.6, 0.3, 0.1]), Moment(9, [0.5, 0.4, 0.1], [0.6, 0.3, 0.1])]
    return Story(["one row"], "place", {"visits": 1.0, "flows": 2.0, "nll": 0.5}, 0, places, [], times, [], moves)


def test_distances_that_a_plane_can_hold_are_kept() -> None:
    points = np.random.default_rng(0).normal(size=(9, 2))
    found = arranged(apart(points))
    np.testing.assert_allclose(apart(found), apart(points), atol=1e-3)
    assert np.ptp(found[:, 0]) > np.ptp(found[:, 1]) * 0.8  # the longer axis first
    np.testing.assert_array_equal(found, arranged(apart(points)))


def test_places_with_moves_between_them_lie_near_each_other() -> None:
    moves = np.zeros((7, 7))
    for one, other in ((0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)):  # two triangles and a bridge
        moves[one, other] = 0.5 if (one, other) == (2, 3) else 1.0
    found = distances(moves)
    assert found[0, 1] == pytest.approx(0.5)
    assert found[2, 3] == pytest.approx(1 - np.sqrt(0.5) / 2)
    assert found[0, 5] == pytest.approx(found[0, 2] + found[2, 3] + found[3, 5])
    assert found[6, 0] == found[6, 5] == pytest.approx(found[:6, :6].max() + 1)  # nobody ever goes there
    drawn = apart(arranged(found))
    assert drawn[:3, :3].max() < drawn[:3, 4:6].min()
    assert drawn[np.triu_indices(7, 1)].min() > 0.1


@pytest.mark.parametrize("count", [0, 1, 2, 12])
def test_places_that_no_distance_tells_apart_are_still_drawn_apart(count: int) -> None:
    star = np.zeros((count, count))
    star[0:1, 1:] = 1.0
    points = arranged(distances(star))
    assert points.shape == (count, 2)
    assert np.isfinite(points).all()
    assert (apart(points) + np.eye(count) > 0.1).all()


def test_names_stand_on_the_map_and_beside_what_is_paid(told: Story) -> None:
    for layout in (WIDE, NARROW):
        drawn = draw_map(told, layout)
        assert drawn == draw_map(told, layout)
        for words in ("池 &amp; wood", "гнездо", "a meadow with a very…", "60 %"):
            assert words in drawn
    paid = draw_paid(told, WIDE)
    assert "гнездо" in paid
    assert "meadow" not in paid  # nothing is known of it
    times = draw_times(told, WIDE)
    assert times.count("stroke-dasharray") >= 3


def test_a_page_of_a_run_from_before_the_map_says_so(told: Story) -> None:
    page = sections(replace(told, moves=[], times=[]))
    assert page.count("There is nothing to draw.") == 2
    assert "What they seem to want" in page
