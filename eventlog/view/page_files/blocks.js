// The picture of the segments: a column a time chunk, what is visible above a line, what is not
// below it. Places are computed again for each picture, from the columns of the history.

const AGES = 6; // shades from the newest to the oldest segment
const PITCH = 2; // pixels: lower blocks are drawn together with their neighbours
const MOST_LINKS = 600; // lines of rewrites in one picture
const AXIS = 20; // pixels for the names of time chunks
const KEYED_AXIS = 34; // with the numbers of buckets above them
const SAMPLES = 40; // versions for which the height of a keyed table's column is found
const DEAD = 9; // pixels: the block that stands for the dead segments of a column

function palette(element) {
  const style = getComputedStyle(element), value = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["page", "panel", "line", "text", "quiet", "accent", "found", "masked", "overshadowed", "dropped", "dead"];
  const colors = Object.fromEntries(names.map((name) => [name, value(name)]));
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const young = rgb(value("new")), old = rgb(value("old"));
  colors.ages = Array.from({ length: AGES }, (_, i) =>
    `rgb(${young.map((c, k) => Math.round(c + ((old[k] - c) * i) / (AGES - 1))).join(" ")})`);
  return colors;
}

// Colour is not the only sign of a state: each has a pattern of its own.
function patternOf(context, state, color, ground) {
  const tile = document.createElement("canvas"), size = 6;
  tile.width = tile.height = size;
  const c = tile.getContext("2d");
  c.fillStyle = state === "masked" ? color : ground;
  c.fillRect(0, 0, size, size);
  c.strokeStyle = state === "masked" ? ground : color;
  c.lineWidth = 1.5;
  c.beginPath();
  if (state === "overshadowed") for (const d of [-size, 0, size]) { c.moveTo(d, size); c.lineTo(d + size, 0); }
  if (state === "dropped") {
    c.moveTo(0, 0); c.lineTo(size, size); c.moveTo(0, size); c.lineTo(size, 0);
  }
  if (state === "masked") { c.moveTo(size / 2, 0); c.lineTo(size / 2, size); }
  c.stroke();
  return context.createPattern(tile, "repeat");
}

// What lines the blocks of a keyed table: logs have lines, late segments dots, bases nothing.
function liningOf(context, kind, color) {
  const tile = document.createElement("canvas"), c = tile.getContext("2d");
  tile.width = tile.height = 5;
  c.fillStyle = color;
  if (kind === "log") c.fillRect(0, 2, 5, 1);
  else for (const d of [0, 2.5]) c.fillRect(d, d, 1.5, 1.5);
  return context.createPattern(tile, "repeat");
}

class Blocks {
  constructor(canvas, history) {
    Object.assign(this, { canvas, h: history, from: 0, to: history.chunks.length, found: null, chosen: -1 });
    this.context = canvas.getContext("2d");
    this.rect = new Map();
    this.resize();
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.recolor();
    this.scale();
  }

  recolor() {
    this.colors = palette(this.canvas);
    this.fills = {};
    for (const state of ["masked", "overshadowed", "dropped"])
      this.fills[state] = patternOf(this.context, state, this.colors[state], this.colors.page);
    this.linings = {};
    for (const kind of ["log", "late"]) this.linings[kind] = liningOf(this.context, kind, this.colors.page);
  }

  // Chooses the columns, and a scale with which every version fits, so that nothing jumps.
  scale() {
    const shown = Math.max(1, this.to - this.from);
    this.per = Math.ceil((shown * 3) / Math.max(this.width, 3)); // chunks in a column of 3 pixels or more
    this.columns = Math.ceil(shown / this.per);
    this.step = Math.min(this.width / this.columns, this.h.keyed ? Infinity : 160);
    this.axis = this.h.keyed ? KEYED_AXIS : AXIS;
    this.margin = (this.width - this.step * this.columns) / 2;
    let up = 0, down = 0;
    for (let column = 0; column < this.columns; column++) {
      const peak = this.peaks(column);
      up = Math.max(up, peak.up);
      down = Math.max(down, peak.down);
    }
    const room = this.height - this.axis - 12;
    const upper = down ? Math.min(0.8, Math.max(0.3, up / (up + down))) : 0.92;
    this.line = 6 + room * upper;
    const below = room - room * upper - DEAD - 4;
    this.unit = Math.min((room * upper) / (up || 1), down ? below / down : Infinity, 1);
  }

