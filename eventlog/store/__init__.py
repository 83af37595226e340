"""The storage port and its adapters, and how requests are sent.

    URI ──► location ──► ObjectStore (`port`): put_if_absent, put_hint, replace, get,
                         │           list, delete
                         ├─ s3          a bucket, or a store that speaks S3
                         ├─ local       a directory
                         ├─ memory      for tests and examples
                         └─ branching   a branch: its own objects, and its parent's below the fork

`retry` has the retry policy, `parallel` reads ahead in threads, `files` makes a pyarrow file system
of any store.

Imports `format` and below. Start at `port`.
"""
