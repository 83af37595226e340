"""The template in compaction/aws/: that AWS would take it, and that it says what is meant."""

import copy
import importlib
import json
import re

import pytest
from support import lambda_queue
from support.iam import NOBODY, Asked, is_allowed, load

from eventlog.compaction.aws import bundle
from eventlog.compaction.aws.events import parse_event
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.format import keys

GIVEN = {
    "Bucket": "b",
    "Prefix": "t",
    "AWS::Partition": "aws",
    "AWS::AccountId": "000000000000",
    "Queue": "https://queue",
    "Policy": "{}",
    "MaxBytes": "536870912",
    "Publish": "",
}


@pytest.fixture(scope="module")
def template():
    return lambda_queue.template()


@pytest.fixture(scope="module")
def resources(template):
    return template["Resources"]


def resolved(part, **given):
    """A part of the template with `Ref` and `Fn::Sub` of the parameters filled in."""
    known = {**GIVEN, **given}
    if isinstance(part, list):
        return [resolved(item, **given) for item in part]
    if not isinstance(part, dict):
        return part
    if set(part) == {"Ref"}:
        return known.get(part["Ref"], part)
    if set(part) == {"Fn::Sub"} and isinstance(part["Fn::Sub"], str):
        return re.sub(r"\$\{([^}]+)\}", lambda m: known[m[1]], part["Fn::Sub"])
    return {name: resolved(value, **given) for name, value in part.items()}


def of_type(resources, kind):
    return {name: part["Properties"] for name, part in resources.items() if part["Type"] == kind}


def policy(resources, name, **given):
    (role,) = of_type(resources, "AWS::IAM::Role").values()
    (found,) = (p["PolicyDocument"] for p in role["Policies"] if p["PolicyName"] == name)
    return resolved(found, **given)


@pytest.mark.verify
def test_the_linter_has_nothing_to_say(tmp_path):
    # Loads sympy: a second in each process that only collects.
    from cfnlint.api import lint_file  # noqa: PLC0415

    assert [str(match) for match in lint_file(lambda_queue.TEMPLATE)] == []
    broken = tmp_path / "broken.yaml"
    broken.write_text(lambda_queue.TEMPLATE.read_text().replace("maxReceiveCount:", "maxTries:"))
    assert lint_file(broken)


def test_a_message_is_hidden_six_times_as_long_as_the_function_runs(template):
    longest = template["Parameters"]["Timeout"]["AllowedValues"]
    table = template["Mappings"]["VisibilityTimeout"]
    assert set(table) == set(longest)
    assert template["Parameters"]["Timeout"]["Default"] in longest
    for seconds in longest:
        assert int(seconds) <= 900
        assert table[seconds]["Seconds"] >= 6 * int(seconds)
    queue = template["Resources"]["Queue"]["Properties"]
    assert queue["VisibilityTimeout"]["Fn::FindInMap"][0] == "VisibilityTimeout"


def test_what_fails_again_and_again_is_put_aside_and_rings(template, resources):
    redrive = resources["Queue"]["Properties"]["RedrivePolicy"]
    assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetters", "Arn"]}
    assert template["Parameters"]["MaxReceiveCount"]["Default"] >= 5
    alarms = of_type(resources, "AWS::CloudWatch::Alarm").values()
    watched = {(a["MetricName"], str(a["Dimensions"][0]["Value"])) for a in alarms}
    assert watched == {
        ("ApproximateNumberOfMessagesVisible", "{'Fn::GetAtt': ['DeadLetters', 'QueueName']}"),
        ("ApproximateAgeOfOldestMessage", "{'Fn::GetAtt': ['Queue', 'QueueName']}"),
        ("Errors", "{'Ref': 'Compactor'}"),
    }


