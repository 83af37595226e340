"""The policies of localstack/policies against a server that enforces them: enough, and no more."""

import copy
import itertools
import json
from datetime import timedelta

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from support import builders, iam
from support.deleting import delete_rows
from support.iam import ADMIN, NOBODY, ROLES, Asked, arn_of, is_allowed, like, load

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum as reclaim
from eventlog.compaction.execute import perform
from eventlog.compaction.planner.assessing import Result, record
from eventlog.compaction.planner.planning import plan
from eventlog.compaction.policy import Policy
from eventlog.format import keys
from eventlog.publishing import publish, unpublish
from eventlog.readers import scan
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore
from eventlog.store.s3.adapter import S3Store
from eventlog.writers import append, overwrite

PREFIX = "tables/one"
DAY = "1970-01-02"


@pytest.fixture(scope="module")
def gate(s3):
    with iam.gate() as made:
        yield made


@pytest.fixture
def place(gate, bucket):
    """A fresh bucket under its policy, with every role by its own name."""
    gate.identities = {role: load(role, bucket, PREFIX) for role in ROLES} | {"admin": ADMIN}
    gate.buckets = {bucket: load("bucket", bucket, PREFIX)}
    gate.asked.clear()
    return Place(gate, bucket)


class Place:
    def __init__(self, gate, bucket):
        self.gate, self.bucket = gate, bucket
        self.uri = f"s3://{bucket}/{PREFIX}"

    def store(self, who):
        return S3Store(self.uri, self.gate.options(who))

    def open(self, who):
        return Table.open(self.uri, self.gate.options(who))

    def create(self, who="writer", **properties):
        store = self.store(who)
        return Table.create(self.uri, builders.SCHEMA, time_column="at", store=store,
                            properties=properties)  # fmt: skip

    def raw(self, who):
        """A plain client, for requests that eventlog never sends."""
        given = self.gate.options(who)
        return boto3.client(
            "s3",
            endpoint_url=given["endpoint_url"],
            aws_access_key_id=who,
            aws_secret_access_key="dummy",
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def refused(self):
        return [(who, asked.action) for who, asked, granted in self.gate.asked if not granted]


# --- what each role does --------------------------------------------------------------------------


def read(place):
    table = place.open("reader")
    assert scan(table).to_table().num_rows == 6
    table.refresh()
    assert [entry.version for entry in table.history(limit=1)] == [table.session.head().version]
    return table


def write(place, who="writer"):
    """Everything a writer does: probe, create, append, overwrite, key frame, publish."""
    table = place.create(who, combine_after="1", keyframe_commits="2")
    append(table, builders.events(6, days=3), app_id="job", app_seq=1)
    overwrite(table, builders.events(1, day=1, first=9), start=DAY, end="1970-01-03")
    table.write_keyframe()
    contended(place, who)
    return table


def contended(place, who):
    """An append that loses a race, and so is published and combined."""
    spy = builders.Spy(place.store(who))
    table = Table(spy, clock=ManualClock(builders.START_MS * 2, 5))
    rival = place.open(who)
    table.session.head()
    races = itertools.count()

    def lose_twice(key):
        if key.startswith(keys.LOG_PREFIX) and "keyframe" not in key and next(races) < 2:
            append(rival, builders.events(1, day=7))

    spy.before_put = lose_twice
    append(table, builders.events(1, day=8))
    assert [key for key, _ in spy.puts if key.startswith(keys.INTENTS_PREFIX)]


def vacuum(place):
    """A vacuum that must leave something for the next one, and the next one."""
    table = write(place, "vacuum")
    now = {"retention": timedelta(0), "staging": timedelta(0), "dry_run": False}
    table.pin("held", 1)
    overwrite(table, builders.events(1, day=9), start="1970-01-01")
    reclaim(table, **now)
    table.unpin("held")
    append(table, builders.events(1, day=12))
    assert reclaim(table, **now).gone["dropped"].objects
    live = {keys.key_of(s) for s in builders.live(table.refresh())}
    assert {o.key for o in place.store("vacuum").list(keys.SEGMENTS_PREFIX)} == live


def compact(place):
    """What the Lambda function does: look, rewrite, note how it ended, write a key frame.

    Its replacement loses a race, and so is published.
    """
    filled = place.create("admin")
    for number in range(3):
        append(filled, builders.events(6, days=3, first=100 * number))
    spy = builders.Spy(place.store("compactor"))
    table = Table(spy)
    races = itertools.count()

    def lose_once(key):
        if key.startswith(keys.LOG_PREFIX) and "keyframe" not in key and next(races) < 1:
            append(filled, builders.events(1, day=7))

    spy.before_put = lose_once
    policy = Policy()
    ended = []
    for task in plan(table, policy).tasks:
        outcome = perform(table, task, policy)
        if not outcome.ok:  # it raises nothing itself
            raise errors.Unavailable(outcome.error)
        ended.append(Result(task, outcome.status, outcome.made))
    record(table, policy, ended)
    table.write_keyframe()
    assert table.refresh().totals.segments == 4
    assert [key for key, _ in spy.puts if key.startswith(keys.INTENTS_PREFIX)]
    return table


def copy_from(place):
    """What a replicator does at the table that it follows: read, attach, acknowledge."""
    prepared(place)
    target = MemoryStore()
    for _ in range(2):
        follow(place.open("replica-source"), Table(target), name="far")
    assert place.open("replica-source").session.head().meta.replicas["far"].acked == 1


def copy_to(place):
    """What a replicator does at the copy: probe, start at a key frame, copy, go on."""
    source = builders.create()
    for day in range(3):
        append(source, builders.events(6, days=3, day=day))
        source.write_keyframe()
        store = place.store("replica-target")
        follow(source, Table(store), start="keyframe", clock=ManualClock(builders.START_MS, 7))
    assert scan(Table(store)).to_table().num_rows == 18


def publications(place):
    """A publisher in both formats, with the deletes of rows and a checkpoint of its start."""
    table = place.create("admin")
    append(table, builders.events(4000))
    (segment,) = builders.live(table.session.head())
    delete_rows(table, {segment.id: range(0, 4000, 2)})
    for name in ("delta", "iceberg"):
        done = publish(place.open("publisher"), name, first=2)
        assert (done.first, done.last) == (2, 2)


def vacuum_published(place):
    """A vacuum of a table that is published, and the end of both publications."""
    table = place.create("admin")
    append(table, builders.events(4000))
    (segment,) = builders.live(table.session.head())
    delete_rows(table, {segment.id: range(0, 4000, 2)})
    append(table, builders.events(6, day=1))
    overwrite(table, builders.events(1, day=9), start="1970-01-02")
    for name in ("delta", "iceberg"):
        publish(table, name)
    # As another publisher may leave it, which named a version while the vacuum deleted it.
    hint = {"Bucket": place.bucket, "Key": f"{PREFIX}/metadata/version-hint.text"}
    place.raw("admin").put_object(**hint, Body=b"v0")
    mine = place.open("vacuum-published")
    now = {"retention": timedelta(0), "staging": timedelta(0), "dry_run": False}
    assert reclaim(mine, **now).gone["published"].objects == 13
    assert place.raw("admin").get_object(**hint)["Body"].read() == b"v4"
    for name in ("delta", "iceberg"):
        assert unpublish(mine, name, dry_run=False)
    left = {o.key.split("/")[0] for o in place.store("admin").list("")}
    assert left == {"_log", "_probe", "data"}


def prepared(place):
    append(place.create("admin"), builders.events(6, days=3))


def run(role, place):
    if role == "reader":
        prepared(place)
        read(place)
    else:
        runs = {"writer": write, "compactor": compact, "vacuum": vacuum}
        runs |= {"vacuum-published": vacuum_published}
        runs |= {"replica-source": copy_from, "replica-target": copy_to, "publisher": publications}
        runs[role](place)


@pytest.mark.sample(2, verify=5)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_allowed_all_it_does(role, place):
    run(role, place)
    assert place.refused() == []
    assert {who for who, _, _ in place.gate.asked} <= {role, "admin"}


def permissions():
    """(role, statement, action) of every permission that the files give."""
    for role in ROLES:
        for number, statement in enumerate(load(role, "b", "p")["Statement"]):
            for action in statement["Action"]:
                yield pytest.param(role, number, action, id=f"{role} without {action}")


@pytest.mark.sample(6, verify=12)
@pytest.mark.parametrize(("role", "number", "action"), list(permissions()))
def test_each_permission_is_needed(role, number, action, place):
    statement = place.gate.identities[role]["Statement"][number]
    statement["Action"] = [other for other in statement["Action"] if other != action]
    with pytest.raises(errors.EventLogError, match=r"(?i)denied"):
        run(role, place)
    assert (role, action) in place.refused()


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("part", ["_log", "_frames", "data"])
def test_each_place_that_the_compactor_creates_objects_in_is_needed(part, place, monkeypatch):
    monkeypatch.setattr("eventlog.state.keyframe.INLINE_SEGMENTS", 2)
    compact(place)
    assert place.refused() == []
    (found,) = (s for s in place.gate.identities["compactor"]["Statement"]
                if s["Action"] == ["s3:PutObject"])  # fmt: skip
    found["Resource"] = [arn for arn in found["Resource"] if not arn.endswith(f"/{part}/*")]
    place.uri += "-again"
    text = json.dumps(place.gate.identities["compactor"]).replace(PREFIX, f"{PREFIX}-again")
    place.gate.identities["compactor"] = json.loads(text)
    with pytest.raises(errors.EventLogError, match=r"(?i)denied"):
        compact(place)


PUBLISHED = ("_delta_log", "_delta_vectors", "metadata")


@pytest.mark.parametrize("who", ["writer", "vacuum", "compactor", "reader"])
def test_nobody_but_the_publisher_creates_publications(who, place):
    for part in PUBLISHED:
        with pytest.raises(errors.InvalidInput, match="denied permission to create"):
            place.store(who).put_if_absent(f"{part}/x", b"")
        assert place.store("publisher").put_if_absent(f"{part}/x", b"") is True


def test_a_bucket_keeps_a_publication_from_who_may_do_everything(place):
    place.gate.buckets = {place.bucket: load("bucket-published", place.bucket, PREFIX)}
    append(place.create(inline_bytes="0"), builders.events(6, days=3))
    (segment, *_) = [o.key for o in place.store("admin").list(keys.SEGMENTS_PREFIX)]
    assert publish(place.open("publisher"), "delta").last == 1
    for part in PUBLISHED:
        with pytest.raises(errors.InvalidInput, match="denied permission to create"):
            place.store("admin").put_if_absent(f"{part}/x", b"")
    for key in (segment, "_delta_log/00000000000000000001.json"):
        for who in ("admin", "publisher"):
            with pytest.raises(errors.InvalidInput, match="denied permission to delete"):
                place.store(who).delete([key])
    assert unpublish(place.open("vacuum-published"), "delta", dry_run=False)


@pytest.mark.sample(0, verify=3)
@pytest.mark.parametrize(
    ("action", "part"),
    [*(("s3:DeleteObject", f"{part}/*") for part in ("data", *PUBLISHED)),
     *(("s3:PutObject", f"{part}/*") for part in ("_delta_log", "_delta_vectors")),
     ("s3:PutObject", "_delta_log/_last_checkpoint"),
     ("s3:PutObject", "metadata/version-hint.text")],
)  # fmt: skip
def test_each_place_of_the_vacuum_of_publications_is_needed(action, part, place):
    for statement in place.gate.identities["vacuum-published"]["Statement"]:
        if statement["Action"] == [action]:
            kept = [arn for arn in statement["Resource"] if not arn.endswith(f"/{part}")]
            statement["Resource"] = kept
    with pytest.raises(errors.EventLogError, match=r"(?i)denied"):
        vacuum_published(place)


def test_a_compactor_that_may_not_publish_is_denied_that_and_compacts_nevertheless(place):
    (found,) = (s for s in place.gate.identities["compactor"]["Statement"]
                if s["Action"] == ["s3:PutObject"])  # fmt: skip
    less = [arn for arn in found["Resource"] if not arn.endswith("/_intents/*")]
    assert len(less) == len(found["Resource"]) - 1
    found["Resource"] = less
    compact(place)
    assert place.refused() == [("compactor", "s3:PutObject")]


def test_a_reader_neither_writes_nor_deletes_and_is_told_so(place):
    prepared(place)
    table = read(place)
    with pytest.raises(
        errors.InvalidInput, match=r"denied permission to create an object.*their permissions"
    ):
        append(table, builders.events(1))
    with pytest.raises(errors.InvalidInput, match="denied permission to delete"):
        place.store("reader").delete([keys.commit_key(0)])
    with pytest.raises(errors.InvalidInput, match="denied"):
        table.set_properties({"user.a": "b"})
    assert place.open("admin").session.head().version == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("who", ["writer", "compactor", "vacuum", "admin"])
def test_nobody_deletes_or_replaces_a_part_of_the_log(who, place, monkeypatch):
    monkeypatch.setattr("eventlog.state.keyframe.INLINE_SEGMENTS", 2)
    table = place.create("writer", keyframe_commits="1")
    append(table, builders.events(6, days=3))
    table.write_keyframe()
    store, raw = place.store(who), place.raw(who)
    protected = [o.key for p in (keys.LOG_PREFIX, keys.FRAMES_PREFIX) for o in store.list(p)]
    assert {key.split("/")[0] for key in protected} == {"_log", "_frames"}
    for key in protected:
        with pytest.raises(errors.InvalidInput, match="denied permission to delete"):
            store.delete([key])
        with pytest.raises(ClientError, match="AccessDenied"):
            raw.delete_object(Bucket=place.bucket, Key=f"{PREFIX}/{key}")
        with pytest.raises(ClientError, match="AccessDenied"):
            raw.put_object(Bucket=place.bucket, Key=f"{PREFIX}/{key}", Body=b"x")
        assert store.put_if_absent(key, b"x") is False
    assert scan(place.open("reader")).to_table().num_rows == 6


def test_who_may_delete_segments(place):
    append(place.create(inline_bytes="0"), builders.events(6, days=3))
    segments = [o.key for o in place.store("reader").list(keys.SEGMENTS_PREFIX)]
    for who in ("reader", "writer", "compactor"):
        with pytest.raises(errors.InvalidInput, match="denied permission to delete"):
            place.store(who).delete(segments)
    # In one batch: the segment goes, the commit stays.
    with pytest.raises(errors.InvalidInput, match="denied permission to delete"):
        place.store("vacuum").delete([segments[0], keys.commit_key(1)])
    left = [o.key for o in place.store("reader").list("")]
    assert segments[0] not in left
    assert keys.commit_key(1) in left
    place.store("vacuum").delete(segments)
    assert not list(place.store("reader").list(keys.SEGMENTS_PREFIX))


@pytest.mark.parametrize("who", ROLES)
def test_a_role_is_kept_to_its_table(who, place):
    prepared(place)
    other = S3Store(f"s3://{place.bucket}/tables/one-more", place.gate.options(who))
    for call in (
        lambda: other.get(keys.commit_key(0)),
        lambda: list(other.list(keys.LOG_PREFIX)),
        lambda: other.put_if_absent("data/x", b""),
        lambda: other.delete(["data/x"]),
        lambda: list(S3Store(f"s3://{place.bucket}", place.gate.options(who)).list("")),
    ):
        with pytest.raises(errors.InvalidInput, match=r"(?i)denied"):
            call()


def test_a_writer_creates_only_conditionally(place):
    for who in ("writer", "compactor", "vacuum"):
        raw = place.raw(who)
        for part in ("_log", "_frames", "_intents", "data"):
            with pytest.raises(ClientError, match="AccessDenied"):
                raw.put_object(Bucket=place.bucket, Key=f"{PREFIX}/{part}/x", Body=b"")


# --- the bucket's policy, and the evaluator -------------------------------------------------------

T = f"arn:aws:s3:::b/{PREFIX}"
PUBLISHER, VACUUM, OTHER = (
    {"aws:PrincipalArn": arn_of(who)} for who in ("publisher", "vacuum-published", "admin")
)
DELETES = ("s3:DeleteObject", "s3:DeleteObjectVersion")
FORBIDDEN = [
    *(Asked(action, f"{T}/{part}/x") for action in DELETES for part in ("_log", "_frames")),
    *(Asked("s3:PutObject", f"{T}/{part}/x") for part in ("_log", "_frames")),
]
FINE = [
    Asked("s3:PutObject", f"{T}/_log/x", {"s3:if-none-match": "*"}),
    Asked("s3:GetObject", f"{T}/_log/x"),
    Asked("s3:DeleteObject", f"{T}/data/x", VACUUM),
    Asked("s3:PutObject", f"{T}/data/x"),
    Asked("s3:DeleteObject", "arn:aws:s3:::b/elsewhere/_log/x"),
]
OF_BUCKETS = {
    "bucket": (FORBIDDEN, FINE),
    "bucket-published": (
        [
            *FORBIDDEN,
            *(Asked("s3:PutObject", f"{T}/{part}/x", OTHER) for part in PUBLISHED),
            *(Asked(action, f"{T}/{part}/x", who) for action in DELETES
              for part in ("data", *PUBLISHED) for who in (OTHER, PUBLISHER)),
        ],
        [
            *FINE,
            *(Asked("s3:PutObject", f"{T}/{part}/x", who) for part in PUBLISHED
              for who in (PUBLISHER, VACUUM)),
            *(Asked("s3:DeleteObject", f"{T}/{part}/x", VACUUM) for part in PUBLISHED),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_BUCKETS)
def test_the_bucket_binds_even_who_may_do_everything(name):
    policy = load(name, "b", PREFIX)
    forbidden, fine = OF_BUCKETS[name]
    assert not [asked for asked in forbidden if is_allowed(asked, ADMIN, policy)]
    assert not [asked for asked in fine if not is_allowed(asked, ADMIN, policy)]
    # And it allows nothing by itself.
    assert not [asked for asked in (*forbidden, *fine) if is_allowed(asked, NOBODY, policy)]


@pytest.mark.parametrize("part", ["Action", "Resource"])
@pytest.mark.parametrize("name", OF_BUCKETS)
def test_each_part_of_the_buckets_policy_is_needed(name, part):
    whole = load(name, "b", PREFIX)
    forbidden, fine = OF_BUCKETS[name]
    for number, statement in enumerate(whole["Statement"]):
        for value in statement[part]:
            less = copy.deepcopy(whole)
            less["Statement"][number][part].remove(value)
            assert any(is_allowed(asked, ADMIN, less) for asked in forbidden), value
        less = copy.deepcopy(whole)
        if less["Statement"][number].pop("Condition", None):
            assert any(not is_allowed(asked, ADMIN, less) for asked in fine)


def test_the_policy_of_a_published_tables_bucket_has_that_of_every_bucket():
    statements = load("bucket", "b", PREFIX)["Statement"]
    assert load("bucket-published", "b", PREFIX)["Statement"][: len(statements)] == statements


def log_bucket(bucket):
    """The policy of a bucket whose log the role `vacuum-log` cuts."""
    text = json.dumps(load("bucket-log", bucket, PREFIX))
    return json.loads(text.replace(arn_of("vacuum-published"), arn_of("vacuum-log")))


@pytest.mark.hazard("W20")
def test_who_may_cut_a_log(place):
    place.gate.buckets = {place.bucket: log_bucket(place.bucket)}
    place.gate.identities["vacuum-log"] = load("vacuum-log", place.bucket, PREFIX)
    table = place.create("writer", keyframe_commits="2")
    for number in range(6):
        append(table, builders.events(2, first=10 * number))
    now = {"retention": timedelta(0), "staging": timedelta(0), "log_retention": timedelta(0)}
    with pytest.raises(errors.InvalidInput, match="denied"):
        reclaim(place.open("vacuum"), dry_run=False, log=True, **now)
    report = reclaim(place.open("vacuum-log"), dry_run=False, log=True, **now)
    assert report.log.sums["commits"][0] == report.log.whole > 4
    assert {who for who, _ in place.refused()} == {"vacuum"}
    kept = keys.commit_key(report.log.cut + 1)
    body = place.store("admin").get(kept)
    for who in ("vacuum-log", "admin"):
        raw = place.raw(who)
        with pytest.raises(ClientError, match="AccessDenied"):
            raw.put_object(Bucket=place.bucket, Key=f"{PREFIX}/{kept}", Body=b"x")
        with pytest.raises(ClientError, match="AccessDenied"):
            raw.delete_object(Bucket=place.bucket, Key=f"{PREFIX}/{kept}")
    for who in ("writer", "vacuum", "compactor", "admin"):
        with pytest.raises(errors.InvalidInput, match="denied permission to replace"):
            place.store(who).replace(kept, body, b"x")
        frame = keys.keyframe_key(report.log.cut)
        with pytest.raises(errors.InvalidInput, match="denied permission to delete"):
            place.store(who).delete([frame])


def allow(**more):
    return {"Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"], **more}]}


