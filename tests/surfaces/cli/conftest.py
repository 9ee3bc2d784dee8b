"""The fixtures of the command line, for every test of this folder. Tests elsewhere name them in `pytest_plugins`."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("surfaces.cli.cli_fixtures")
