// The page: it shows one version, and moves on by the slider, keys, buttons and the pointer.

const PLAY_SECONDS = 20; // for the whole history at speed 1
const SLOWEST = 3; // versions a second at speed 1, of a short history

const $ = (id) => document.getElementById(id);

function start() {
  const h = readHistory(JSON.parse($("history").textContent));
  const blocks = new Blocks($("blocks"), h), lanes = new Lanes($("lanes"), h), slider = $("version");
  const page = { h, blocks, lanes, version: h.last, recent: h.last - 1, playing: false, waiting: false };

  page.show = (version, recent = version - 1) => {
    page.version = Math.min(h.last, Math.max(h.first, version));
    page.recent = Math.min(recent, page.version - 1);
    if (page.waiting) return;
    page.waiting = true; // one picture a frame, however many events there are
    requestAnimationFrame(() => { page.waiting = false; draw(page); });
  };
  page.say = (text) => { $("live").textContent = text; };
  Object.assign(slider, { min: h.first, max: h.last, value: h.last });
  slider.addEventListener("input", () => { stop(page); page.show(Number(slider.value)); });
  lanes.canvas.addEventListener("pointerdown", (e) => { stop(page); page.show(lanes.versionAt(e.offsetX)); });
  lanes.canvas.addEventListener("pointermove", (e) => { if (e.buttons) page.show(lanes.versionAt(e.offsetX)); });
  $("back").addEventListener("click", () => step(page, -1));
  $("next").addEventListener("click", () => step(page, 1));
  $("play").addEventListener("click", () => (page.playing ? stop(page) : play(page)));
  zooms(page);
  pointer(page);
  keys(page);
  searching(page);
  themes(page);
  for (const id of ["segments-table", "versions-table", "lanes-table"])
    $(id).addEventListener("toggle", () => fillTables(page));
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's address bar comes and goes
    width = window.innerWidth;
    blocks.resize();
    lanes.resize();
    page.show(page.version);
  });
  legend($("legend"), blocks);
  if (h.keyed) $("keys").append(" Across a time chunk, a block stands where its buckets are.");
  draw(page);
  return page;
}

function draw(page) {
  const { h, version } = page, text = headline(h, version), slider = $("version");
  page.blocks.draw(version, page.recent);
  page.lanes.draw(version);
  slider.value = version;
  slider.setAttribute("aria-valuetext", `${text.title}, ${text.what}`);
  $("headline").replaceChildren(element("b", text.title), ` · ${text.what}`, element("span", text.sums, "sums"));
  if (page.playing) return;
  showDetails(page);
  fillTables(page);
}

function fillTables(page) {
  const { h, version, blocks } = page;
  const makers = {
    "segments-table": () => segmentsTable(h, version, blocks.found),
    "versions-table": () => versionsTable(h, version),
    "lanes-table": () => lanesTable(h, version),
  };
  for (const [id, make] of Object.entries(makers))
    if ($(id).open) $(id).querySelector(".scroll").replaceChildren(make());
}

function step(page, by) {
  stop(page);
  page.show(page.version + by);
  const { title, what, sums } = headline(page.h, page.version);
  page.say(`${title}. ${what}. ${sums}`);
}

