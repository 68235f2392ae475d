"""Line plots: valid SVG whose points lie in order inside the frame."""

import math
import xml.etree.ElementTree as ElementTree

import pytest

from fusedplanes.reports.line_plot import HEIGHT, WIDTH, line_plot


def points_of(svg: str) -> list[list[tuple[float, float]]]:
    root = ElementTree.fromstring(svg)
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    return [[tuple(map(float, pair.split(","))) for pair in line.get("points").split()] for line in lines]


@pytest.mark.parametrize("logarithmic", [False, True])
def test_points_rise_to_the_right_inside_the_frame(logarithmic):
    series = {"a & b": [(1, 10.0), (10, 20.0), (100, 25.0)], "c": [(5, 12.0), (50, 11.0)]}
    svg = line_plot(series, title="<title>", x_label="s", y_label="dB", logarithmic_x=logarithmic)
    first, second = points_of(svg)
    assert [x for x, _ in first] == sorted(x for x, _ in first)
    assert first[0][1] > first[1][1] > first[2][1]  # up is smaller in SVG
    assert second[0][1] < second[1][1]
    for x, y in first + second:
        assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT


def test_points_that_are_not_finite_are_left_out_and_empty_series_are_no_error():
    svg = line_plot({"a": [(0, math.nan), (1, 2.0)], "b": []}, title="t", x_label="x", y_label="y")
    assert [len(points) for points in points_of(svg)] in ([1], [1, 0])


def test_a_single_value_still_has_a_scale():
    (points,) = points_of(line_plot({"a": [(3, 7.0)]}, title="t", x_label="x", y_label="y"))
    assert len(points) == 1
