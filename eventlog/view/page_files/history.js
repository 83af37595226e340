// The history as columns, and what they answer. No DOM: every function is one of its arguments.

const NEVER = 2 ** 31 - 1;
const BUCKET_LANES = 64; // across a time chunk of a keyed table: more buckets share lanes
const STATES = ["visible", "masked", "overshadowed", "dropped", "dead"];
const STATE_TEXTS = {
  visible: "visible",
  masked: "masked: visible, rows deleted",
  overshadowed: "overshadowed: rewritten, kept",
  dropped: "dropped, kept",
  dead: "dead: below the horizon",
};

function sums(differences, make) {
  const found = new make(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; i++) found[i] = sum += differences[i];
  return found;
}

const textOf = (column, i) => column.texts[column.at.length ? column.at[i] : 0] ?? "";

// Returns the indexes of all items by their group: those of group g are order[start[g]] to
// order[start[g + 1] - 1], ascending. Groups below 0 are left out.
function grouped(groups, count) {
  const start = new Int32Array(count + 1);
  for (const g of groups) if (g >= 0) start[g + 1]++;
  for (let g = 0; g < count; g++) start[g + 1] += start[g];
  const order = new Int32Array(start[count]), next = start.slice();
  groups.forEach((g, i) => { if (g >= 0) order[next[g]++] = i; });
  return { of: (g) => order.subarray(start[g], start[g + 1]) };
}

function readHistory(raw) {
  const { transactions: t, blocks: b } = raw;
  const count = b.rows.length, txVersion = sums(t.version, Int32Array);
  const made = sums(b.made, Int32Array), added = sums(b.version, Int32Array);
  const ended = Int32Array.from(b.life, (life, i) => (life ? made[i] + life : -1));
  const gone = Int32Array.from(ended, (tx) => (tx < 0 ? NEVER : txVersion[tx]));
  const history = {
    table: raw.table, first: raw.first, last: raw.first + raw.times.length - 1, count,
    times: sums(raw.times, Float64Array), t: { ...t, version: txVersion }, b, made, ended, added, gone,
    size: Float64Array.from(b.bytes, Math.sqrt),
    dead: Int32Array.from(gone, (version) => deadFrom(raw.horizons, version)),
    chunks: b.chunks, chunkStart: b.chunks.map(chunkStart), byChunk: grouped(b.chunk, b.chunks.length),
    byEnd: grouped(ended, txVersion.length), byMade: grouped(made, txVersion.length),
    horizons: raw.horizons, merges: raw.merges, masks: new Map(), fork: raw.fork, bytesOfIds: null,
    lanes: raw.lanes.map(([kind, name, owner, text, begin, end, held, head]) =>
      ({ kind, name, owner, text, begin, end: end ?? NEVER, held, head })),
    keyed: b.buckets ? slicesOf(b) : null,
  };
  const { keyed } = history;
  if (keyed) { // what is applied first is next to the line
    const rank = keyed.kind.map((kind) => ["base", "late", "log"].indexOf(kind));
    b.chunks.forEach((_, chunk) => history.byChunk.of(chunk)
      .sort((i, k) => rank[i] - rank[k] || keyed.low[i] - keyed.low[k] || i - k));
  }
  for (const [block, version, rows] of b.masks) {
    if (!history.masks.has(block)) history.masks.set(block, []);
    history.masks.get(block).push([version, rows]);
  }
  history.txOf = grouped(Array.from(txVersion, (v) => v - raw.first), raw.times.length);
  history.totals = totalsOf(history);
  return history;
}

// Where the blocks of a keyed table lie: their buckets, the versions whose rows they have, and the
// lanes of a time chunk, [from, to), that they are drawn in.
function slicesOf(b) {
  const count = b.bucket.length, lanes = Math.min(b.buckets, BUCKET_LANES), low = sums(b.low, Int32Array);
  const from = b.bucket.map((first) => Math.floor((first * lanes) / b.buckets));
  const to = b.bucket.map((first, i) => Math.max(from[i] + 1, Math.floor(((first + b.wide[i]) * lanes) / b.buckets)));
  const high = Int32Array.from({ length: count }, (_, i) => low[i] + b.high[i]);
  const kind = Array.from({ length: count }, (_, i) => textOf(b.kind, i));
  return { lanes, low, high, from, to, kind, level: b.level, first: b.bucket, wide: b.wide };
}

// The live blocks of a time chunk of a keyed table that merges made.
function merged(h, chunk, version) {
  return Array.from(h.byChunk.of(chunk)).filter((i) => {
    const state = h.keyed.level[i] ? stateAt(h, i, version) : -1;
    return state === 0 || state === 1;
  });
}

// Those of them that have taken in a live block in some buckets: a merge put them in its place there
// (FORMAT.md R15.4).
function takers(h, block, candidates) {
  const k = h.keyed;
  return candidates.filter((i) => k.level[i] > k.level[block] && k.low[i] <= k.low[block] &&
    k.high[block] <= k.high[i] && meet(h, i, block));
}

