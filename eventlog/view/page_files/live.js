// Follows a live table: asks the program that served the page what is new, while it is looked at.

const POLL_MS = 2000;
const PATIENCE = 10; // times as long as an answer took, so that large tables are asked for less often
const SAY_MS = 10000; // between two announcements

function follow(page) {
  const state = $("following");
  let said = 0;
  state.hidden = false;
  const tell = (text) => { if (state.textContent !== text) state.textContent = text; };
  const ask = async () => {
    if (document.hidden) return setTimeout(ask, POLL_MS);
    const began = performance.now();
    try {
      const answer = await fetch(`history?after=${page.h.last}`, { cache: "no-store" });
      if (answer.status === 200) {
        const before = page.h.last;
        renew(page, await answer.json());
        if (page.version === page.h.last && began - said > SAY_MS) {
          said = began;
          page.say(`${plural(page.h.last - before, "new version")}. ${headline(page.h, page.h.last).title}`);
        }
      } else if (answer.status !== 204) throw new Error(`The table cannot be read now (${await answer.text()}): the terminal shows why.`);
      tell("Live");
    } catch (error) {
      tell(error instanceof TypeError ? "Not live: the program that serves this page does not answer." : error.message);
    }
    setTimeout(ask, Math.max(POLL_MS, PATIENCE * (performance.now() - began)));
  };
  tell("Live");
  setTimeout(ask, POLL_MS);
}

// Takes a longer history. A page that shows the newest version goes on to the new one.
function renew(page, raw) {
  const { h, blocks, lanes } = page, before = h.last, newest = page.version === before && !page.playing;
  const whole = blocks.to - blocks.from === h.chunks.length, first = h.chunks[blocks.from], shown = blocks.to - blocks.from;
  Object.assign(h, readHistory(raw));
  blocks.from = whole ? 0 : Math.max(0, h.chunks.indexOf(first));
  blocks.to = whole ? h.chunks.length : Math.min(h.chunks.length, blocks.from + shown);
  blocks.scale();
  lanes.arrange();
  $("version").max = h.last;
  look(page);
  page.show(newest ? h.last : page.version, newest ? before : page.recent);
}
