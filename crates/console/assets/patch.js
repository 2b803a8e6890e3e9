// Makes a part of the page like a newer rendering of it, changing only what differs: focus, selection and open details stay.

export function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  // Charts and logs keep themselves up to date.
  if (old.hasAttribute("data-keep")) return;
  attributes(old, fresh);
  children(old, fresh);
}

function attributes(old, fresh) {
  // What a visitor opened, scripts uncovered or a browser keeps itself is not the server's to say.
  const ours = (name) => ["open", "hidden", "aria-pressed"].includes(name);
  for (const { name } of [...old.attributes]) {
    if (!ours(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!ours(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function children(old, fresh) {
  const known = new Map();
  for (const child of old.children) if (child.id) known.set(child.id, child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const same = wanted.id && known.get(wanted.id);
    if (same) {
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      patch(same, wanted);
    } else if (at && !(at.id && at.id !== wanted.id) && !wanted.id) {
      const next = at.nextSibling;
      patch(at, wanted);
      at = next;
    } else {
      old.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