  // The greatest sums of sizes in a column: of visible blocks, and of others that are not dead.
  peaks(column) {
    const h = this.h, events = [];
    if (h.keyed) return this.keyedPeaks(column);
    for (let chunk = this.chunk(column); chunk < this.end(column); chunk++)
      for (const i of h.byChunk.of(chunk)) {
        events.push([h.added[i], h.size[i], 0]);
        if (h.gone[i] !== NEVER) events.push([h.gone[i], -h.size[i], h.size[i]]);
        if (h.dead[i] !== NEVER) events.push([h.dead[i], 0, -h.size[i]]);
      }
    events.sort((a, b) => a[0] - b[0]);
    let up = 0, down = 0;
    const peak = { up: 0, down: 0 };
    events.forEach(([version, rise, fall], at) => {
      up += rise;
      down += fall;
      if (at + 1 === events.length || events[at + 1][0] > version) {
        peak.up = Math.max(peak.up, up);
        peak.down = Math.max(peak.down, down);
      }
    });
    return peak;
  }

  // The same of a keyed table, whose blocks stand side by side, too: at some versions that change
  // the column, and at those after which most was dropped.
  keyedPeaks(column) {
    const { h } = this, changes = new Set([h.last]);
    for (let chunk = this.chunk(column); chunk < this.end(column); chunk++)
      for (const i of h.byChunk.of(chunk)) {
        changes.add(Math.max(h.first, h.added[i]));
        if (h.gone[i] !== NEVER) changes.add(h.gone[i]).add(Math.max(h.first, h.gone[i] - 1));
        if (h.dead[i] !== NEVER) changes.add(Math.max(h.first, h.dead[i] - 1));
      }
    const versions = [...changes].sort((a, b) => a - b), every = Math.max(1, versions.length / SAMPLES);
    const peak = { up: 0, down: 0 }, { unit, line } = this;
    [this.unit, this.line] = [1, 0];
    for (let at = versions.length - 1; at >= 0; at -= every)
      this.place(column, versions[Math.floor(at)], (_, state, y, height) => {
        if (y < 0) peak.up = Math.max(peak.up, -y);
        else peak.down = Math.max(peak.down, y + height);
      });
    Object.assign(this, { unit, line });
    return peak;
  }

  chunk(column) { return this.from + column * this.per; }
  end(column) { return Math.min(this.to, this.chunk(column) + this.per); }
  columnOf(chunk) { return Math.floor((chunk - this.from) / this.per); }

  // Calls put(block, state, y, height, from, to) for the blocks of a column at a version, outwards
  // from the line, with the lanes of the column that they take; returns the number of its dead blocks.
  place(column, version, put) {
    const h = this.h;
    if (h.keyed) return this.placeKeyed(column, version, put);
    let up = this.line, down = this.line + 2, dead = 0;
    for (let chunk = this.chunk(column); chunk < this.end(column); chunk++)
      for (const i of h.byChunk.of(chunk)) {
        const state = stateAt(h, i, version), height = h.size[i] * this.unit;
        if (state < 0) break; // the rest was added later
        if (state < 2) put(i, state, (up -= height), height, 0, 1);
        else if (state < 4) { put(i, state, down, height, 0, 1); down += height; }
        else dead++;
      }
    return dead;
  }

  // A block is as wide as its buckets are. Where a merge has taken in a log in some of them, that
  // part of it is overshadowed.
  placeKeyed(column, version, put) {
    const { h } = this, k = h.keyed, up = new Float64Array(k.lanes), down = new Float64Array(k.lanes);
    let dead = 0;
    for (let chunk = this.chunk(column); chunk < this.end(column); chunk++) {
      const candidates = merged(h, chunk, version);
      for (const i of h.byChunk.of(chunk)) {
        const state = stateAt(h, i, version);
        if (state < 0) continue;
        if (state === 4) { dead++; continue; }
        const side = state < 2 ? up : down, from = k.from[i], to = k.to[i], height = h.size[i] * this.unit;
        const low = Math.max(...side.subarray(from, to));
        side.fill(low + height, from, to);
        const y = state < 2 ? this.line - low - height : this.line + 2 + low;
        const taken = new Uint8Array(k.lanes);
        if (state < 2) for (const other of takers(h, i, candidates)) taken.fill(1, k.from[other], k.to[other]);
        for (let start = from, at = from + 1; at <= to; at++)
          if (at === to || taken[at] !== taken[start]) {
            put(i, taken[start] ? 2 : state, y, height, start, at);
            start = at;
          }
      }
    }
    return dead;
  }

