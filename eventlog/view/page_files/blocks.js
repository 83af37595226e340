// The picture of the segments: a column a time chunk, what is visible above a line, what is not
// below it. Places are computed again for each picture, from the columns of the history.

const AGES = 6; // shades from the newest to the oldest segment
const PITCH = 2; // pixels: lower blocks are drawn together with their neighbours
const MOST_LINKS = 600; // lines of rewrites in one picture
const AXIS = 20; // pixels for the names of time chunks
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
  }

  // Chooses the columns, and a scale with which every version fits, so that nothing jumps.
  scale() {
    const shown = Math.max(1, this.to - this.from);
    this.per = Math.ceil((shown * 3) / Math.max(this.width, 3)); // chunks in a column of 3 pixels or more
    this.columns = Math.ceil(shown / this.per);
    this.step = Math.min(this.width / this.columns, 160);
    this.margin = (this.width - this.step * this.columns) / 2;
    let up = 0, down = 0;
    for (let column = 0; column < this.columns; column++) {
      const peak = this.peaks(column);
      up = Math.max(up, peak.up);
      down = Math.max(down, peak.down);
    }
    const room = this.height - AXIS - 12;
    const upper = down ? Math.min(0.8, Math.max(0.3, up / (up + down))) : 0.92;
    this.line = 6 + room * upper;
    const below = room - room * upper - DEAD - 4;
    this.unit = Math.min((room * upper) / (up || 1), down ? below / down : Infinity, 1);
  }

  // The greatest sums of sizes in a column: of visible blocks, and of others that are not dead.
  peaks(column) {
    const h = this.h, events = [];
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

  chunk(column) { return this.from + column * this.per; }
  end(column) { return Math.min(this.to, this.chunk(column) + this.per); }
  columnOf(chunk) { return Math.floor((chunk - this.from) / this.per); }

  // Calls put(block, state, y, height) for the blocks of a column at a version, outwards from the
  // line; returns the number of its dead blocks.
  place(column, version, put) {
    const h = this.h;
    let up = this.line, down = this.line + 2, dead = 0;
    for (let chunk = this.chunk(column); chunk < this.end(column); chunk++)
      for (const i of h.byChunk.of(chunk)) {
        const state = stateAt(h, i, version), height = h.size[i] * this.unit;
        if (state < 0) break; // the rest was added later
        if (state < 2) put(i, state, (up -= height), height);
        else if (state < 4) { put(i, state, down, height); down += height; }
        else dead++;
      }
    return dead;
  }

  deadTop() { return this.height - AXIS - DEAD - 2; }

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

  drawColumn(column, version, ends) {
    const c = this.context, gap = this.step > 8 ? 2 : this.step > 4 ? 1 : 0;
    const x = this.margin + column * this.step + gap / 2, width = this.step - gap;
    // Neighbours that are too low to be seen alone are drawn as one: above the line, and below it.
    const open = [false, false], top = [0, 0], bottom = [0, 0], last = [0, 0], states = [0, 0];
    const dead = this.place(column, version, (i, state, y, height) => {
      if (ends.has(i)) this.rect.set(i, { x, y, width, height });
      const side = state < 2 ? 0 : 1;
      top[side] = open[side] ? Math.min(top[side], y) : y;
      bottom[side] = open[side] ? Math.max(bottom[side], y + height) : y + height;
      [last[side], states[side]] = [i, state];
      open[side] = bottom[side] - top[side] < PITCH;
      if (!open[side]) this.paint(i, state, x, top[side], width, bottom[side] - top[side]);
    });
    for (const side of [0, 1])
      if (open[side]) this.paint(last[side], states[side], x, top[side], width, bottom[side] - top[side]);
    c.globalAlpha = 1;
    if (dead) {
      c.strokeStyle = this.colors.dead;
      c.lineWidth = 1;
      c.strokeRect(x + 0.5, this.deadTop() + 0.5, Math.max(width - 1, 1), DEAD - 1);
    }
  }

  paint(block, state, x, y, width, height) {
    const c = this.context, h = this.h, gap = height > 3 ? 1 : 0;
    const span = Math.max(1, this.version - h.first + 1), old = this.version - Math.max(h.added[block], h.first);
    c.fillStyle = state ? this.fills[STATES[state]] : this.colors.ages[Math.floor((AGES * old) / span)];
    c.globalAlpha = this.found && !this.found[block] ? 0.18 : 1;
    c.fillRect(x, y, width, height - gap);
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
    const dead = this.place(column, this.version, (block, _, top, height) => {
      const away = Math.max(top - y, y - top - height, 0);
      if (away < distance) [near, distance] = [{ block, column }, away];
    });
    return near ?? (dead && y >= this.deadTop() - 2 && y < this.height - AXIS ? { dead, column } : null);
  }

  // The blocks of a column from top to bottom.
  listed(column) {
    const found = [];
    this.place(column, this.version, (block, _, y) => found.push([y, block]));
    return found.sort((a, b) => a[0] - b[0]).map(([, block]) => block);
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
