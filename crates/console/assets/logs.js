// The log: new lines follow, earlier ones come on demand, a search looks through the whole of it.

const lines = document.getElementById("lines");
const follow = document.getElementById("log-follow");
const search = document.getElementById("log-search");
const none = document.getElementById("log-none");

// Lines that the page keeps; older ones can be loaded again.
const MOST = 5000;

const state = { host: "", search: "", before: lines.dataset.before, after: lines.dataset.after, more: lines.dataset.more === "true", following: true };
let turn = 0;
let busy = Promise.resolve();

const earlier = document.createElement("button");
earlier.type = "button";
earlier.className = "button small earlier";
earlier.textContent = "Load earlier lines";
earlier.addEventListener("click", () => queue(loadEarlier));

function atEnd() {
  return lines.scrollHeight - lines.scrollTop - lines.clientHeight < 24;
}

function toEnd() {
  lines.scrollTop = lines.scrollHeight;
}

function setFollowing(on) {
  state.following = on;
  follow.setAttribute("aria-pressed", String(on));
  follow.textContent = on && !follow.disabled ? "Following" : "Follow";
  if (on) toEnd();
}

function localTimes(root) {
  for (const time of root.querySelectorAll("time[data-clock]")) {
    const date = new Date(Number(time.dataset.clock));
    const two = (n) => String(n).padStart(2, "0");
    time.textContent = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
    time.removeAttribute("data-clock");
  }
}

function mark() {
  if (!("highlights" in CSS)) return;
  CSS.highlights.delete("found");
  const needle = state.search.toLowerCase();
  if (!needle) return;
  const ranges = [];
  const walker = document.createTreeWalker(lines, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.parentElement.closest("span")) continue;
    const text = node.nodeValue.toLowerCase();
    for (let at = text.indexOf(needle); at >= 0 && ranges.length < 2000; at = text.indexOf(needle, at + needle.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + needle.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

function show() {
  earlier.hidden = !state.more;
  const empty = !lines.querySelector("p");
  none.hidden = !empty || state.more;
  if (empty && state.search) none.textContent = "No line holds that.";
  lines.classList.toggle("empty", empty && !state.more);
  mark();
}

async function ask(places) {
  const query = new URLSearchParams();
  if (state.host) query.set("host", state.host);
  if (state.search) query.set("q", state.search);
  for (const [name, value] of Object.entries(places)) query.set(name, value);
  const response = await fetch(`${lines.dataset.log}?${query}`);
  if (!response.ok) throw new Error(response.status);
  const told = (name) => response.headers.get(`shoal-${name}`) ?? "";
  const part = document.createElement("div");
  // Made and escaped by the server, as the rest of the page is.
  part.innerHTML = await response.text();
  part.dataset.before = told("before");
  localTimes(part);
  return { part, before: told("before"), after: told("after"), more: told("more") === "true" };
}

async function loadEarlier() {
  const chunk = await ask({ before: state.before });
  const height = lines.scrollHeight;
  earlier.after(chunk.part);
  state.before = chunk.before;
  state.more = chunk.more;
  show();
  lines.scrollTop += lines.scrollHeight - height;
}

async function loadLater() {
  let chunk;
  do {
    // Without a stream there is no place yet; a comma stands for the start of all.
    chunk = await ask({ after: state.after || "," });
    const follows = state.following;
    state.after = chunk.after;
    if (chunk.part.firstChild) lines.append(chunk.part);
    if (follows) {
      trim();
      toEnd();
    }
    show();
  } while (chunk.more);
}

// What scrolled far away is dropped, chunk by chunk: each knows from where its lines can be loaded again.
function trim() {
  const chunks = [...lines.querySelectorAll("div")];
  let surplus = lines.querySelectorAll("p").length - MOST;
  while (chunks.length > 1 && surplus > 0) {
    const gone = chunks.shift();
    surplus -= gone.children.length;
    gone.remove();
    Object.assign(state, { before: chunks[0].dataset.before, more: true });
  }
}

async function start() {
  const now = ++turn;
  const chunk = await ask({});
  if (now !== turn) return;
  for (const part of lines.querySelectorAll("div")) part.remove();
  lines.append(chunk.part);
  Object.assign(state, { before: chunk.before, after: chunk.after, more: chunk.more });
  show();
  toEnd();
}

function queue(work) {
  busy = busy.then(work).catch(() => {});
}

document.addEventListener("shoal:logs", () => queue(loadLater));
follow.addEventListener("click", () => setFollowing(!state.following));
lines.addEventListener("scroll", () => {
  if (state.following && !atEnd()) setFollowing(false);
});

let wait;
search.addEventListener("input", () => {
  clearTimeout(wait);
  wait = setTimeout(() => {
    state.search = search.value.trim();
    queue(start);
  }, 200);
});

document.getElementById("hosts").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  for (const other of event.currentTarget.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
  state.host = button.dataset.host;
  lines.classList.toggle("one", state.host !== "");
  queue(start);
});

lines.prepend(earlier);
localTimes(lines);
setFollowing(true);
show();
toEnd();
