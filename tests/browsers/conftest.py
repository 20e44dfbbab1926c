"""A browser of each kind, which the tests of one process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browsers.browser import BROWSERS, Browser


@pytest.fixture(scope="session", params=BROWSERS)
def browser(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """A running browser; every test opens its own page."""
    with BROWSERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running
