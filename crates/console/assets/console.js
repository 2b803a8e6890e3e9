// What every page does: times that pass, buttons that copy, dialogs, light and dark; and a page that changes with the server.

import { patch } from "./patch.js";
import "./keys.js";

const page = document.getElementById("page");

function say(text) {
  const said = document.getElementById("said");
  if (said) said.textContent = text;
}

// Times.

function ago(ms) {
  const s = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (s < 5) return "just now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 7 * 86400) return `${Math.floor(s / 86400)} d ago`;
  const year = new Date(ms).getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return new Date(ms).toLocaleDateString(undefined, { day: "numeric", month: "short", year });
}

function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (s < 1) return `0.${two(Math.floor(ms / 10))} s`;
  if (s < 10) return `${s}.${Math.floor((ms % 1000) / 100)} s`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} m`;
  return `${Math.floor(s / 86400)} d ${two(Math.floor(s / 3600) % 24)} h`;
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick(root = document) {
  for (const time of root.querySelectorAll("time[data-ago]")) {
    set(time, ago(Number(time.dataset.ago)));
    if (!time.title) time.title = new Date(Number(time.dataset.ago)).toLocaleString();
  }
  for (const span of root.querySelectorAll("[data-since]")) set(span, duration(Date.now() - Number(span.dataset.since)));
}

// Buttons.

function uncover() {
  for (const id of ["theme", "help", "chart-controls", "log-controls"]) document.getElementById(id)?.removeAttribute("hidden");
  for (const button of document.querySelectorAll("button[data-copy], button[data-copy-from], #hosts button")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy], [data-copy-from]");
  if (copy) {
    const text = copy.dataset.copy ?? document.getElementById(copy.dataset.copyFrom).textContent;
    const label = copy.dataset.label ?? (copy.dataset.label = copy.textContent);
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
      say("Copied");
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = label), 1500);
  }
  const opener = event.target.closest("[data-dialog]");
  const dialog = opener && document.getElementById(opener.dataset.dialog);
  if (dialog) {
    event.preventDefault();
    dialog.showModal();
  }
  if (event.target.matches("dialog")) event.target.close();
});

function toggleTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  document.cookie = `shoal-theme=${next}; path=/console; max-age=31536000; samesite=strict`;
  document.dispatchEvent(new Event("shoal:theme"));
}
document.getElementById("theme")?.addEventListener("click", toggleTheme);
document.getElementById("help")?.addEventListener("click", () => document.getElementById("keys").showModal());

// A page that changes: the server says that something is new, the page loads itself again and takes over what differs.

let loading = false;
let again = false;

// Whether we are signed in; not known when nobody answers.
async function signedIn() {
  const answer = await fetch("/console/session").catch(() => null);
  return answer?.ok ? (await answer.text()) === "true" : null;
}

async function refresh() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  try {
    do {
      again = false;
      const address = location.href;
      const response = await fetch(address, { headers: { accept: "text/html" } });
      if (response.status === 401) return location.reload();
      if (!response.ok || address !== location.href) continue;
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      const part = fresh.getElementById("page");
      // A search field that is being typed in is ahead of the server.
      for (const typed of page.querySelectorAll("input[type=search]")) {
        const twin = typed.id && part?.querySelector(`#${typed.id}`);
        if (twin) twin.setAttribute("value", typed.getAttribute("value") ?? "");
      }
      if (part) patch(page, document.adoptNode(part));
      uncover();
      tick();
      document.dispatchEvent(new Event("shoal:page"));
    } while (again);
  } catch {
    // The listener below sees a server that is gone.
  } finally {
    loading = false;
  }
}

let source;
let missed = false;

function listen() {
  source?.close();
  if (document.hidden) return;
  source = new EventSource(page.dataset.changes);
  const offline = document.getElementById("offline");
  source.addEventListener("open", () => {
    if (offline) offline.hidden = true;
    if (missed) {
      missed = false;
      refresh();
      document.dispatchEvent(new Event("shoal:logs"));
      document.dispatchEvent(new Event("shoal:series"));
    }
  });
  source.addEventListener("error", async () => {
    missed = true;
    if (offline) offline.hidden = false;
    if (source.readyState === EventSource.CLOSED) {
      if ((await signedIn()) === false) location.reload();
      else setTimeout(listen, 2000);
    }
  });
  source.addEventListener("jobs", refresh);
  source.addEventListener("logs", () => document.dispatchEvent(new Event("shoal:logs")));
  source.addEventListener("series", () => document.dispatchEvent(new Event("shoal:series")));
}

// The list searches as one types.
function search(field) {
  let wait;
  const go = () => {
    const address = new URL(location.href);
    address.searchParams.delete("after");
    address.searchParams.delete("before");
    address.searchParams.delete("page");
    if (field.value) address.searchParams.set("q", field.value);
    else address.searchParams.delete("q");
    field.setAttribute("value", field.value);
    history.replaceState(null, "", address);
    refresh();
  };
  field.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(go, 120);
  });
}

uncover();
tick();
setInterval(tick, 1000);
if (page?.dataset.changes) {
  listen();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source?.close();
    else {
      missed = true;
      listen();
    }
  });
  // Curves of the list move without an event of their own.
  setInterval(() => page.dataset.refresh && !document.hidden && refresh(), 2000);
  const field = document.getElementById("search");
  if (field) search(field);
}

// Who comes by a link on another site is signed in, but their browser does not say so until a page of ours asks.
if (document.querySelector("form[data-session]") && !sessionStorage.getItem("shoal-tried")) {
  sessionStorage.setItem("shoal-tried", "1");
  if (await signedIn()) location.replace(new URLSearchParams(location.search).get("next") || "/console");
} else if (page) {
  sessionStorage.removeItem("shoal-tried");
}
