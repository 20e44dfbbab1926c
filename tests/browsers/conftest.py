"""A browser that the tests of one process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browsers.chromium import Page, chromium


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The tab of a running browser; every test opens its own file."""
    with chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running
