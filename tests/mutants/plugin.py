"""The pytest plugin `-p mutants.plugin --mutant NAME`: runs without one guard."""

from contextlib import ExitStack

from mutants.mutants import BY_NAME
from mutants.swap import applied


def pytest_addoption(parser):
    parser.addoption("--mutant", help="name of the mutant that is applied")


def pytest_configure(config):
    name = config.getoption("--mutant")
    if name:
        config.stash_mutant = ExitStack()
        config.stash_mutant.enter_context(applied(BY_NAME[name]))


def pytest_report_header(config):
    return f"mutant: {config.getoption('--mutant')}"


def pytest_unconfigure(config):
    if hasattr(config, "stash_mutant"):
        config.stash_mutant.close()
