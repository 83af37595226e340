"""The verb demo. Needs the extra `cli`; imports the demo only when it runs."""

from __future__ import annotations

import click

from eventlog.cli import terminal
from eventlog.cli.place import options

_QUICK_DAYS = 10


@click.command("demo")
@options
@click.option("--local", type=click.Path(file_okay=False), help="Use a new table in this folder.")
@click.option("--quick", is_flag=True, help=f"Every {_QUICK_DAYS}th day of the year only.")
def demo_(
    *, storage_option: dict[str, str], as_json: bool, debug: bool, local: str | None, quick: bool
) -> int:
    """Run the demo: a year of flights, concurrent Spark jobs, three engines that agree, upserts."""
    del storage_option, debug
    from eventlog.demo import demo  # noqa: PLC0415 - needs Spark, DuckDB, Polars and moto

    plan = demo.DemoPlan(folder=local, every=_QUICK_DAYS if quick else 1)
    result = demo.run_demo(plan, None if as_json else terminal)
    if as_json:
        terminal.json_document(result.facts())
    return 0 if result.ok else 1
