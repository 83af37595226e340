"""What a person sees: tables that fit a terminal, a pager, bars of progress.

Needs the extra `cli`.

grid    the lines of a table within a width: pure
lanes   the lines of a history with branches: pure
paging  the options --wide, --records and --no-pager, and the pager
"""
