"""What an event asks for: every source, one by one and in batches, and hostile bytes."""

import json
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.compaction.aws.events import (
    MAX_BODY_CHARS,
    MAX_SKIPPED,
    Ask,
    Message,
    collapse,
    continuation,
    is_within,
    parse_event,
    table_of,
)
from eventlog.errors import InvalidInput
from eventlog.format import keys

ROOT = "tables/a b+c=é"
COMMIT = f"{ROOT}/{keys.commit_key(7)}"
TABLE = f"s3://bucket/{ROOT}"
ASKED = (Ask(TABLE, 7),)


def s3_event(key=COMMIT, bucket="bucket", name="ObjectCreated:Put"):
    place = {"bucket": {"name": bucket}, "object": {"key": quote_plus(key, "/"), "size": 9}}
    return {"Records": [{"eventSource": "aws:s3", "eventName": name, "s3": place}]}


def bridge_event(key=COMMIT, bucket="bucket", kind="Object Created"):
    detail = {"version": "0", "bucket": {"name": bucket}, "object": {"key": key, "size": 9}}
    return {"version": "0", "source": "aws.s3", "detail-type": kind, "detail": detail}


def sns_body(event):
    return {"Type": "Notification", "MessageId": "x", "Message": json.dumps(event)}


def sns_event(event):
    return {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(event)}}]}


def batch(*bodies):
    """An SQS batch; the messages are called m0, m1, …"""
    texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    return {
        "Records": [
            {"messageId": f"m{n}", "body": text, "eventSource": "aws:sqs", "receiptHandle": "r"}
            for n, text in enumerate(texts)
        ]
    }


KINDS = {
    "s3": s3_event(),
    "s3 by multipart": s3_event(name="ObjectCreated:CompleteMultipartUpload"),
    "s3 with prefix": s3_event(name="s3:ObjectCreated:Put"),
    "bridge": bridge_event(),
    "sns body": sns_body(s3_event()),
    "sns body of the bridge": sns_body(bridge_event()),
    "sns": sns_event(s3_event()),
}


@pytest.mark.parametrize("event", KINDS.values(), ids=KINDS)
def test_each_source_names_the_commit_alone_and_in_a_batch(event):
    assert parse_event(event) == (Message(None, ASKED),)
    assert parse_event(batch(event)) == (Message("m0", ASKED),)


@pytest.mark.parametrize(
    ("event", "asks"),
    [
        ({"tables": ["s3://b/x/", "s3://b"]}, (Ask("s3://b/x"), Ask("s3://b"))),
        ({"tables": ["file:///x"]}, (Ask("file:///x"),)),
        ({"tables": ["s3://b/x", "s3://b/x"]}, (Ask("s3://b/x"),)),
        (json.loads(continuation("s3://b/x", 3, ["b" * 32, "a" * 32])),
         (Ask("s3://b/x", None, 3, frozenset({"a" * 32, "b" * 32})),)),
        ({"eventlog": {"resume": "s3://b/x"}}, (Ask("s3://b/x"),)),
    ],
)  # fmt: skip
def test_a_schedule_and_a_continuation_ask_for_tables(event, asks):
    assert parse_event(event) == (Message(None, asks),)
    assert parse_event(batch(event)) == (Message("m0", asks),)


def test_what_concerns_no_commit_asks_for_nothing():
    quiet = [
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"},
        s3_event(name="ObjectRemoved:Delete"),
        bridge_event(kind="Object Deleted"),
        s3_event(f"{ROOT}/{keys.keyframe_key(7)}"),
        bridge_event(f"{ROOT}/data/000000000001/2013-01-07/{'a' * 32}.parquet"),
        {"Records": []},
    ]
    assert parse_event(batch(*quiet)) == tuple(Message(f"m{n}") for n in range(len(quiet)))


ID = "a" * 32
LOG = keys.commit_key(7)