// A segment dropped by a version is needed by the versions below it: it is dead once the horizon
// has reached that version.
function deadFrom(horizons, version) {
  if (version === NEVER) return NEVER;
  for (const [at, horizon] of horizons) if (horizon >= version) return Math.max(at, version);
  return NEVER;
}

// Milliseconds since 1970 at which a time chunk begins; 0 of `all`.
const chunkStart = (name) =>
  name === "all" ? 0 : Date.parse(name.length === 13 ? `${name}:00Z` : `${name}${name.length < 8 ? "" : "T00:00Z"}`);

// For every version: live segments, their rows and bytes, and what the version added and dropped.
function totalsOf(h) {
  const n = h.last - h.first + 2;
  const total = { segments: new Float64Array(n), rows: new Float64Array(n), bytes: new Float64Array(n),
    adds: new Float64Array(n), drops: new Float64Array(n), rowsAdded: new Float64Array(n) };
  const change = (version, block, sign) => {
    const at = Math.max(version, h.first) - h.first;
    total.segments[at] += sign;
    total.rows[at] += sign * h.b.rows[block];
    total.bytes[at] += sign * h.b.bytes[block];
  };
  for (let i = 0; i < h.count; i++) {
    change(h.added[i], i, 1);
    if (h.made[i] >= 0) {
      total.adds[h.added[i] - h.first]++;
      total.rowsAdded[h.added[i] - h.first] += h.b.rows[i] - maskedRows(h, i, h.added[i]);
    }
    if (h.gone[i] !== NEVER) {
      change(h.gone[i], i, -1);
      total.drops[h.gone[i] - h.first]++;
    }
  }
  for (const [block, steps] of h.masks) {
    let before = 0;
    for (const [version, rows] of steps) {
      total.rows[version - h.first] -= rows - before;
      before = rows;
    }
    if (h.gone[block] !== NEVER) total.rows[h.gone[block] - h.first] += before;
  }
  for (const column of [total.segments, total.rows, total.bytes])
    for (let i = 1; i < n; i++) column[i] += column[i - 1];
  return total;
}

function maskedRows(h, block, version) {
  let rows = 0;
  for (const [at, all] of h.masks.get(block) ?? []) if (at <= version) rows = all;
  return rows;
}

// Returns the number of a block's state (STATES) at a version; -1 before it was added.
function stateAt(h, block, version) {
  if (version < h.added[block] && !(h.made[block] < 0)) return -1;
  if (version < h.gone[block]) return h.masks.size && maskedRows(h, block, version) ? 1 : 0;
  if (version >= h.dead[block]) return 4;
  return h.t.rewrite[h.ended[block]] ? 2 : 3;
}

function idOf(h, block) {
  h.bytesOfIds ??= Uint8Array.from(atob(h.b.id), (c) => c.charCodeAt(0));
  let text = "";
  for (let i = 16 * block; i < 16 * block + 16; i++) text += h.bytesOfIds[i].toString(16).padStart(2, "0");
  return text;
}

const number = (n) => n.toLocaleString("en");
const plural = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
const timeText = (ms) => new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
const signed = (n) => (n > 0 ? `+${number(n)}` : `−${number(-n)}`);

function bytesText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (bytes >= 999.5 && at < units.length - 1) { bytes /= 1000; at++; }
  return `${at && bytes < 99.5 ? bytes.toPrecision(bytes < 9.95 ? 2 : 3) : Math.round(bytes)} ${units[at]}`;
}

// Returns what a version did, as { title, what, sums }.
function headline(h, version) {
  const at = version - h.first, all = h.totals;
  const txs = Array.from(h.txOf.of(at));
  const whats = txs.slice(0, 3).map((x) => `${textOf(h.t.operation, x)} by ${textOf(h.t.writer, x)}`);
  if (txs.length > 3) whats.push(`${txs.length - 3} more transactions`);
  const changes = [];
  if (all.adds[at]) changes.push(`+${plural(all.adds[at], "segment")}`);
  if (all.drops[at]) changes.push(`−${plural(all.drops[at], "segment")}`);
  const rows = all.rows[at] - (at ? all.rows[at - 1] : 0);
  if (rows && at) changes.push(`${signed(rows)} rows`);
  return {
    title: `Version ${version}`,
    what: `${timeText(h.times[at])}${h.fork !== null && version <= h.fork ? ", of the parent" : ""}: ${whats.join("; ") || "no transaction took effect"}` +
      (changes.length ? ` (${changes.join(", ")})` : ""),
    sums: `${plural(all.segments[at], "visible segment")}, ${number(all.rows[at])} ${h.keyed ? "stored rows" : "rows"}, ${bytesText(all.bytes[at])}`,
  };
}