function play(page) {
  const { h } = page, button = $("play");
  page.playing = true;
  button.textContent = "Pause";
  const versions = h.last - h.first;
  let at = page.version >= h.last ? h.first : page.version, before = performance.now();
  const tick = (now) => {
    if (!page.playing) return;
    const pace = Number($("speed").value) * Math.max(SLOWEST, versions / PLAY_SECONDS);
    at = Math.min(h.last, at + (pace * (now - before)) / 1000);
    before = now;
    // Rewrites stay in sight for half a second.
    page.show(Math.floor(at), Math.floor(at - Math.max(1, pace / 2)));
    if (at >= h.last) stop(page);
    else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

function stop(page) {
  if (!page.playing) return;
  page.playing = false;
  $("play").textContent = "Play";
  page.show(page.version);
  const { title, what } = headline(page.h, page.version);
  page.say(`Stopped. ${title}. ${what}`);
}

function zooms(page) {
  const change = (id, act) => $(id).addEventListener("click", () => { act(); page.show(page.version); });
  change("in", () => page.blocks.zoom(0.5));
  change("out", () => page.blocks.zoom(2));
  change("left", () => page.blocks.move(-0.5));
  change("right", () => page.blocks.move(0.5));
}

function choose(page, block) {
  page.blocks.chosen = block;
  if (block >= 0) page.blocks.reveal(page.h.b.chunk[block]);
  page.show(page.version);
  showDetails(page);
}

function pointer(page) {
  const { blocks, h } = page, canvas = blocks.canvas, tip = $("tip");
  const leave = () => { tip.hidden = true; };
  canvas.addEventListener("pointermove", (e) => {
    const hit = blocks.at(e.offsetX, e.offsetY);
    if (!hit) return leave();
    tip.textContent = hit.dead
      ? `${plural(hit.dead, "dead segment")} of ${h.chunks[blocks.chunk(hit.column)]}: below the horizon, vacuum may have deleted them`
      : factsOf(h, hit.block, page.version).map(([name, text]) => `${name}: ${text}`).join("\n");
    tip.hidden = false;
    const right = e.offsetX > blocks.width / 2, low = e.offsetY > blocks.height / 2;
    tip.style.left = right ? "auto" : `${e.offsetX + 14}px`;
    tip.style.right = right ? `${blocks.width - e.offsetX + 14}px` : "auto";
    tip.style.top = low ? "auto" : `${e.offsetY + 14}px`;
    tip.style.bottom = low ? `${blocks.height - e.offsetY + 14}px` : "auto";
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("click", (e) => choose(page, blocks.at(e.offsetX, e.offsetY)?.block ?? -1));
}

function keys(page) {
  const { blocks, h } = page;
  const go = (column, at) => {
    const listed = blocks.listed(column);
    if (!listed.length) return false;
    choose(page, listed[Math.min(listed.length - 1, Math.max(0, at))]);
    const facts = factsOf(h, blocks.chosen, page.version).slice(0, 5);
    page.say(facts.map(([name, text]) => `${name}: ${text}`).join(". "));
    return true;
  };
  const across = (column, by, at) => {
    while (column >= 0 && column < blocks.columns && !go(column, at)) column += by;
  };
  blocks.canvas.addEventListener("keydown", (e) => {
    const { chosen } = blocks, chunk = chosen < 0 ? -1 : h.b.chunk[chosen];
    const there = chunk >= blocks.from && chunk < blocks.to;
    const column = there ? blocks.columnOf(chunk) : 0;
    const at = there ? blocks.listed(column).indexOf(chosen) : 0;
    const acts = {
      ArrowLeft: () => across(there ? column - 1 : 0, -1, at),
      ArrowRight: () => across(there ? column + 1 : 0, 1, at),
      ArrowUp: () => across(column, 1, at - 1),
      ArrowDown: () => across(column, 1, there ? at + 1 : 0),
      Home: () => across(0, 1, at),
      End: () => across(blocks.columns - 1, -1, at),
      Enter: () => { if (chosen >= 0) { page.show(h.added[chosen]); page.say(`Version ${h.added[chosen]}`); } },
      Escape: () => { choose(page, -1); page.say("Closed"); },
      "+": () => { blocks.zoom(0.5, there ? chunk : undefined); page.show(page.version); },
      "-": () => { blocks.zoom(2, there ? chunk : undefined); page.show(page.version); },
    };
    if (!acts[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    acts[e.key]();
  });
}

function showDetails(page) {
  const { h, blocks, version } = page, panel = $("details"), block = blocks.chosen;
  panel.hidden = block < 0;
  if (block < 0) return panel.replaceChildren();
  const list = element("dl"), { sources, results } = relatives(h, block);
  for (const [name, text] of factsOf(h, block, version)) list.append(element("dt", name), element("dd", text));
  const links = (name, related) => {
    if (!related.length) return;
    const cell = element("dd");
    for (const one of related.slice(0, 12)) {
      const button = element("button", `${h.chunks[h.b.chunk[one]]}, ${plural(h.b.rows[one], "row")}, version ${h.added[one]}`);
      button.type = "button";
      button.addEventListener("click", () => choose(page, one));
      cell.append(button);
    }
    if (related.length > 12) cell.append(`and ${related.length - 12} more`);
    list.append(element("dt", name), cell);
  };
  links("Has the rows of", sources);
  links("Its rows are in", results.filter((one) => h.added[one] <= version));
  const jump = element("button", `Go to version ${Math.max(h.first, h.added[block])}`);
  jump.type = "button";
  jump.addEventListener("click", () => page.show(h.added[block]));
  panel.replaceChildren(element("h2", `Segment ${idOf(h, block).slice(0, 8)}`), list, jump);
}

// Finds the segments that match the text of the search; returns their number.
function look(page) {
  const { blocks, h } = page;
  blocks.found = search(h, $("search").value);
  let all = 0, here = 0;
  blocks.found?.forEach((match, i) => {
    if (!match) return;
    all++;
    const state = stateAt(h, i, page.version);
    if (state >= 0 && state < 4) here++;
  });
  $("found").hidden = !blocks.found;
  $("found").textContent = `${plural(all, "segment")} match, ${number(here)} of them in this version. Enter goes from one to the next.`;
  return all;
}

function searching(page) {
  const { blocks, h } = page, box = $("search");
  box.addEventListener("input", () => {
    const all = look(page);
    if (blocks.found) page.say(`${plural(all, "segment")} match`);
    page.show(page.version);
  });
  box.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || !blocks.found) return;
    let next = blocks.found.indexOf(1, blocks.chosen + 1);
    if (next < 0) next = blocks.found.indexOf(1);
    if (next < 0) return;
    if (stateAt(h, next, page.version) < 0) page.show(h.added[next]);
    choose(page, next);
    page.say(factsOf(h, next, page.version).slice(0, 5).map(([name, text]) => `${name}: ${text}`).join(". "));
  });
}

function themes(page) {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)"), button = $("theme");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const apply = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Show in ${dark() ? "light" : "dark"} colours`);
    page.blocks.recolor();
    page.lanes.redraw();
    legend($("legend"), page.blocks);
    page.show(page.version);
  };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; apply(); });
  system.addEventListener("change", apply);
  button.textContent = dark() ? "Light" : "Dark";
}