@pytest.mark.parametrize(
    ("key", "table"),
    [
        (f"a/{LOG}", "s3://bucket/a"),
        (f"a/b/{LOG}", "s3://bucket/a/b"),
        (LOG, "s3://bucket"),
        (f"a/_branches/b/{ID}/{LOG}", "s3://bucket/a/_branches/b"),
        (f"a/_branches/b/{ID}/_branches/c/{ID}/{LOG}", "s3://bucket/a/_branches/b/_branches/c"),
        (f"a/_branches/.b/{ID}/{LOG}", None),
        (f"a/{ID}/{LOG}", f"s3://bucket/a/{ID}"),
        (f"a/_log/{LOG}", "s3://bucket/a/_log"),
        (f"x{LOG}", None),  # a folder of another name
        (f"/{LOG}", None),
        (f"a//b/{LOG}", None),
        (f"a/../b/{LOG}", None),
        (f"./{LOG}", None),
        (f"a%20b/{LOG}", None),  # what no table's root may have
        (f"a\\b/{LOG}", None),
        (f"a\nb/{LOG}", None),
        (keys.keyframe_key(7), None),
        (f"{LOG}.tmp", None),
        (f"{LOG}\n", None),
        ("a/_log/00000000000.json", None),
        ("a/_log/0000000000000.json", None),
        ("a/_log/00000000000a.json", None),
        (f"a/_log/{chr(0x660) * 12}.json", None),
        ("a/_log/x/999999999992.json", None),
        ("", None),
    ],
)
def test_only_a_commit_key_names_a_table(key, table):
    assert table_of("bucket", key) == (table and (table, 7))


def test_the_version_is_counted_from_the_key():
    for version in (0, 1, 123_456, keys.MAX_VERSION):
        assert table_of("bucket", keys.commit_key(version)) == ("s3://bucket", version)


@pytest.mark.parametrize("bucket", ["", "x", "a/b", "../x", "a b", "-ab", "user:secret@host"])
def test_a_name_that_is_no_buckets_is_none(bucket):
    assert table_of(bucket, COMMIT) is None


def test_a_notification_of_s3_quotes_its_key_as_a_form_does():
    (message,) = parse_event(s3_event(f"a+b c/{LOG}"))
    assert message.asks == (Ask("s3://bucket/a+b c", 7),)
    assert "a%2Bb+c/" in s3_event(f"a+b c/{LOG}")["Records"][0]["s3"]["object"]["key"]


@pytest.mark.parametrize("key", ["a+b c", "a%2Bb%20c", "a+b%20c"])
def test_the_bridge_hands_keys_over_plain_or_quoted_as_a_path(key):
    (message,) = parse_event(bridge_event(f"{key}/{LOG}"))
    assert message.asks == (Ask("s3://bucket/a+b c", 7),)


BROKEN = [
    "",
    "not json",
    "[]",
    "null",
    "7",
    '"x"',
    "{}",
    '{"a":NaN}',
    "\ud800",
    "[" * 100_000,
    "x" * (MAX_BODY_CHARS + 1),
    '{"Records":7}',
    '{"Records":[7]}',
    '{"Records":[{"eventSource":"aws:s3"}]}',
    '{"Records":[{"eventSource":"aws:ses","eventName":"ObjectCreated:Put"}]}',
    '{"Records":[{"eventSource":"aws:s3","eventName":7,"s3":{}}]}',
    '{"source":"aws.s3","detail-type":"Object Created","detail":{"bucket":{"name":7}}}',
    '{"Type":"Notification","Message":7}',
    json.dumps(sns_body(sns_body(s3_event()))),  # one envelope, not a nest of them
    json.dumps(sns_event(sns_event(s3_event()))),
    '{"tables":[]}',
    '{"tables":"s3://b/x"}',
    '{"tables":["http://b/x"]}',
    '{"tables":["/etc"]}',
    '{"tables":["s3://b/\\u0000"]}',
    '{"tables":["s3://' + "x" * 3000 + '"]}',
    json.dumps({"tables": ["s3://b/x"] * 1001}),
    '{"eventlog":{}}',
    '{"eventlog":{"resume":"s3://b/x","turn":-1}}',
    '{"eventlog":{"resume":"s3://b/x","turn":1e999}}',
    '{"eventlog":{"resume":"s3://b/x","skip":["../x"]}}',
]


