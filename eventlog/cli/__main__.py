"""`python -m eventlog.cli`: the program `eventlog`."""

from eventlog.cli.entry import main

main()
