// What script adds: pages refresh by themselves, commands can be copied, times say how long ago they were.
// Everything works without it.
"use strict";

(() => {
  const PAUSED = "onceward-paused";
  const main = document.getElementById("main");
  if (!main) return;

  const ago = (moment) => {
    const seconds = Math.round((Date.now() - moment) / 1000);
    const size = Math.abs(seconds);
    const text =
      size < 60 ? `${size} s` : size < 3600 ? `${Math.round(size / 60)} min`
      : size < 172800 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86400)} days`;
    return seconds >= 0 ? `${text} ago` : `in ${text}`;
  };

  const decorate = () => {
    for (const time of main.querySelectorAll("time")) time.title = `UTC, ${ago(new Date(time.dateTime))}`;
    for (const block of main.querySelectorAll("pre.command")) {
      if (block.querySelector("button") || !navigator.clipboard) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(block.querySelector("code").textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      block.append(button);
    }
  };

  // --- live ---

  const seconds = Number(main.dataset.live || 0);
  let paused = sessionStorage.getItem(PAUSED) === "yes";
  let shown = null;
  let switcher = null;

  const addSwitch = () => {
    if (!seconds) return;
    const box = document.createElement("div");
    box.className = "live";
    const told = document.createElement("span");
    told.textContent = paused ? "Paused" : `Refreshes every ${seconds} s`;
    switcher = document.createElement("button");
    switcher.type = "button";
    switcher.className = "quiet";
    switcher.textContent = paused ? "Resume" : "Pause";
    switcher.addEventListener("click", () => {
      paused = !paused;
      sessionStorage.setItem(PAUSED, paused ? "yes" : "no");
      told.textContent = paused ? "Paused" : `Refreshes every ${seconds} s`;
      switcher.textContent = paused ? "Resume" : "Pause";
    });
    box.append(told, switcher);
    main.prepend(box);
  };

  // Nobody wants a page that changes under a pointer that selects, an open detail, or a half-filled form.
  const isBusy = () => {
    const selection = String(document.getSelection());
    const inside = document.activeElement && main.contains(document.activeElement) && document.activeElement !== switcher;
    return paused || document.hidden || selection !== "" || inside || main.querySelector("details[open]") !== null;
  };

  const refresh = async () => {
    if (!isBusy()) {
      try {
        const response = await fetch(location.href, { headers: { "X-Onceward-Fragment": "1" }, cache: "no-store" });
        if (response.status === 401) { location.reload(); return; }
        if (response.ok) {
          const text = await response.text();
          if (text !== shown && !isBusy()) {
            const held = document.activeElement === switcher;
            main.innerHTML = text;
            addSwitch();
            decorate();
            if (held && switcher) switcher.focus();
            shown = text;
          }
        }
      } catch {
        // The network is away: the next refresh tries again.
      }
    }
    setTimeout(refresh, seconds * 1000);
  };

  const current = document.querySelector("nav a[aria-current]");
  if (current && matchMedia("(max-width: 52rem)").matches) current.scrollIntoView({ block: "nearest", inline: "center" });
  addSwitch();
  decorate();
  if (seconds) setTimeout(refresh, seconds * 1000);
})();
