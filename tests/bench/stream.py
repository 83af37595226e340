"""One large write in a process of its own: `stream.py SYSTEM ROOT ROWS MEMORY_MB`.

Prints CPU seconds (the making of the rows taken off), wall time and peak memory.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import json
import sys
import time

import wide
from harness import peak_rss_mb


def main():
    system, root, rows, memory_mb = sys.argv[1:5]
    rows = int(rows)
    write = _writer(system, root, int(memory_mb) * 2**20)
    before_mb = peak_rss_mb()
    making = time.process_time()
    for _ in wide.batches(rows):
        pass
    making = time.process_time() - making
    cpu, wall = time.process_time(), time.perf_counter()
    write(wide.reader(rows))
    told = {
        "cpu_s": time.process_time() - cpu - making,
        "wall_s": time.perf_counter() - wall,
        "rss_mb": peak_rss_mb(),
        "grown_mb": peak_rss_mb() - before_mb,
    }
    print(json.dumps(told))


def _writer(system, root, memory_bytes):
    if system == "eventlog":
        from eventlog import Table
        from eventlog.writers import append

        table = Table.create(root, wide.SCHEMA, time_column=wide.TIME)
        return lambda reader: append(table, reader, memory_bytes=memory_bytes)
    if system == "deltalake":
        from deltalake import write_deltalake

        return lambda reader: write_deltalake(root, reader)
    if system == "pylance":
        import lance

        return lambda reader: lance.write_dataset(reader, root)
    import pyarrow.parquet as pq

    def plain(reader):
        with pq.ParquetWriter(f"{root}.parquet", wide.SCHEMA, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)

    return plain


if __name__ == "__main__":
    main()