@pytest.mark.parametrize("body", BROKEN, ids=range(len(BROKEN)))
def test_a_message_that_is_not_understood_is_named_and_blocks_no_other(body):
    first, broken, last = parse_event(batch(s3_event(), body, bridge_event()))
    assert (first, last) == (Message("m0", ASKED), Message("m2", ASKED))
    assert (broken.id, broken.asks) == ("m1", ())
    assert broken.error
    assert len(broken.error) < 1000


def test_a_broken_record_condemns_its_whole_message():
    event = s3_event()
    event["Records"].append({"eventSource": "aws:s3"})
    (message,) = parse_event(event)
    assert message.error
    assert not message.asks


def test_a_batch_without_ids_is_refused():
    with pytest.raises(InvalidInput, match="is malformed"):
        parse_event({"Records": [{"eventSource": "aws:sqs", "body": "{}"}]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Records", "eventSource", "eventName", "s3", "source", "detail", "detail-type",
                 "bucket", "object", "name", "key", "tables", "eventlog", "resume", "Type",
                 "Message", "Event"]
            ),
            inner | st.sampled_from(["aws:s3", "aws.s3", "Notification", "aws:sns"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.verify
@given(JSON)
def test_whatever_comes_is_answered(event):
    (alone,) = parse_event(event)
    (delivered,) = parse_event(batch(json.dumps(event)))
    assert alone.id is None
    assert delivered.id == "m0"
    # JSON without NaN is read the same way in both.
    if "NaN" not in json.dumps(event) and "Infinity" not in json.dumps(event):
        assert delivered.asks == alone.asks
        assert bool(delivered.error) == bool(alone.error)


@given(st.text(max_size=200))
def test_any_text_is_answered(body):
    (message,) = parse_event(batch(body))
    assert message.id == "m0"


# --- one piece of work a table --------------------------------------------------------------------


def commit(version, table="t"):
    return bridge_event(f"{table}/{keys.commit_key(version)}")


def test_many_messages_of_one_table_are_one_piece_of_work():
    work = collapse(parse_event(batch(commit(9), commit(7, "u"), "broken", commit(8), commit(9))))
    assert [(w.table, w.versions, w.messages) for w in work] == [
        ("s3://bucket/t", (8, 9), ("m0", "m3", "m4")),
        ("s3://bucket/u", (7,), ("m1",)),
    ]


def test_a_message_may_ask_for_several_tables():
    both = {"tables": ["s3://b/x", "s3://b/y"]}
    assert [w.messages for w in collapse(parse_event(batch(both)))] == [("m0",), ("m0",)]
    assert [w.messages for w in collapse(parse_event(both))] == [(), ()]


def test_who_asks_for_a_table_whatever_was_committed_is_not_held_to_versions():
    resumed = json.loads(continuation("s3://bucket/t", 4, ["a" * 32]))
    (work,) = collapse(parse_event(batch(commit(9), resumed)))
    assert (work.versions, work.turn, work.skip) == ((), 4, {"a" * 32})


def test_a_continuation_stays_small():
    (message,) = parse_event(batch(continuation("s3://b/x", 1, (f"{n:032x}" for n in range(5000)))))
    assert len(message.asks[0].skip) == MAX_SKIPPED


@pytest.mark.parametrize(
    ("uri", "prefix", "inside"),
    [
        ("s3://b/x", "s3://b/x", True),
        ("s3://b/x", "s3://b/x/", True),
        ("s3://b/x/y", "s3://b/x", True),
        ("s3://b/xy", "s3://b/x", False),
        ("s3://b", "s3://b/x", False),
        ("s3://b/x", "s3://b", True),
        ("s3://bb/x", "s3://b", False),
        ("s3://b/x/../y", "s3://b/x", False),
        ("s3://b/x//y", "s3://b/x", False),
        ("file:///t/x", "file:///t", True),
        ("file:///t/../x", "file:///t", False),
        ("file:///t/%2e%2e/x", "file:///t", False),
        ("file:///t", "s3://t", False),
    ],
)
def test_what_lies_within(uri, prefix, inside):
    assert is_within(uri, ["s3://elsewhere", prefix]) is inside
    assert not is_within(uri, [])