def test_the_function_is_the_handler_with_settings_that_it_understands(resources):
    (function,) = of_type(resources, "AWS::Serverless::Function").values()
    module, _, name = function["Handler"].rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))
    environment = resolved(function["Environment"]["Variables"])
    settings = Settings.of(environment)
    assert settings.allowed == ("s3://b/t",)
    assert settings.queue_url == "https://queue"
    assert settings.max_bytes == 512 * 2**20
    (source,) = function["Events"].values()
    assert source["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert "MaximumConcurrency" in source["Properties"]["ScalingConfig"]
    assert source["Properties"]["Queue"] == {"Fn::GetAtt": ["Queue", "Arn"]}


def test_it_runs_what_a_bundle_is_made_for(template):
    runtimes = template["Parameters"]["PythonVersion"]["AllowedValues"]
    assert {r.removeprefix("python") for r in runtimes} <= set(bundle.PYTHONS)
    machines = template["Parameters"]["Architecture"]["AllowedValues"]
    assert set(machines) == {"x86_64", "arm64"}


def test_the_schedule_asks_for_tables_in_words_that_are_understood(resources):
    text, names = resources["Schedule"]["Properties"]["Targets"][0]["Input"]["Fn::Sub"]
    _, some, none = names["Uris"]["Fn::If"]
    joined = some["Fn::Join"][0].join(["s3://b/x", "s3://b/y"])
    for uris, wanted in ((joined, ["s3://b/x", "s3://b/y"]), (resolved(none), ["s3://b/t"])):
        (message,) = parse_event(json.loads(text.replace("${Uris}", uris)))
        assert [ask.table for ask in message.asks] == wanted


# --- the role -------------------------------------------------------------------------------------

PARTS = ("_log", "_frames", "data", "_intents", "_probe")
ACTIONS = ("GetObject", "PutObject", "DeleteObject", "DeleteObjectVersion", "PutObjectAcl")
CONDITION = {"s3:if-none-match": "*"}


def asked(table):
    """Every kind of request on a table, its neighbours and its bucket."""
    for root in (table, f"{table}x", "elsewhere"):
        for part in PARTS:
            for action in ACTIONS:
                place = f"arn:aws:s3:::b/{root}/{part}/x"
                yield Asked(f"s3:{action}", place)
                yield Asked(f"s3:{action}", place, CONDITION)
        yield Asked("s3:ListBucket", "arn:aws:s3:::b", {"s3:prefix": f"{root}/_log/"})
    yield Asked("s3:ListBucket", "arn:aws:s3:::b")
    yield Asked("s3:PutBucketPolicy", "arn:aws:s3:::b")


@pytest.mark.parametrize("below", ["", "/one", "/one/two"])
def test_the_role_may_do_what_the_compactors_policy_says_and_nothing_else(below, resources):
    table = f"t{below}"
    role, file = policy(resources, "Table"), load("compactor", "b", table)
    verdicts = [(a, is_allowed(a, role), is_allowed(a, file)) for a in asked(table)]
    inside = [v for v in verdicts if f"b/{table}/" in v[0].resource or not below]
    assert [v for v in inside if v[1] != v[2]] == []
    assert {allowed for _, allowed, _ in inside} == {True, False}
    assert not [a for a, allowed, _ in verdicts if allowed and "Delete" in a.action]
    assert not [a for a, allowed, _ in verdicts if allowed and "elsewhere" in a.resource]


@pytest.mark.parametrize("below", ["", "/one"])
def test_the_role_may_publish_what_the_publishers_policy_says(below, resources):
    table = f"t{below}"
    added = resolved(resources["Publications"]["Properties"]["PolicyDocument"])
    table_role = policy(resources, "Table")
    both = {"Statement": [*added["Statement"], *table_role["Statement"]]}
    file = load("publisher", "b", table)
    for part in ("_delta_log/_last_checkpoint", "metadata/version-hint.text", "_delta_log/x",
                 "_delta_vectors/x", "metadata/x", "_log/x", "x"):  # fmt: skip
        for action in ACTIONS:
            for context in ({}, CONDITION):
                request = Asked(f"s3:{action}", f"arn:aws:s3:::b/{table}/{part}", context)
                expected = is_allowed(request, file) or is_allowed(request, table_role)
                assert is_allowed(request, both) == expected, request
    assert resources["Publications"]["Condition"] == "Publishes"


def test_a_role_that_says_more_is_noticed(resources):
    role = copy.deepcopy(policy(resources, "Table"))
    role["Statement"][2].pop("Condition")
    file = load("compactor", "b", "t")
    assert [a for a in asked("t") if is_allowed(a, role) != is_allowed(a, file)]


def test_the_role_has_its_own_queue_and_its_own_lines_only(resources):
    (queue,) = policy(resources, "Queue")["Statement"]
    assert queue["Resource"] == [{"Fn::GetAtt": ["Queue", "Arn"]}]
    assert not [action for action in queue["Action"] if "*" in action or "Purge" in action]
    (lines,) = policy(resources, "Lines")["Statement"]
    assert lines["Resource"] == [{"Fn::GetAtt": ["Lines", "Arn"]}]
    assert is_allowed(Asked("s3:GetObject", "arn:aws:s3:::b/t/x"), NOBODY) is False


def test_who_may_send_to_the_queue_is_one_of_this_account(resources):
    (found,) = of_type(resources, "AWS::SQS::QueuePolicy").values()
    plain = found["PolicyDocument"]["Statement"]
    schedule, (_, bridge, s3) = plain[0], plain[1]["Fn::If"]
    senders = {"Schedule": schedule, "EventBridge": bridge, "S3": s3}
    for statement in senders.values():
        assert statement["Action"] == "sqs:SendMessage"
        assert statement["Condition"]["StringEquals"] == {
            "aws:SourceAccount": {"Ref": "AWS::AccountId"}
        }
        assert "aws:SourceArn" in statement["Condition"]["ArnEquals"]
        assert set(statement["Principal"]) == {"Service"}
    assert resolved(s3["Condition"]["ArnEquals"]) == {"aws:SourceArn": "arn:aws:s3:::b"}


# --- what announces a commit ----------------------------------------------------------------------


def like(pattern, text):
    """EventBridge's wildcard: `*` stands for any characters, none included."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


@pytest.mark.parametrize(
    ("key", "announced"),
    [
        (f"t/{keys.commit_key(7)}", True),
        (f"t/one/{keys.commit_key(7)}", True),
        (f"tt/{keys.commit_key(7)}", False),
        (f"t/x{keys.commit_key(7)}", False),
        (f"elsewhere/t/{keys.commit_key(7)}", False),
        (f"t/data/000000000001/2013-01-07/{'a' * 32}.parquet", False),
        (f"t/_frames/{'a' * 64}.parquet", False),
        (f"t/_delta_log/{7:020d}.json", False),
        ("t/metadata/v7.metadata.json", False),
    ],
)
def test_the_rule_lets_commits_through(key, announced, resources):
    pattern = resources["Commits"]["Properties"]["EventPattern"]
    wildcards = [resolved(p["wildcard"]) for p in pattern["detail"]["object"]["key"]]
    assert any(like(wildcard, key) for wildcard in wildcards) is announced
    assert pattern["detail-type"] == ["Object Created"]


# --- the template without its function ------------------------------------------------------------


def test_what_is_left_without_the_function_refers_to_nothing_that_is_gone(template):
    plain = lambda_queue.without_function(template)
    assert "Transform" not in plain
    gone = set(template["Resources"]) - set(plain["Resources"])
    assert gone == {"Compactor", "InvocationsFail"}
    assert set(template["Outputs"]) - set(plain["Outputs"]) == {"Function"}
    known = {*plain["Resources"], *plain["Parameters"]}
    used = lambda_queue.references(plain["Resources"]) | lambda_queue.references(plain["Outputs"])
    assert {name for name in used if not name.startswith("AWS::")} <= known | {"Uris"}