  deadTop() { return this.height - this.axis - DEAD - 2; }

  draw(version, recent) {
    const c = this.context;
    this.version = version;
    this.rect.clear();
    const wanted = this.links(version, recent), ends = new Set(wanted.flatMap(([a, b]) => [a, b]));
    if (this.chosen >= 0) ends.add(this.chosen);
    c.fillStyle = this.colors.page;
    c.fillRect(0, 0, this.width, this.height);
    for (let column = 0; column < this.columns; column++) this.drawColumn(column, version, ends);
    c.fillStyle = this.colors.text;
    c.fillRect(0, this.line + 0.5, this.width, 1);
    this.drawAxis();
    this.drawLinks(wanted);
    const box = this.rect.get(this.chosen);
    if (box) {
      c.strokeStyle = this.colors.text;
      c.lineWidth = 2.5;
      c.strokeRect(box.x - 1.5, box.y - 1.5, box.width + 3, Math.max(box.height, 1) + 3);
    }
  }

  // Where lanes of a column begin and end, in pixels.
  across(column, from, to) {
    const lanes = this.h.keyed?.lanes ?? 1, gap = this.step > 8 ? 2 : this.step > 4 ? 1 : 0;
    const room = this.step - gap, inner = room / lanes > 4 && to < lanes ? 1 : 0;
    const x = this.margin + column * this.step + gap / 2 + (room * from) / lanes;
    return { x, width: (room * (to - from)) / lanes - inner };
  }

  drawColumn(column, version, ends) {
    const c = this.context;
    // Neighbours that are too low to be seen alone are drawn as one.
    const open = new Map();
    const dead = this.place(column, version, (i, state, y, height, from, to) => {
      const { x, width } = this.across(column, from, to), key = (y < this.line ? 0 : 1) + 2 * (from * 128 + to);
      if (ends.has(i)) {
        const known = this.rect.get(i);
        this.rect.set(i, known ? { ...known, width: x + width - known.x } : { x, y, width, height });
      }
      const before = open.get(key), top = Math.min(y, before?.top ?? y), bottom = Math.max(y + height, before?.bottom ?? 0);
      if (bottom - top < PITCH) return open.set(key, { i, state, x, top, width, bottom });
      open.delete(key);
      this.paint(i, state, x, top, width, bottom - top);
    });
    for (const { i, state, x, top, width, bottom } of open.values()) this.paint(i, state, x, top, width, bottom - top);
    c.globalAlpha = 1;
    if (!dead) return;
    const { x, width } = this.across(column, 0, this.h.keyed?.lanes ?? 1);
    c.strokeStyle = this.colors.dead;
    c.lineWidth = 1;
    c.strokeRect(x + 0.5, this.deadTop() + 0.5, Math.max(width - 1, 1), DEAD - 1);
  }

  paint(block, state, x, y, width, height) {
    const c = this.context, h = this.h, gap = height > 3 ? 1 : 0;
    const span = Math.max(1, this.version - h.first + 1), old = this.version - Math.max(h.added[block], h.first);
    c.fillStyle = state ? this.fills[STATES[state]] : this.colors.ages[Math.floor((AGES * old) / span)];
    c.globalAlpha = this.found && !this.found[block] ? 0.18 : 1;
    c.fillRect(x, y, width, height - gap);
    const lining = !state && height > 4 && h.keyed && this.linings[h.keyed.kind[block]];
    if (lining) {
      c.fillStyle = lining;
      c.fillRect(x, y, width, height - gap);
    }
    if (width <= 3 || height <= 4) return;
    const found = this.found?.[block];
    if (!state && !found) return;
    c.strokeStyle = found ? this.colors.found : this.colors[STATES[state]];
    c.lineWidth = found ? 2 : 1;
    c.strokeRect(x + c.lineWidth / 2, y + c.lineWidth / 2, width - c.lineWidth, height - gap - c.lineWidth);
  }

