"""Compaction: plans and runs the rewriting of segments. Nothing is here yet.

May import eventlog and readers; never writers.
"""