NULL = {"Null": {"s3:if-none-match": "true"}}
SOME = Asked("s3:PutObject", "arn:aws:s3:::b/k", {"s3:if-none-match": "*"})
BARE = Asked("s3:PutObject", "arn:aws:s3:::b/k")
KNOWN = Asked("s3:PutObject", "arn:aws:s3:::b/k", {"aws:PrincipalArn": arn_of("a")})
LISTED = Asked("s3:ListBucket", "arn:aws:s3:::b", {"s3:prefix": "a/b"})


@pytest.mark.parametrize(
    ("asked", "policy", "answer"),
    [
        (BARE, allow(), True),
        (BARE, NOBODY, False),
        (BARE, allow(Action=["S3:putobject"]), True),
        (BARE, allow(Action=["s3:Put"]), False),
        (BARE, allow(Action=["s3:PutObjectAcl", "s3:Get*"]), False),
        (BARE, allow(Resource=["arn:aws:s3:::b/*"]), True),
        (BARE, allow(Resource=["arn:aws:s3:::b"]), False),
        (BARE, allow(Resource=["arn:aws:s3:::B/k"]), False),
        (BARE, allow(Condition=NULL), True),
        (SOME, allow(Condition=NULL), False),
        (SOME, allow(Condition={"Null": {"s3:if-none-match": "false"}}), True),
        (BARE, allow(Condition={"Null": {"s3:if-none-match": "false"}}), False),
        (LISTED, allow(Condition={"StringLike": {"s3:prefix": ["a/*"]}}), True),
        (LISTED, allow(Condition={"StringLike": {"s3:prefix": ["b/*", "a/?"]}}), True),
        (LISTED, allow(Condition={"StringLike": {"s3:prefix": ["a"]}}), False),
        (BARE, allow(Condition={"StringLike": {"s3:prefix": ["*"]}}), False),
        (BARE, allow(Condition={"ArnNotLike": {"aws:PrincipalArn": ["x"]}}), True),
        (KNOWN, allow(Condition={"ArnNotLike": {"aws:PrincipalArn": ["x", "y"]}}), True),
        (KNOWN, allow(Condition={"ArnNotLike": {"aws:PrincipalArn": ["x", arn_of("a")]}}), False),
        (SOME, {"Statement": allow()["Statement"] + allow(Effect="Deny")["Statement"]}, False),
    ],
)
def test_the_evaluator(asked, policy, answer):
    assert is_allowed(asked, policy) is answer
    denying = {"Statement": [{**s, "Effect": "Deny"} for s in policy["Statement"]]}
    if len(policy["Statement"]) == 1:
        assert is_allowed(asked, ADMIN, denying) is not answer