  drawAxis() {
    const c = this.context, every = Math.max(1, Math.ceil(100 / this.step));
    c.fillStyle = this.colors.quiet;
    c.font = "12px system-ui, sans-serif";
    c.textAlign = "left";
    for (let column = 0; column < this.columns; column += every) {
      const x = this.margin + column * this.step;
      if (x + 80 > this.width && column) break;
      c.fillRect(x, this.height - AXIS, 1, 5);
      c.fillText(this.h.chunks[this.chunk(column)], x + 3, this.height - 6);
    }
    const { keyed } = this.h;
    if (!keyed || this.step / keyed.lanes < 22) return;
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "center";
    for (let column = 0; column < this.columns; column++)
      for (let lane = 0; lane < keyed.lanes; lane++) {
        const { x, width } = this.across(column, lane, lane + 1);
        const bucket = Math.floor((lane * this.h.b.buckets) / keyed.lanes);
        c.fillText(width > 60 ? `bucket ${bucket}` : String(bucket), x + width / 2, this.height - AXIS - 3);
      }
  }

  // The pairs of source and result, with their weight: of rewrites since `recent`, and of the
  // chosen block.
  links(version, recent) {
    const h = this.h, pairs = [];
    const link = (found, weight) => {
      for (const [source, result] of found) if (pairs.length < MOST_LINKS) pairs.push([source, result, weight]);
    };
    for (let at = version; at > recent && at >= h.first && pairs.length < MOST_LINKS; at--)
      for (const tx of h.txOf.of(at - h.first)) link(rewritten(h, tx), (at - recent) / (version - recent));
    if (this.chosen >= 0) {
      const { sources, results } = relatives(h, this.chosen);
      link(sources.map((source) => [source, this.chosen]), 1);
      link(results.map((result) => [this.chosen, result]), 1);
    }
    return pairs;
  }

  drawLinks(pairs) {
    const c = this.context;
    c.strokeStyle = c.fillStyle = this.colors.accent;
    c.lineWidth = 1.5;
    for (const [source, result, weight] of pairs) {
      const a = this.rect.get(source) ?? this.deadRect(source), b = this.rect.get(result) ?? this.deadRect(result);
      if (!a || !b) continue;
      c.globalAlpha = 0.25 + 0.65 * weight;
      const x1 = a.x + a.width * 0.5, x2 = b.x + b.width * 0.5, y1 = a.y + a.height / 2, y2 = b.y + b.height / 2;
      const bow = Math.min(60, 14 + this.step);
      c.beginPath();
      c.moveTo(x1, y1);
      c.bezierCurveTo(x1 + bow, y1, x2 + bow, y2, x2, y2);
      c.stroke();
      c.beginPath();
      c.arc(x2, y2, 3, 0, 7);
      c.fill();
    }
    c.globalAlpha = 1;
  }

  deadRect(block) {
    const chunk = this.h.b.chunk[block];
    if (stateAt(this.h, block, this.version) !== 4 || chunk < this.from || chunk >= this.to) return null;
    return { x: this.margin + this.columnOf(chunk) * this.step, y: this.deadTop(), width: this.step, height: DEAD };
  }

  // What lies at a point: { block } or { dead, column }; null where nothing is.
  at(x, y) {
    const column = Math.floor((x - this.margin) / this.step);
    if (column < 0 || column >= this.columns) return null;
    let near = null, distance = 3;
    const dead = this.place(column, this.version, (block, _, top, height, from, to) => {
      const span = this.across(column, from, to);
      const away = Math.max(top - y, y - top - height, span.x - x, x - span.x - span.width - 1, 0);
      if (away < distance) [near, distance] = [{ block, column }, away];
    });
    return near ?? (dead && y >= this.deadTop() - 2 && y < this.height - this.axis ? { dead, column } : null);
  }

  // The blocks of a column from top to bottom.
  listed(column) {
    const found = new Map();
    this.place(column, this.version, (block, _, y, height, from) => {
      if (!found.has(block)) found.set(block, [y, from]);
    });
    return [...found].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1]).map(([block]) => block);
  }

  // Shows fewer chunks (factor below 1) or more, around a chunk; moves by a share of what is shown.
  zoom(factor, middle = (this.from + this.to) / 2) {
    const all = this.h.chunks.length, shown = Math.min(all, Math.max(1, Math.round((this.to - this.from) * factor)));
    this.from = Math.round(Math.min(Math.max(0, middle - shown / 2), all - shown));
    this.to = this.from + shown;
    this.scale();
  }

  move(share) {
    const all = this.h.chunks.length, shown = this.to - this.from;
    const by = Math.sign(share) * Math.max(1, Math.round(Math.abs(share) * shown));
    this.from = Math.min(Math.max(0, this.from + by), all - shown);
    this.to = this.from + shown;
    this.scale();
  }

  reveal(chunk) {
    if (chunk >= this.from && chunk < this.to) return;
    this.zoom(1, chunk + 0.5);
  }
}
