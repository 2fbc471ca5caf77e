// One key, one element: what has the key in data-key is clicked, unless somebody types or holds a modifier.
"use strict";

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.key.length !== 1) {
    return;
  }
  const found = document.querySelector(`[data-key~="${CSS.escape(event.key.toLowerCase())}"]`);
  // While an answer is under way the next key would be for a pair that nobody has seen yet.
  if (found && !document.querySelector(".htmx-request")) {
    event.preventDefault();
    found.click();
  }
});
