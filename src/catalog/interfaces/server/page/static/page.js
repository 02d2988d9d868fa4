"use strict";
/* The page works without this file. With it, answers come as one types, and keys move about. */
const DELAY = 180;
const byId = (id) => document.getElementById(id);
let running = null;
let timer = 0;

async function show(address, how) {
  if (running) running.abort();
  const mine = (running = new AbortController());
  document.body.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { signal: mine.signal, credentials: "same-origin" });
    if (answer.redirected) return location.assign(address);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const old = document.querySelector("main");
    const isReading = Boolean(next.querySelector("#document"));
    old.replaceWith(document.adoptNode(next.querySelector("main")));
    document.title = next.title;
    byId("status").textContent = document.querySelector("main .told")?.textContent || "";
    if (how === "push" && new URL(address, location).href !== location.href) history.pushState(null, "", address);
    if (how === "replace") history.replaceState(null, "", address);
    if (isReading && how !== "replace") settle();
  } catch (error) {
    if (error.name !== "AbortError") location.assign(address);
  } finally {
    if (running === mine) {
      running = null;
      document.body.removeAttribute("aria-busy");
    }
  }
}

function settle() {
  const at = byId("at");
  const pane = byId("document");
  if (pane && getComputedStyle(pane).position === "static") (at || pane).scrollIntoView({ block: at ? "center" : "start" });
  else if (at && pane) pane.scrollTop += at.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 3;
  follow(byId("media"));
}

/* The lines of a recording follow it, and their times move it. */
function follow(media) {
  if (!media) return;
  const lines = [...document.querySelectorAll(".said li")];
  media.addEventListener("timeupdate", () => {
    for (const line of lines) {
      const isNow = +line.dataset.start <= media.currentTime && media.currentTime < +line.dataset.end;
      if (isNow && !line.matches(".now")) line.scrollIntoView({ block: "nearest" });
      line.classList.toggle("now", isNow);
    }
  });
  for (const line of lines)
    line.querySelector("a").addEventListener("click", (event) => {
      event.preventDefault();
      event.stopPropagation();
      media.currentTime = +line.dataset.start;
      history.replaceState(null, "", event.currentTarget.getAttribute("href"));
      media.play();
    });
}

function asked() {
  const pairs = new URLSearchParams(new FormData(byId("ask")));
  if (pairs.get("sort") === "best") pairs.delete("sort");
  if (pairs.get("mode") === "hybrid") pairs.delete("mode");
  return "./?" + pairs;
}

function move(step) {
  const links = [...document.querySelectorAll("a.result")].filter((one) => !one.closest("details:not([open])"));
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : -1) : at + step;
  if (next < 0 && at === 0) byId("q").focus();
  else links.at(Math.min(next, links.length - 1))?.focus();
}

if (byId("ask")) {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    show(asked(), "push");
  });
  let isUntouched = true; // "/" is typed into the box only by who uses it
  const type = (event) => {
    isUntouched = false;
    clearTimeout(timer);
    if (!event.isComposing) timer = setTimeout(() => show(asked(), "replace"), DELAY); // not half a word of an input method
  };
  byId("q").addEventListener("input", type);
  byId("q").addEventListener("compositionend", type);
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[form=ask]")) show(asked(), "push");
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("main a[href^='./?'], main a[href='./']");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const address = link.getAttribute("href");
    const words = link.querySelector("bdi")?.textContent;
    const [isValue, isMore, isClose] = ["#facets *", ".more", ".close *"].map((one) => link.matches(one));
    const at = document.querySelectorAll("a.result").length;
    const from = document.querySelector("a.result[aria-current]")?.getAttribute("href");
    show(address, "push").then(() => {
      const links = [...document.querySelectorAll("a.result")];
      let next = links.find((one) => one.getAttribute("href") === address);
      if (isValue) next = [...document.querySelectorAll("#facets a")].find((one) => one.querySelector("bdi").textContent === words);
      if (isMore) next = links[at];
      if (isClose) next = links.find((one) => one.getAttribute("href") === from) || links[0];
      next?.focus({ preventScroll: Boolean(byId("document")) });
    });
  });
  addEventListener("popstate", () => {
    if (location.hash === "#found") return; // "Skip to results" stays on this page
    byId("q").value = new URLSearchParams(location.search).get("q") || "";
    show(location.pathname + location.search, "");
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, textarea, select") && !(isUntouched && event.target === byId("q") && !event.target.value);
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      byId("q").select();
      isUntouched = false;
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !event.target.matches("select, #document *, #document")) {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Escape") {
      const close = document.querySelector("#document .close a");
      if (close) close.click();
      else byId("q").focus();
    }
  });
  settle();
}

/* One key for each choice between two lists. */
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  for (const button of document.querySelectorAll("button[data-key]"))
    if (button.dataset.key === event.key) button.click();
});

/* Going back keeps what was typed. */
document.querySelector("[data-back]")?.addEventListener("click", (event) => {
  event.preventDefault();
  history.back();
});

/* A search that is made ready is asked about until it is. */
function wait() {
  const waits = byId("waits");
  if (!waits) return;
  setTimeout(async () => {
    const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
    const next = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
    const later = next ? next.getElementById("waits") : waits;
    const isTyped = [...document.querySelectorAll("main input")].some((one) => one.value !== one.defaultValue);
    byId("status").textContent = later ? "" : "Both searches are ready.";
    if (later && later !== waits) waits.replaceWith(document.adoptNode(later));
    if (later) wait();
    else if (isTyped) waits.textContent = "Both searches are ready.";
    else location.reload();
  }, +waits.dataset.again);
}
wait();
