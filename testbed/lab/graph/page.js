// What one does with the picture in a page of its own: follow, find, open host groups, zoom, read the side panel.
// `picture.js` stands before it in the same script, and has what is not the page's: it is the console's, too.
(() => {
  "use strict";
  const lab = JSON.parse(document.getElementById("lab").textContent);
  const svg = document.getElementById("picture"), scroll = document.getElementById("scroll");
  const search = document.getElementById("search");
  const overview = document.getElementById("overview"), detail = document.getElementById("detail");
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // --- layers: what is unchecked the style hides (see page.css); here it is left out of all else
  const layers = [...document.querySelectorAll(".layer input")];
  const off = number => layers.some(layer => Number(layer.value) === number && !layer.checked);
  const picture = new Picture(svg, lab, {isOff: off, arranged: () => arranged()});
  const {boxes, trays, linksOf} = picture, unseen = node => picture.unseen(node);

  // --- following links
  let pinned = null, shown = null;

  // --- the side panel
  const rateText = mbits => {
    for (const [unit, size] of [["Tbit/s", 1e6], ["Gbit/s", 1e3]]) if (mbits >= size) return +(mbits / size).toFixed(2) + " " + unit;
    return mbits + " Mbit/s";
  };
  const span = names => names.length === 1 ? names[0] : `${names[0]} … ${names[names.length - 1]}`;
  const kind = data => (lab.named || {})[data[NAME]] ? lab.named[data[NAME]] : data[NET] > 0 && data[TIER] === 2 ? lab.leaf : lab.tiers[data[TIER]];
  const describe = node => {
    const data = lab.nodes[node], groups = new Map(), totals = {up: 0, down: 0, level: 0}, ports = [];
    for (const index of linksOf[node]) {
      const link = lab.links[index], first = link[0] === node, other = lab.nodes[first ? link[2] : link[0]];
      if (off(link[7]) || unseen(link[0]) || unseen(link[2])) continue;
      const way = other[TIER] < data[TIER] ? "up" : other[TIER] > data[TIER] ? "down" : "level";
      totals[way] += link[6];
      const port = lab.interfaces[first ? link[1] : link[3]], far = lab.interfaces[first ? link[3] : link[1]];
      ports.push([port, `${other[NAME]}:${far}`, tint(link)]);
      const key = [way, kind(other), data[TIER] === HOST ? 0 : link[4], link[5], link[7]].join("|");
      if (!groups.has(key)) groups.set(key, {way, what: kind(other), link, properties: lab.properties[link[5]], ports: [], others: []});
      const group = groups.get(key);
      group.ports.push(port);
      if (!group.others.includes(other[NAME])) group.others.push(other[NAME]);
    }
    const parts = [make("h2", {}, data[NAME])];
    const where = [kind(data)];
    if (data[NET] >= 0) where.push(lab.networks[data[NET]]);
    if (data[POD]) where.push("pod " + data[POD]);
    if (data[SEGMENT]) where.push("segment " + data[SEGMENT]);
    parts.push(make("p", {class: "soft"}, where.join(" · ")));
    const facts = make("dl");
    const fact = (name, value) => facts.append(make("dt", {}, name), make("dd", {}, value));
    if (data[STATE]) fact("state", data[STATE]);
    fact("ports", String(ports.length));
    if (data[RAILS].length) fact((lab.rail || "rail") + (data[RAILS].length > 1 ? "s" : ""), data[RAILS].join(", "));
    if (totals.up) fact("up", rateText(totals.up));
    if (totals.down) fact("down", rateText(totals.down));
    if (totals.level) fact("across", rateText(totals.level));
    if (data[TIER] !== HOST && totals.up && totals.down) fact("down : up", +(totals.down / totals.up).toFixed(2) + " : 1");
    for (const [key, value] of Object.entries(data[LABELS])) fact(key, value);
    parts.push(facts);
    for (const group of groups.values()) {
      const plural = group.others.length === 1 ? group.what : group.what.replace(/switch$/, "switche") + "s";
      const title = make("h3", {});
      if (group.link[7] || group.link[4] && data[TIER] !== HOST) title.append(make("i", {class: "dot " + tint(group.link)}));
      title.append(`${group.ports.length} ${group.ports.length === 1 ? "link" : "links"} ${group.way === "level" ? "across" : group.way} to ${group.others.length} ${plural}`);
      parts.push(title, make("p", {}, span(group.others)));
      parts.push(make("p", {class: "soft"}, `${span(group.ports)} · ${group.properties.split("|").join(" · ")}`));
    }
    if (ports.length) {
      const body = make("tbody");
      for (const [port, far, hue] of ports) {
        const cell = make("td");
        if (hue) cell.append(make("i", {class: "dot " + hue}));
        cell.append(port);
        body.append(make("tr", {}, cell, make("td", {}, far)));
      }
      const list = make("details", {}, make("summary", {}, "Every port"), make("table", {class: "tiny"}, body));
      if (ports.length <= 16) list.open = true;
      parts.push(list);
    }
    detail.replaceChildren(...parts);
  };
  const show = node => {
    shown = node;
    picture.clear();
    if (node === null) {
      overview.hidden = false; detail.hidden = true;
    } else {
      picture.follow(node); describe(node);
      overview.hidden = true; detail.hidden = false;
      if (pinned === node) boxes.get(node).classList.add("pinned");
    }
  };
  const pin = node => { pinned = pinned === node ? null : node; release(); show(pinned); };

  // --- rails
  let rail = null;
  const chips = [...document.querySelectorAll(".chip")];
  const release = () => { rail = null; chips.forEach(chip => chip.setAttribute("aria-pressed", "false")); };
  const settle = () => {
    if (pinned !== null) show(pinned);
    else { show(null); if (rail) picture.followRail(rail); else if (search.value) find(); }
  };
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      const next = rail === chip.dataset.rail ? null : chip.dataset.rail;
      release(); pinned = null; rail = next;
      if (rail) chip.setAttribute("aria-pressed", "true");
      settle();
    });
  }

  // --- pointer
  svg.addEventListener("pointerover", event => {
    const node = nodeAt(event.target);
    if (pinned === null && event.pointerType === "mouse") { if (node !== null) show(node); else if (shown !== null) settle(); }
  });
  svg.addEventListener("pointerleave", () => { if (pinned === null && shown !== null) settle(); });
  svg.addEventListener("click", event => {
    const toggle = event.target.closest(".toggle"), node = nodeAt(event.target);
    if (toggle) setTray(toggle.parentNode, !picture.isOpen(toggle.parentNode));
    else if (node !== null) { walk(boxes.get(node)); pin(node); }
    else { pinned = null; release(); settle(); }
  });

  // --- host groups
  const setTray = (tray, open) => {
    picture.setTray(tray, open);
    if (shown !== null) show(shown);
  };
  const arranged = () => {
    resize();
    if (!trays.length) return;
    const button = document.getElementById("expand"), all = trays.every(tray => picture.isOpen(tray));
    button.textContent = all ? "Hide hosts" : "Show hosts";
    button.setAttribute("aria-pressed", String(all));
  };
  const setTrays = open => trays.forEach(tray => setTray(tray, open));
  const expand = document.getElementById("expand");
  if (expand) expand.addEventListener("click", () => setTrays(!trays.every(tray => picture.isOpen(tray))));

  // --- zoom
  const {size} = picture;
  let zoom = 1, untouched = true;
  const resize = () => {
    svg.setAttribute("viewBox", `0 ${size.top} ${size.width} ${size.height}`);
    svg.setAttribute("width", size.width * zoom);
    svg.setAttribute("height", size.height * zoom);
  };
  const setZoom = value => {
    const half = scroll.clientWidth / 2;
    const middle = (scroll.getBoundingClientRect().left + half - svg.getBoundingClientRect().left) / zoom;
    zoom = Math.min(3, Math.max(.1, value));
    untouched = false;
    resize();
    scroll.scrollLeft = middle * zoom - half;
  };
  // Where the page itself is scrolled (see page.css) the picture may be as high as it likes.
  const narrow = matchMedia("(max-width: 900px)");
  const fit = largest => {
    const high = narrow.matches ? largest : scroll.clientHeight / size.height;
    zoom = Math.min(scroll.clientWidth / size.width, high, largest);
    untouched = true;
    resize();
  };
  document.getElementById("in").addEventListener("click", () => setZoom(zoom * 1.25));
  document.getElementById("out").addEventListener("click", () => setZoom(zoom / 1.25));
  document.getElementById("fit").addEventListener("click", () => fit(2));
  for (const layer of layers) {
    layer.addEventListener("change", () => {
      if (pinned !== null && unseen(pinned)) pinned = null;
      if (unseen(Number(current.dataset.n))) enter([...boxes.values()].find(element => !unseen(Number(element.dataset.n))));
      picture.arrange();
      if (untouched) fit(2); else resize();
      settle();
    });
  }
  window.addEventListener("resize", () => { if (untouched) fit(2); });
  scroll.addEventListener("wheel", event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    setZoom(zoom * (event.deltaY < 0 ? 1.1 : 1 / 1.1));
  }, {passive: false});

  // --- finding
  const find = () => {
    const words = search.value.trim().toLowerCase();
    picture.clear();
    if (!words) { settle(); return; }
    picture.mark(data => data[NAME].toLowerCase().includes(words));
  };
  search.addEventListener("input", () => { pinned = null; shown = null; release(); overview.hidden = false; detail.hidden = true; if (search.value) find(); else settle(); });
  search.addEventListener("keydown", event => {
    if (event.key !== "Enter") return;
    const words = search.value.trim().toLowerCase(), node = words ? picture.find(words) : -1;
    if (node >= 0) { pinned = null; walk(boxes.get(node)); pin(node); }
  });

  // --- keyboard: one tab stop for all nodes, arrows walk between them
  let current = null;
  const enter = element => {
    if (current) current.setAttribute("tabindex", "-1");
    current = element;
    if (current) current.setAttribute("tabindex", "0");
  };
  const walk = element => {
    enter(element);
    current.focus({preventScroll: true});
    current.scrollIntoView({block: "nearest", inline: "nearest"});
  };
  const step = (x, y) => {
    const best = picture.next(current, x, y);
    if (best) walk(best);
  };
  svg.addEventListener("focusin", event => {
    const node = nodeAt(event.target);
    if (node !== null && pinned === null) show(node);
  });
  svg.addEventListener("focusout", () => { if (pinned === null && shown !== null) settle(); });
  const arrows = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  svg.addEventListener("keydown", event => {
    const toggle = event.target.closest(".toggle"), node = nodeAt(event.target);
    if ((event.key === "Enter" || event.key === " ") && toggle) { event.preventDefault(); setTray(toggle.parentNode, !picture.isOpen(toggle.parentNode)); }
    else if ((event.key === "Enter" || event.key === " ") && node !== null) { event.preventDefault(); pin(node); }
    else if (arrows[event.key] && node !== null) { event.preventDefault(); pinned = null; step(...arrows[event.key]); }
  });
  document.addEventListener("keydown", event => {
    if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); search.select(); }
    if (event.key === "Escape") { search.value = ""; pinned = null; release(); settle(); if (document.activeElement) document.activeElement.blur(); }
  });
  enter(svg.querySelector(".n"));

  // --- light and dark
  const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  document.getElementById("theme").addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; });

  // --- a view can be linked to: #theme=dark&open=all&node=p1-spine1&rail=3&networks=backend,storage
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (["light", "dark"].includes(wanted.get("theme"))) document.documentElement.dataset.theme = wanted.get("theme");
  if (wanted.has("networks")) {
    const shows = wanted.get("networks").split(",");
    for (const layer of layers) layer.checked = shows.includes(lab.networks[layer.value]);
  }
  if (layers.length) picture.arrange();
  fit(2);  // all of it is there at first, however small its labels: one zooms into what one has seen
  if (wanted.get("open") === "all" && expand) setTrays(true);
  const chip = chips.find(one => one.dataset.rail === wanted.get("rail"));
  if (chip) chip.click();
  const named = lab.nodes.findIndex(data => data[NAME] === wanted.get("node"));
  if (named >= 0) pin(named);
})();
