"""The verb demo. Needs the extra `cli`; imports the demo only when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eventlog.cli import terminal
from eventlog.cli.place import options

if TYPE_CHECKING:
    from eventlog.demo.contest.outcome import ContestResult
    from eventlog.demo.spark.result import DemoResult

_QUICK_DAYS = 10


@click.command("demo")
@options
@click.option(
    "--local",
    type=click.Path(file_okay=False),
    help="The new folder for the table that is left; with --spark, for the table.",
)
@click.option("--quick", is_flag=True, help=f"Every {_QUICK_DAYS}th day of the year only.")
@click.option("--spark", is_flag=True, help="Run Spark's jobs instead: minutes, with Java 17+.")
def demo_(
    *,
    storage_option: dict[str, str],
    as_json: bool,
    debug: bool,
    local: str | None,
    quick: bool,
    spark: bool,
) -> int:
    """Run the demo: many programs append a year of flights beside compaction, in some 15 seconds.

    The library deltalake does the same beside them, if it is installed. The table is left in a
    folder, with commands that explore it.
    """
    del storage_option, debug
    every = _QUICK_DAYS if quick else 1
    shown = None if as_json else terminal
    if spark:
        from eventlog.demo.spark.demo import DemoPlan, run_demo  # noqa: PLC0415 - needs the extra

        return _end(run_demo(DemoPlan(folder=local, every=every), shown), as_json)
    from eventlog.demo.contest.contest import run_contest  # noqa: PLC0415 - likewise
    from eventlog.demo.contest.outcome import ContestPlan  # noqa: PLC0415

    return _end(run_contest(ContestPlan(folder=local, every=every), shown), as_json)


def _end(result: DemoResult | ContestResult, as_json: bool) -> int:
    if as_json:
        terminal.json_document(result.facts())
    return 0 if result.ok else 1
