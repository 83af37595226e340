"""The demo: a year of flights written by Spark jobs at once, compacted, and read by three engines.

A program that uses the library as its users do: it imports all of it, and nothing imports the demo.
Start at `demo`; `load` simulates a day of overload with the real planner and queue.
"""
