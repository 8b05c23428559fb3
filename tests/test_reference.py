"""The generated pages of the reference are those that the code makes, and nothing in them is without a meaning."""

from __future__ import annotations

import pytest
from scripts.reference import configuration, errors
from scripts.reference.pages import DIRECTORY, PAGES

from penstock.config.settings import Grant, Settings


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_the_one_that_the_code_makes(name: str) -> None:
    assert (DIRECTORY / name).read_text() == PAGES[name](), f"docs/reference/{name} is stale: run `make reference`"


def test_every_key_of_the_configuration_has_a_meaning() -> None:
    sections: list[type] = [*configuration.sections().values(), Grant]
    for section in sections:
        missing = [key for key, text in configuration.meanings(section).items() if not text]
        assert not missing, f"{section.__name__}: write a string below {', '.join(missing)} that says what it means"
    assert configuration.meanings(Settings)["data_dir"]


def test_every_error_has_a_meaning() -> None:
    assert [kind.__name__ for kind in errors.kinds() if not errors.meaning(kind)] == []
