"""What the verb demo runs, with a year of flights.

`contest`: two libraries write the same rows to one S3 server, in Python alone. `spark`: jobs of
Spark append, compaction runs beside them, three engines read, and jobs upsert.

Programs that use the library as its users do. They may import everything, and nothing imports them.
"""
