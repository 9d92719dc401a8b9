// The page of the API: each form sends its request from here, with the token that was typed above. Nothing is kept.
"use strict";

(() => {
  const token = document.getElementById("token");
  for (const one of document.querySelectorAll(".origin")) one.textContent = location.origin;
  for (const form of document.querySelectorAll("form.try")) {
    const answer = form.querySelector(".answer");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      let path = form.dataset.target;
      for (const field of form.querySelectorAll("[data-path]")) {
        path = path.replace(`{${field.dataset.path}}`, encodeURIComponent(field.value));
      }
      const headers = { Authorization: `Bearer ${token.value.trim()}` };
      const key = form.querySelector("[data-key]");
      const body = form.querySelector("[data-body]");
      if (key && key.value) headers["Idempotency-Key"] = key.value;
      if (body) headers["Content-Type"] = "application/json";
      answer.hidden = false;
      answer.textContent = "Sent…";
      try {
        const response = await fetch(path, { method: form.dataset.method, headers, body: body ? body.value : undefined });
        const text = await response.text();
        const replayed = response.headers.get("idempotency-replayed");
        let shown = text;
        try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* Not JSON: as it came. */ }
        answer.textContent = `${response.status}${replayed ? "  Idempotency-Replayed: true" : ""}\n${shown}`;
      } catch (error) {
        answer.textContent = `It could not be sent: ${error.message}`;
      }
    });
  }
})();
