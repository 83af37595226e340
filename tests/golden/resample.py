"""Write the samples of FORMAT.md and MERGING.md again, from golden tables that were remade.

    PYTHONPATH=tests .venv/bin/python tests/golden/resample.py main

takes each sample from the same place in its object as in the revision `main`, where the document
shows the object as it was. Run `remake.py` and `make_example.py` first.
"""

import hashlib
import io
import json
import re
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
from golden.reader import canonical

import eventlog
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns, frame_bytes, spill_columns, stem_bytes

TABLES = Path(__file__).parent / "tables"
DOCUMENTS = [Path(eventlog.__file__).parent / name for name in ("FORMAT.md", "MERGING.md")]
_SAMPLE = re.compile(r"^(Sample, from `([^`\n]+)`:\n\n```json\n)(.*)(\n```)$", re.MULTILINE)
_HASHED = re.compile(r"^\| `([{[].+)` \| `([0-9a-f]{64})` \|$", re.MULTILINE)
_SPACE = re.compile(r"[\s,:]*")
Path_ = tuple[str | int, ...]


def values(text: str, at: int = 0, path: Path_ = ()) -> Iterator[tuple[Path_, int, int, int]]:
    """Yield the path of each value of a JSON text, where its name begins, itself, and its end."""
    decoder = json.JSONDecoder()

    def walk(at: int, named: int, path: Path_) -> Iterator[tuple[Path_, int, int, int]]:
        _, end = decoder.raw_decode(text, at)
        yield path, named, at, end
        if text[at] not in "{[":
            return
        place, number = at + 1, 0
        while text[place] not in "}]":
            start, name = place, number
            if text[at] == "{":
                name, place = decoder.raw_decode(text, place)
                place += 1
            _, after = decoder.raw_decode(text, place)
            yield from walk(place, start, (*path, name))
            place = after + (text[after] == ",")
            number += 1

    yield from walk(at, at, path)


def moved(sample: str, old: str, new: str) -> str:
    """Return what stands in `new` where `sample` stands in `old`."""
    at = old.index(sample)
    path = next(p for p, named, start, _ in values(old) if at in (named, start))
    named, start, end = next(rest for p, *rest in values(new) if p == path)
    return new[named if sample.startswith('"') and named < start else start : end]


def before(revision: str, place: str) -> str:
    """Return the text of an object of the golden tables at a revision."""
    name = f"{revision}:tests/golden/tables/{place}"
    shown = subprocess.run(["git", "show", name], capture_output=True, check=True, cwd=TABLES)
    return shown.stdout.decode()


def samples(text: str, revision: str) -> str:
    """Return a document with its samples as they are now."""

    def again(found: re.Match[str]) -> str:
        head, place, sample, end = found.groups()
        new = (TABLES / place).read_text(encoding="utf-8")
        if sample not in new:
            sample = moved(sample, before(revision, place), new)
        return f"{head}{sample}{end}"

    return _SAMPLE.sub(again, text)


def of_the_example(text: str) -> str:
    """Return the document with the digests and the parts of the example's state (section 1.6)."""
    found = re.search(rf"^`{keys.commit_key(2)}`\n\n```json\n(.*)\n```$", text, re.MULTILINE)
    root = re.search(rf"^`{keys.keyframe_key(2)}`\n\n```json\n(.*)\n```$", text, re.MULTILINE)
    assert found
    assert root
    body, state = found[1], json.loads(root[1])
    made = json.loads(body)
    header = body[len('{"header":') : body.index(',"state":')]
    for name, whole in (("header", header), ("commit", body)):
        hashed = whole[: whole.rindex(',"digest":"')] + "}"
        row = rf"^\| {name} \| `.*` … `.*$"
        shown = f"| {name} | `{hashed[:22]}` … `{hashed[-22:]}` | {len(hashed.encode())} | "
        line = f"{shown}`{hashlib.sha256(hashed.encode()).hexdigest()}` |"
        text = re.sub(row, lambda _, line=line: line, text, count=1, flags=re.MULTILINE)
    entries = {one["chunk"]: one for one in made["delta"]["adds"]}

    def part(old: re.Match[str]) -> str:
        value = json.loads(old[1])
        if isinstance(value, list):
            field, name, _ = value
            now = state["state"][field]
            value = [field, name, now if name is None else now[name]]
        else:
            value = entries[value["chunk"]]
        return _hashed(canonical(value))

    start, end = (text.index(title) for title in ("### 1.6", "## 2 Objects"))
    section = _HASHED.sub(part, text[start:end])
    total = made["header"]["state_hash"]
    section = re.sub(r"(\| sum mod 2\^256 \| `)\w{64}", rf"\g<1>{total}", section)
    commit = hashlib.sha256(body.encode()).hexdigest()
    section = re.sub(r"(Its commit hash is `)\w{64}", rf"\g<1>{commit}", section)
    entry = _HASHED.sub(part, text[end : text.index("### 2.7 ")])
    return text[:start] + section + entry + text[text.index("### 2.7 ") :]


