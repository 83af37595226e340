// What the pictures show, as tables and as legend: for screen readers, and for copying.

const MOST_ROWS = 200;

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

// A table of the first rows; `numbers` has the indexes of columns that are aligned at the right.
function tableOf(caption, header, rows, numbers) {
  const table = element("table"), head = element("tr"), body = element("tbody"), heads = element("thead");
  table.append(element("caption", caption), heads, body);
  heads.append(head);
  const kind = (at) => (numbers.includes(at) ? "number" : "");
  header.forEach((text, at) => {
    const cell = element("th", text, kind(at));
    cell.scope = "col";
    head.append(cell);
  });
  for (const row of rows) {
    const line = element("tr");
    row.forEach((text, at) => line.append(element("td", text, kind(at))));
    body.append(line);
  }
  return table;
}

function segmentsTable(h, version, found) {
  const rows = [];
  let count = 0;
  for (let chunk = 0; chunk < h.chunks.length; chunk++)
    for (const i of h.byChunk.of(chunk)) {
      const state = stateAt(h, i, version);
      if (state < 0) continue;
      if (state === 4 || (found && !found[i])) continue;
      if (++count > MOST_ROWS) continue;
      const writer = h.made[i] < 0 ? "" : textOf(h.t.writer, h.made[i]);
      rows.push([h.chunks[chunk], STATES[state], number(h.b.rows[i] - maskedRows(h, i, version)), bytesText(h.b.bytes[i]),
        String(h.added[i]), h.gone[i] <= version ? String(h.gone[i]) : "", writer,
        ...(h.keyed ? [sliceText(h, i, version)] : []), idOf(h, i)]);
    }
  const which = found ? "that match the search" : "that are not dead";
  const caption = `Version ${version}: ${plural(count, "segment")} ${which}` +
    (count > MOST_ROWS ? `; the first ${MOST_ROWS}: a search shows others` : "");
  const header = ["Chunk", "State", "Rows", "Bytes", "Added in", "Dropped in", "Writer",
    ...(h.keyed ? ["Slice"] : []), "Id"];
  return tableOf(caption, header, rows, [2, 3, 4, 5]);
}

function versionsTable(h, version) {
  const rows = [], until = Math.max(h.first, version - MOST_ROWS + 1);
  for (let v = version; v >= until; v--) {
    const at = v - h.first, txs = Array.from(h.txOf.of(at));
    const texts = (column) => [...new Set(txs.map((tx) => textOf(column, tx)))].join(", ");
    rows.push([String(v), timeText(h.times[at]), texts(h.t.operation), texts(h.t.writer),
      number(h.totals.adds[at]), number(h.totals.drops[at]), number(h.totals.segments[at]),
      number(h.totals.rows[at]), bytesText(h.totals.bytes[at])]);
  }
  const header = ["Version", "Time", "Operation", "Writer", "Added", "Dropped", "Visible", "Rows", "Bytes"];
  return tableOf(`Versions ${version} to ${until}`, header, rows, [0, 4, 5, 6, 7, 8]);
}

function lanesTable(h, version) {
  const rows = h.lanes.filter((lane) => lane.begin <= version).slice(-MOST_ROWS).map((lane) => {
    const held = lane.held.filter(([at]) => at <= version).at(-1);
    return [lane.kind, lane.name, lane.owner, lane.head ? `${lane.text}; ${headText(lane.head)}` : lane.text, String(lane.begin), held ? String(held[1]) : "",
      lane.end <= version ? `until version ${lane.end}` : "there"];
  });
  const caption = rows.length ? `Up to version ${version}` : `None up to version ${version}`;
  return tableOf(caption, ["Kind", "Name", "Owner", "What", "Set in", "Holds version", "At this version"], rows, [4, 5]);
}

// One sample of each state, and of each kind in a keyed table, drawn as the blocks are.
function legend(list, blocks) {
  list.replaceChildren();
  for (const state of [...STATES, ...(blocks.h.keyed ? ["base", "log", "late"] : [])]) {
    const item = element("li"), sample = element("canvas"), c = sample.getContext("2d");
    sample.width = 52;
    sample.height = 32;
    sample.setAttribute("aria-hidden", "true");
    c.scale(2, 2);
    const { colors, fills } = blocks;
    if (state === "visible") for (let i = 0; i < AGES; i++) {
      c.fillStyle = colors.ages[AGES - 1 - i];
      c.fillRect((26 * i) / AGES, 1, 26 / AGES, 14);
    } else if (!STATE_TEXTS[state]) {
      for (const fill of [colors.ages[0], blocks.linings[state]]) {
        c.fillStyle = fill ?? colors.ages[0];
        c.fillRect(1, 1, 24, 14);
      }
    } else {
      c.fillStyle = state === "dead" ? colors.page : fills[state];
      c.fillRect(1, 1, 24, 14);
      c.strokeStyle = colors[state];
      c.strokeRect(1.5, 1.5, 23, 13);
    }
    const text = state === "visible" ? "visible, older to newer" : STATE_TEXTS[state] ?? state;
    item.append(sample, element("span", text));
    list.append(item);
  }
}