function boundsText(h, block) {
  if (!h.b.least || h.b.least[block] === null) return "";
  const start = h.chunkStart[h.b.chunk[block]] + 1000 * h.b.least[block];
  return `${timeText(start)} to ${timeText(start + 1000 * h.b.span[block])}`;
}

function sliceText(h, block, version) {
  const k = h.keyed, last = k.first[block] + k.wide[block] - 1, all = h.b.buckets;
  const range = (first, end, noun) => (first === end ? `${noun} ${first}` : `${noun}s ${first} to ${end}`);
  const state = stateAt(h, block, version), taken = new Set();
  if (state === 0 || state === 1)
    for (const i of takers(h, block, merged(h, h.b.chunk[block], version)))
      for (let one = 0; one < k.wide[i]; one++) {
        const bucket = k.first[i] + one;
        if (bucket >= k.first[block] && bucket <= last) taken.add(bucket);
      }
  const counts = taken.size ? `; counts in ${k.wide[block] - taken.size} of them, merged in the others` : "";
  return `${k.kind[block]}, ${range(k.first[block], last, "bucket")} of ${all}, rows of ` +
    `${range(k.low[block], k.high[block], "version")}${counts}`;
}

// Returns the facts of a block at a version, as [name, text] pairs.
function factsOf(h, block, version) {
  const state = STATES[stateAt(h, block, version)], masked = maskedRows(h, block, version);
  const by = (tx) => {
    const app = textOf(h.t.app, tx);
    return `${textOf(h.t.operation, tx)} by ${textOf(h.t.writer, tx)}${app ? `, unit of work ${app}` : ""}`;
  };
  const made = h.made[block], ended = h.ended[block];
  const facts = [
    ["State", state ? STATE_TEXTS[state] : "not yet added"],
    ["Time chunk", h.chunks[h.b.chunk[block]]],
    ["Rows", number(h.b.rows[block]) + (masked ? `, ${number(masked)} of them deleted` : "")],
    ["Bytes", bytesText(h.b.bytes[block])],
    ["Added", `version ${h.added[block]}${made < 0 ? "" : `: ${by(made)}`}`],
  ];
  if (ended >= 0 && version >= h.gone[block]) facts.push(["Dropped", `version ${h.gone[block]}: ${by(ended)}`]);
  if (boundsText(h, block)) facts.push(["Event times", boundsText(h, block)]);
  if (h.keyed) facts.push(["Slice", sliceText(h, block, version)]);
  facts.push(["Id", idOf(h, block)]);
  return facts;
}

// Whether two blocks may have rows of one bucket.
function meet(h, one, other) {
  const k = h.keyed;
  return !k || (k.first[one] < k.first[other] + k.wide[other] && k.first[other] < k.first[one] + k.wide[one]);
}

// The pairs of source and result of a transaction that rewrites, chunk by chunk: those of a chunk
// without a result, as where the granularity changes, go to all results.
function rewritten(h, tx) {
  if (tx < 0 || !h.t.rewrite[tx]) return [];
  const results = Array.from(h.byMade.of(tx)), pairs = [];
  for (const source of h.byEnd.of(tx)) {
    const same = results.filter((result) => h.b.chunk[result] === h.b.chunk[source] && meet(h, source, result));
    for (const result of same.length || h.keyed ? same : results) pairs.push([source, result]);
  }
  return pairs;
}

// The blocks whose rows a block has, and the blocks that have its rows, through one rewrite each.
function relatives(h, block) {
  return {
    sources: rewritten(h, h.made[block]).filter(([, result]) => result === block).map(([source]) => source),
    results: rewritten(h, h.ended[block]).filter(([source]) => source === block).map(([, result]) => result),
  };
}

// Returns which blocks match a text, as a Uint8Array; null for an empty text.
function search(h, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const holding = (texts) => texts.map((one) => one.toLowerCase().includes(wanted));
  const chunks = holding(h.chunks), hex = /^[0-9a-f]{4,32}$/.test(wanted);
  const columns = [h.t.operation, h.t.writer, h.t.app].map((c) => ({ at: c.at, found: holding(c.texts) }));
  const inTx = (tx) => tx >= 0 && columns.some((c) => c.found[c.at.length ? c.at[tx] : 0]);
  const kinds = h.keyed ? holding(h.b.kind.texts) : [], kindAt = h.keyed?.kind.map((kind) => kinds[h.b.kind.texts.indexOf(kind)]);
  const byTx = Uint8Array.from(h.t.version, (_, tx) => inTx(tx));
  const found = new Uint8Array(h.count);
  for (let i = 0; i < h.count; i++)
    found[i] = chunks[h.b.chunk[i]] || kindAt?.[i] || (h.made[i] >= 0 && byTx[h.made[i]]) || (hex && idOf(h, i).startsWith(wanted));
  return found;
}
