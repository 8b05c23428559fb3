"""The report of a pipeline: plots and tables of what is in its tables, in one file."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.spark.pipelines import charts
from penstock.spark.pipelines.expectations import rules
from penstock.spark.pipelines.project import Project, ProjectError, load
from penstock.spark.pipelines.report import Report, write_report
from penstock.spark.pipelines.scaffold import write_project

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_project(str(tmp_path / "shop"), "shop", "continuous")
    return load(str(tmp_path / "shop"), {})


def drawn(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def test_lines_go_up_where_numbers_do() -> None:
    svg = drawn(charts.lines({"a": [(NOON + timedelta(minutes=n), n) for n in range(5)], "b": [(NOON, 2.5)]}))
    line = next(element for element in svg.iter() if element.tag.endswith("polyline"))
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)  # down is up on a page
    texts = [element.text for element in svg.iter() if element.text]
    assert {"12:00:00", "12:04:00", "a", "b"} <= set(texts)


def test_bars_have_their_numbers_and_targets() -> None:
    svg = charts.bars({"one & only": 0.5, "two": 1234.0}, " ×", {"two": 1000})
    assert "one &amp; only" in svg and "0.5 ×" in svg and "1,234 ×" in svg
    assert len(re.findall("<rect", svg)) == 3
    drawn(svg)


@pytest.mark.parametrize("values", [{}, {"a": []}])
def test_nothing_is_drawn_of_nothing(values: dict[str, list[tuple[float, float]]]) -> None:
    assert "nothing yet" in charts.lines(values) and "nothing yet" in charts.bars({})


def test_a_line_of_equal_values_and_one_of_very_many() -> None:
    drawn(charts.lines({"flat": [(1, 7.0), (2, 7.0)]}))
    many = drawn(charts.lines({"": [(number, float(number % 9)) for number in range(50_000)]}))
    line = next(element for element in many.iter() if element.tag.endswith("polyline"))
    assert len(line.attrib["points"].split()) <= charts.MAX_POINTS


def test_a_section_shows_a_query_or_says_what_is_not_there(project: Project) -> None:
    rows = pa.table({"product": ["anvil", "<bell>"], "sold": [3, 4]})
    write_deltalake(project.table("sold"), rows)
    page = Report(project, "Sales").table("All", "SELECT * FROM sold ORDER BY 1").bars("Bars", "FROM sold").html()
    assert "<td>&lt;bell&gt;</td>" in page and page.count("<svg") == 1 and "<title>Sales</title>" in page
    assert "no table missing yet" in Report(project).lines("Later", "FROM missing").html()
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page)  # nothing is fetched


def test_a_project_writes_its_report_before_it_has_run(project: Project) -> None:
    page = Path(write_report(project)).read_text()
    assert page.count("There is no table") == 6


def test_a_project_without_a_report_says_so(project: Project) -> None:
    Path(project.directory, "report.py").unlink()
    with pytest.raises(ProjectError, match=r"report\.py"):
        write_report(project)


def test_expectations_have_a_known_action_and_a_name_of_their_own() -> None:
    with pytest.raises(ValueError, match="allowed are warn, drop, fail"):
        rules(("a", "1 = 1", "ignore"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="names of expectations differ"):
        rules(("a", "1 = 1", "warn"), ("a", "2 = 2", "drop"))