def of_the_leaf(text: str) -> str:
    """Return the document with the rows of the leaf of section 2.7.1."""
    root = json.loads((TABLES / "whole" / keys.keyframe_key(7)).read_bytes())
    leaf = root["leaves"][0]
    body = (TABLES / "whole" / keys.frame_key(leaf["sha256"])).read_bytes()
    rows = pq.read_table(io.BytesIO(body))
    entries = entry_columns.to_segments(frame_bytes.from_parquet(body, rows.num_rows))
    start, end = (text.index(title) for title in ("#### 2.7.1", "#### 2.7.2"))
    section = text[start:end]
    for name, value in rows.slice(0, 1).to_pylist()[0].items():
        said = value.hex() if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False)
        section = re.sub(rf"(?m)^\| `{name}` \| `.*` \|$", f"| `{name}` | `{said}` |", section)
    first = msgspec.json.encode(entries[0]).decode()
    section = _HASHED.sub(lambda _: _hashed(first), section, count=1)
    hashes = rows.column("hash").to_pylist()
    lines = [
        f"| `{one.chunk}` | `{one.id}` | `{digest.hex()}` |"
        for one, digest in zip(entries, hashes, strict=True)
    ]
    section = re.sub(r"(?:\| `[\w-]+` \| `\w{32}` \| `\w{64}` \|\n)+", _lines(lines), section)
    section = re.sub(r"(\| sum mod 2\^256 \| `)\w{64}", rf"\g<1>{leaf['hash_sum']}", section)
    return text[:start] + section + text[end:]


def of_the_stem(text: str) -> str:
    """Return the document with the stem of section 2.9.1."""
    found = re.search(r'from `stems/(\S+)`:\n\n```json\n"stems":(.*)\n', text)
    assert found
    stem = json.loads(found[2])[0]
    body = (TABLES / "stems" / keys.stem_key(stem["sha256"])).read_bytes()
    shown = codec.encode_leaves(stem_bytes.from_stem(body)).decode()
    start = text.index("```json\n", text.index("Its first stem decompresses to:"))
    end = text.index("\n```", start)
    return f"{text[:start]}```json\n{shown}{text[end:]}"


def of_the_spill(text: str) -> str:
    """Return the document with the rows of the spill of section 2.7.2."""
    spill = json.loads((TABLES / "whole" / keys.commit_key(5)).read_bytes())["delta"]["spill"]
    body = (TABLES / "whole" / keys.frame_key(spill["sha256"])).read_bytes()
    table = frame_bytes.from_parquet(body, spill["adds"], spilled=True)
    adds, *_ = spill_columns.from_spill(table, 5)
    lines = []
    for raw, add in zip(pq.read_table(io.BytesIO(body)).to_pylist(), adds, strict=True):
        stored = ["null" if raw[name] is None else raw[name] for name in ("version", "partition")]
        shown = [f"`{add.id[:8]}…`", *stored, add.version, add.partition]
        lines.append(f"| false | {' | '.join(map(str, shown))} |")
    return re.sub(r"(?:\| false \| `\w{8}…` \|.*\|\n)+", _lines(lines), text)


def of_the_tail(text: str) -> str:
    """Return the document with the parts of the object of section 2.10."""
    commits = sorted((TABLES / "whole/_log").glob("*[0-9].json"), reverse=True)
    added = (one for path in commits for one in json.loads(path.read_bytes())["delta"]["adds"])
    named = [
        (one, f"data/{one['epoch']:012d}/{one['chunk']}/{one['id']}.parquet")
        for one in added
        if one["tail"]
    ]
    entry, place = next(pair for pair in named if (TABLES / "whole" / pair[1]).exists())
    body = (TABLES / "whole" / place).read_bytes()
    size = entry["tail"]["size"]
    footer = int.from_bytes(body[-8:-4], "little")
    group = pq.ParquetFile(io.BytesIO(body)).metadata
    starts = []
    for n in range(group.num_row_groups):
        columns = (group.row_group(n).column(c) for c in range(group.num_columns))
        for column in columns:
            first = column.dictionary_page_offset or column.data_page_offset
            starts.append((first, first + column.total_compressed_size))
    starts.sort()
    cuts = [0, *(first for first, _ in starts[1:]), starts[-1][1], len(body) - size]
    lines = [
        f"| {a} … {b} | `{zlib.crc32(body[a:b]).to_bytes(4, 'little').hex()}` |"
        for a, b in pairwise(cuts)
    ]
    start = text.index("Example of a tail")
    end = text.index("### 2.11", start)
    said = textwrap.fill(
        f"Its last {size} bytes are the tail: {size - footer - 8} bytes of checksums, {footer} "
        "bytes of footer, 8 bytes of length and magic. The entry has "
        f'`"tail":{canonical(entry["tail"])}`.',
        100,
        break_on_hyphens=False,
        break_long_words=False,
    )
    made = f"""Example of a tail (the object is smaller than one that needs a tail):

`whole/{place}`, {len(body)} bytes.
{said}

| part, bytes | checksum, as stored |
|---|---|
"""
    return text[:start] + made + "\n".join(lines) + "\n\n" + text[end:]


def of_the_pending(text: str) -> str:
    """Return the document with the rows of the pending object of section 10.1.1."""
    found = re.search(r'from `shared/(\S+)`:\n\n```json\n"pending":(.*)\n', text)
    assert found
    kept = TABLES / "shared" / keys.frame_key(json.loads(found[2])["sha256"])
    for row in pq.read_table(kept).to_pylist():
        old = rf"(?m)^\| `?{re.escape(row['key'])}`? \|.*$"
        assert re.search(old, text), row
        text = re.sub(old, f"| `{row['key']}` | {row['dropped']} | {row['bytes']} |", text)
    return text


def _lines(lines: list[str]) -> str:
    return "\n".join([*lines, ""])


def _hashed(text: str) -> str:
    return f"| `{text}` | `{hashlib.sha256(text.encode()).hexdigest()}` |"


def main(revision: str) -> int:
    """Write both documents."""
    for path in DOCUMENTS:
        text = samples(path.read_text(encoding="utf-8"), revision)
        if path.name == "FORMAT.md":
            for change in (
                *(of_the_example, of_the_leaf, of_the_stem, of_the_spill, of_the_tail),
                of_the_pending,
            ):
                text = change(text)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