@pytest.mark.parametrize(
    "more",
    [{"NotAction": ["s3:*"]}, {"Principal": {"AWS": "x"}}, {"Effect": "Perhaps"},
     {"Condition": {"Bool": {"aws:SecureTransport": "true"}}}],
)  # fmt: skip
def test_the_evaluator_refuses_what_it_does_not_judge(more):
    with pytest.raises(ValueError, match=r"supported here|Perhaps"):
        is_allowed(BARE, allow(**more))


def test_a_pattern_is_literal_but_for_its_two_wildcards():
    assert like("a.c*", "a.c/d\n")
    assert not like("a.c*", "abc")
    assert not like("a", "ab")
    assert like("?[a]", "x[a]")


@pytest.mark.parametrize("name", [*ROLES, *OF_BUCKETS])
def test_another_evaluator_agrees_but_for_conditions(name):
    """moto judges Action and Resource on its own, though not the conditions used here."""
    from moto.iam.access_control import IAMPolicy, PermissionResult  # noqa: PLC0415

    policy = load(name, "b", PREFIX)
    for statement in policy["Statement"]:
        statement.pop("Condition", None)
    actions = ["ListBucket", "GetObject", "PutObject", "DeleteObject", "DeleteObjectVersion"]
    places = ["", f"/{PREFIX}/_log/x", f"/{PREFIX}/_frames/x", f"/{PREFIX}/data/x", "/other/data/x"]
    granted = 0
    for action, key in itertools.product(actions, places):
        asked = Asked(f"s3:{action}", f"arn:aws:s3:::b{key}")
        theirs = IAMPolicy(json.dumps(policy)).is_action_permitted(asked.action, asked.resource)
        assert is_allowed(asked, policy) is (theirs == PermissionResult.PERMITTED)
        denied = not is_allowed(asked, ADMIN, policy)
        assert denied is (theirs == PermissionResult.DENIED)
        granted += theirs != PermissionResult.NEUTRAL
    assert granted >= 4


@pytest.mark.long
def test_a_branch_is_made_by_a_writer_and_deleted_by_whom_no_policy_here_allows_it(place):
    append(place.create(), builders.events(6, days=3))
    branch = place.open("writer").branch("audit")
    append(branch, builders.events(1, first=9))

    def rows():
        table = Table.open(place.uri, place.gate.options("reader"), branch="audit")
        return scan(table).to_table().num_rows

    assert rows() == 7
    for who in ("reader", "writer", "vacuum"):
        with pytest.raises(errors.InvalidInput):
            place.open(who).delete_branch("audit")
    assert rows() == 7
    place.open("admin").delete_branch("audit")
    assert place.open("reader").branches() == []
