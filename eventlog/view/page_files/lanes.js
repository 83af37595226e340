// The strip above the slider: rows added by version, rewrites, merges, and lanes of holds below.

const INSET = 8; // pixels: where the thumb of a slider stands at its ends
const BARS = 44, LANE = 16, MOST_LANES = 3;
const LANE_KINDS = ["pin", "branch", "claim", "copy"];

// The number of own commits of a branch, as text.
const headText = ([fork, version, time]) =>
  version > fork ? `${plural(version - fork, "own commit")}, the newest is its version ${version} of ${timeText(time)}` : "no own commits";

// Puts lanes of one kind into as few rows as they fit without overlapping; the rest is left out.
function packed(lanes) {
  const rows = [];
  let left = 0;
  for (const lane of lanes) {
    const row = rows.find((one) => one.at(-1).end < lane.begin);
    if (row) row.push(lane);
    else if (rows.length < MOST_LANES) rows.push([lane]);
    else left++;
  }
  return { rows, left };
}

class Lanes {
  constructor(canvas, history) {
    Object.assign(this, { canvas, h: history });
    this.context = canvas.getContext("2d");
    this.arrange();
  }

  arrange() {
    this.kinds = LANE_KINDS.map((kind) => packed(this.h.lanes.filter((lane) => lane.kind === kind)))
      .filter((kind) => kind.rows.length);
    this.resize();
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.height = BARS + 4 + this.kinds.reduce((sum, kind) => sum + LANE * (kind.rows.length + (kind.left ? 1 : 0)) + 2, 0);
    this.canvas.style.height = `${this.height}px`;
    this.width = this.canvas.clientWidth;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
    this.redraw();
  }

  // Where the row of a branch is, in pixels from the top.
  middleOf(branch) {
    let y = BARS + 4;
    for (const kind of this.kinds) {
      for (const row of kind.rows) {
        if (row.some((lane) => lane.kind === "branch" && lane.name === branch && lane.end === NEVER)) return y + LANE / 2;
        y += LANE;
      }
      y += (kind.left ? LANE : 0) + 2;
    }
    return null;
  }

  x(version) {
    const { first, last } = this.h;
    return INSET + ((this.width - 2 * INSET) * (Math.min(version, last) - first)) / Math.max(1, last - first);
  }

  versionAt(x) {
    const { first, last } = this.h, share = (x - INSET) / Math.max(1, this.width - 2 * INSET);
    return Math.round(first + Math.min(1, Math.max(0, share)) * (last - first));
  }

  // The strip without the cursor changes only with its width and the colours: it is drawn once.
  redraw() {
    this.still = document.createElement("canvas");
    this.still.width = this.canvas.width;
    this.still.height = this.canvas.height;
    const c = this.still.getContext("2d");
    this.colors = palette(this.canvas);
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.drawBars(c);
    let y = BARS + 4;
    for (const kind of this.kinds) {
      for (const row of kind.rows) {
        row.forEach((lane, at) => this.drawLane(c, lane, y, at ? this.x(Math.min(row[at - 1].end, this.h.last)) : 0));
        y += LANE;
      }
      if (kind.left) {
        c.fillStyle = this.colors.quiet;
        c.font = "11px system-ui, sans-serif";
        c.textAlign = "left";
        c.fillText(`and ${number(kind.left)} more: see the table`, INSET, y + LANE - 4);
        y += LANE;
      }
      y += 2;
    }
  }

  drawBars(c) {
    const h = this.h, most = Math.log1p(h.totals.rowsAdded.reduce((a, b) => Math.max(a, b), 1));
    const wide = Math.min(2 * INSET, Math.max(1, (this.width - 2 * INSET) / (h.last - h.first + 1) - 1));
    c.fillStyle = this.colors.dead;
    for (let version = h.first; version <= h.last; version++) {
      const height = (BARS * 0.8 * Math.log1p(h.totals.rowsAdded[version - h.first])) / most;
      if (height) c.fillRect(this.x(version) - wide / 2, BARS - height, wide, height);
    }
    c.fillStyle = this.colors.overshadowed;
    h.t.version.forEach((version, tx) => {
      if (!h.t.rewrite[tx]) return;
      const x = this.x(version);
      c.beginPath();
      c.moveTo(x - 4, 0); c.lineTo(x + 4, 0); c.lineTo(x, 7);
      c.fill();
    });
    c.fillStyle = this.colors.found;
    for (const [version, , branch] of h.merges) {
      c.fillRect(this.x(version) - 2, 0, 4, 7);
      const y = this.middleOf(branch);
      if (y !== null) c.fillRect(this.x(version) - 0.5, 0, 1, y);
    }
    if (h.fork !== null && h.fork > h.first) {
      c.strokeStyle = this.colors.accent;
      c.setLineDash([4, 3]);
      c.strokeRect(this.x(h.fork), 0, 0, BARS);
      c.setLineDash([]);
    }
    c.fillStyle = this.colors.line;
    c.fillRect(0, BARS, this.width, 1);
  }

  // Draws a lane whose row is free from a place on, in pixels.
  drawLane(c, lane, y, free) {
    const from = this.x(lane.begin), to = Math.max(from + 3, this.x(Math.min(lane.end, this.h.last)));
    const held = lane.held.at(-1)?.[1];
    c.strokeStyle = c.fillStyle = this.colors.quiet;
    if (held !== undefined && held < lane.begin) {
      c.setLineDash([2, 3]);
      c.beginPath();
      c.moveTo(this.x(Math.max(held, this.h.first)), y + LANE / 2);
      c.lineTo(from, y + LANE / 2);
      c.stroke();
      c.setLineDash([]);
    }
    c.fillStyle = this.colors.panel;
    c.fillRect(from, y + 2, to - from, LANE - 4);
    c.strokeRect(from + 0.5, y + 2.5, to - from - 1, LANE - 5);
    c.save();
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "left";
    const more = lane.head ? `: ${headText(lane.head)}` : "";
    const text = `${lane.kind} ${lane.kind === "claim" ? lane.text : lane.name}`, wide = c.measureText(text).width;
    // Before a lane that is too short for its name, where nothing else of the row is.
    const before = to - from < wide + 10 && from - free > wide + 14;
    const x = before ? from - wide - 8 : from + 5;
    c.beginPath();
    c.rect(before ? x - 2 : from, y + 1, before ? wide + 4 : to - from - 4, LANE - 2);
    if (before) {
      c.fillStyle = this.colors.page;
      c.fill();
    }
    c.clip();
    c.fillStyle = this.colors.text;
    const fits = c.measureText(text + more).width + 10 < to - from;
    if (before || to - from >= 40) c.fillText(fits ? text + more : text, x, y + LANE - 4);
    c.restore();
    if (lane.head) this.drawHead(c, lane, y);
  }

  // A branch grows from its fork to its head, along a line at the foot of its lane.
  drawHead(c, lane, y) {
    const [fork, version, , then] = lane.head, from = this.x(Math.max(fork, this.h.first)), to = this.x(then);
    if (version === fork) return;
    c.fillStyle = this.colors.accent;
    c.fillRect(from, y + LANE - 3, Math.max(to - from, 1), 2);
    c.beginPath();
    c.arc(to, y + LANE - 2, 3, 0, 7);
    c.fill();
  }

  draw(version) {
    const c = this.context;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.still, 0, 0);
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.colors.accent;
    c.fillRect(this.x(version) - 1, 0, 2, this.height);
  }
}
