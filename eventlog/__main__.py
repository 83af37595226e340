"""`python -m eventlog`: the program `eventlog`, as `python -m eventlog.cli`."""

import runpy

runpy.run_module("eventlog.cli", run_name="__main__")
