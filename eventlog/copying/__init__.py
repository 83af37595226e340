"""Copies objects from one store to another, and compares each with what the log describes.

Under `merging`, which copies segments to new keys, and `replication`, which copies all objects of a
version. Imports `store` and below. Start at `copier`.
"""
