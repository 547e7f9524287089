"use strict";
// The server makes the page. This keeps it fresh, and copies commands. It loads nothing from elsewhere.

const PERIOD_MS = 5000;
const TIMEOUT_MS = 10000;
let freshAt = Date.now();

function showButtons() {
  for (const button of document.querySelectorAll("button.copy")) button.hidden = false;
}

function tell(text) {
  const notice = document.getElementById("notice");
  notice.textContent = text;
  notice.hidden = !text;
}

function isBusy() {
  const selection = window.getSelection();
  const main = document.getElementById("swarm");
  return Boolean(selection && !selection.isCollapsed && main.contains(selection.anchorNode)) ||
    document.querySelector("button.copy.done") !== null;
}

async function refresh() {
  try {
    const answer = await fetch("./", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("swarm");
    if (!isBusy()) {
      const places = Array.from(document.querySelectorAll(".scroll"), (each) => each.scrollLeft);
      const focused = Array.from(document.querySelectorAll("button.copy")).indexOf(document.activeElement);
      document.getElementById("swarm").replaceWith(document.adoptNode(fresh));
      showButtons();
      document.querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = places[index] || 0; });
      if (focused >= 0) document.querySelectorAll("button.copy")[focused]?.focus();
    }
    freshAt = Date.now();
    tell("");
  } catch {
    tell("Old: this server has not answered for " + Math.round((Date.now() - freshAt) / 1000) + " s.");
  }
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // over plain HTTP a page has no clipboard of its own: select the text, and copy the selection
    window.getSelection().selectAllChildren(code);
    if (!document.execCommand("copy")) {
      button.textContent = "Press Ctrl-C";
      return;
    }
    window.getSelection().removeAllRanges();
  }
  button.textContent = "Copied";
  button.classList.add("done");
  setTimeout(() => {
    button.textContent = "Copy";
    button.classList.remove("done");
  }, 2000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (button) copy(button);
});

async function stayFresh() {
  if (!document.hidden) await refresh();
  setTimeout(stayFresh, PERIOD_MS);
}

showButtons();
setTimeout(stayFresh, PERIOD_MS);
