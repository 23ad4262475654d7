// What one does with the picture: follow a node's links, find, open host groups, walk by keyboard, zoom.
// Columns of the data: node [name, tier, tray, state, pod, segment, rails, labels];
// link [node a, interface a, node b, interface b, rail, properties, Mbit/s]; where there are several networks both end with
// the number of theirs, -1 for a host.
(() => {
  "use strict";
  const lab = JSON.parse(document.getElementById("lab").textContent);
  const svg = document.getElementById("picture"), scroll = document.getElementById("scroll");
  const overlay = document.getElementById("overlay"), search = document.getElementById("search");
  const overview = document.getElementById("overview"), detail = document.getElementById("detail");
  const NAME = 0, TIER = 1, TRAY = 2, STATE = 3, POD = 4, SEGMENT = 5, RAILS = 6, LABELS = 7, NET = 8;
  const HOST = 3;
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const drawn = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const colour = rail => rail ? `q${(rail - 1) % 8 + 1}` : "";
  const tint = (link, rail = link[4]) => link[7] ? "net" + link[7] : colour(rail);

  // --- layers: what is unchecked the style hides (see page.css); here it is left out of all else
  const layers = [...document.querySelectorAll(".layer input")];
  const off = number => layers.some(layer => Number(layer.value) === number && !layer.checked);
  const unseen = node => layers.length > 0 && off(lab.nodes[node][NET]);

  // --- indexes
  const linksOf = lab.nodes.map(() => []);
  lab.links.forEach((link, i) => { linksOf[link[0]].push(i); linksOf[link[2]].push(i); });
  const boxes = new Map();
  for (const element of svg.querySelectorAll(".n")) boxes.set(Number(element.dataset.n), element);
  const lines = new Map();
  for (const line of svg.querySelectorAll(".lines .k")) {
    for (const end of [line.dataset.a, line.dataset.b]) {
      if (!lines.has(end)) lines.set(end, []);
      lines.get(end).push(line);
    }
  }
  const joined = new Set();
  for (const line of svg.querySelectorAll(".lines .k")) joined.add(line.dataset.a + "|" + line.dataset.b);
  const trays = [...svg.querySelectorAll(".tray")];

  // --- following links
  let pinned = null, shown = null;
  const clear = () => {
    svg.classList.remove("focus");
    for (const element of svg.querySelectorAll(".on, .pinned")) element.classList.remove("on", "pinned");
    for (const tray of trays) tray.style.removeProperty("--c");
    overlay.replaceChildren();
  };
  const place = element => {
    const box = element.querySelector(".c").getBBox();
    let x = 0, y = 0;
    for (let at = element; at !== svg; at = at.parentNode) {
      const move = at.transform && at.transform.baseVal.length ? at.transform.baseVal[0].matrix : null;
      if (move) { x += move.e; y += move.f; }
    }
    return {x: x + box.width / 2, top: y, bottom: y + box.height};
  };
  const follow = node => {
    svg.classList.add("focus");
    const self = boxes.get(node), inTray = lab.nodes[node][TRAY] >= 0;
    self.classList.add("on");
    for (const line of lines.get(String(node)) || []) {
      line.classList.add("on");
      if (line.classList.contains("under")) overlay.append(line.cloneNode());  // it passes behind boxes
    }
    const here = place(self), across = new Map();
    for (const index of linksOf[node]) {
      const link = lab.links[index], other = link[0] === node ? link[2] : link[0];
      if (off(link[7])) continue;
      boxes.get(other).classList.add("on");
      const tray = lab.nodes[other][TRAY];
      if (tray >= 0) trays[tray].classList.add("on");
      if (inTray) trays[lab.nodes[node][TRAY]].classList.add("on");
      if (tray >= 0 && !inTray) continue;
      if (joined.has(node + "|" + other) || joined.has(other + "|" + node)) continue;
      if (!across.has(other)) across.set(other, []);
      across.get(other).push(link);
    }
    for (const [other, links] of across) {
      const there = place(boxes.get(other)), below = here.top > there.top;
      const [low, high] = below ? [here, there] : [there, here];
      const own = lab.nodes[below ? node : other][RAILS];
      links.forEach((link, position) => {
        const shift = (position - (links.length - 1) / 2) * Math.min(4, 60 / links.length);
        const middle = (high.bottom + low.top) / 2, x1 = high.x + shift, x2 = low.x + shift;
        const hue = tint(link, link[4] || (own.length === 1 ? own[0] : 0));
        overlay.append(drawn("path", {class: `k ${hue}`, d: `M${x1} ${high.bottom}C${x1} ${middle} ${x2} ${middle} ${x2} ${low.top}`}));
      });
    }
  };
  const focusRail = rail => {
    svg.classList.add("focus");
    for (const element of svg.querySelectorAll(".r" + rail)) {
      element.classList.add("on");
      if (!element.classList.contains("cell")) continue;
      const tray = element.closest(".tray");
      tray.classList.add("on");
      tray.style.setProperty("--c", `var(--${colour(Number(rail))})`);
    }
  };

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
    clear();
    if (node === null) {
      overview.hidden = false; detail.hidden = true;
    } else {
      follow(node); describe(node);
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
    else { show(null); if (rail) focusRail(rail); else if (search.value) find(); }
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
  const nodeAt = target => { const element = target.closest && target.closest(".n"); return element ? Number(element.dataset.n) : null; };
  svg.addEventListener("pointerover", event => {
    const node = nodeAt(event.target);
    if (pinned === null && event.pointerType === "mouse") { if (node !== null) show(node); else if (shown !== null) settle(); }
  });
  svg.addEventListener("pointerleave", () => { if (pinned === null && shown !== null) settle(); });
  svg.addEventListener("click", event => {
    const toggle = event.target.closest(".toggle"), node = nodeAt(event.target);
    if (toggle) setTray(toggle.parentNode, !isOpen(toggle.parentNode));
    else if (node !== null) { walk(boxes.get(node)); pin(node); }
    else { pinned = null; release(); settle(); }
  });

  // --- host groups
  const isOpen = tray => tray.classList.contains("open");
  const number = (element, key) => Number(element.dataset[key]);
  for (const cell of svg.querySelectorAll(".cell")) cell.dataset.closed = cell.getAttribute("transform");
  const setTray = (tray, open) => {
    tray.classList.toggle("open", open);
    tray.querySelector(".toggle").setAttribute("aria-expanded", String(open));
    tray.querySelector(".arrow").setAttribute("transform", open ? "rotate(90 16.5 13.5)" : "");
    tray.querySelector(".c").setAttribute("height", open ? tray.dataset.open : tray.dataset.h);
    const columns = number(tray, "ocolumns"), width = 64, height = 34, gap = 6;
    const left = (number(tray, "w") - columns * (width + gap) + gap) / 2;
    [...tray.querySelectorAll(".cell")].forEach((cell, position) => {
      cell.classList.toggle("open", open);
      const rect = cell.querySelector(".c");
      for (const extra of [...cell.children]) if (extra !== rect) extra.remove();
      if (!open) {
        cell.setAttribute("transform", cell.dataset.closed);
        rect.setAttribute("width", 15); rect.setAttribute("height", 11);
        return;
      }
      const x = left + position % columns * (width + gap), y = 28 + Math.floor(position / columns) * (height + gap);
      cell.setAttribute("transform", `translate(${x} ${y})`);
      rect.setAttribute("width", width); rect.setAttribute("height", height);
      const data = lab.nodes[Number(cell.dataset.n)];
      const label = drawn("text", {class: "l", x: width / 2, y: 22});
      const short = data[POD] ? data[NAME].split("-").pop() : data[NAME];
      label.textContent = short.length > 9 ? short.slice(0, 4) + "…" + short.slice(-4) : short;
      cell.append(label);
      const step = Math.min(7, 58 / Math.max(1, data[RAILS].length));
      data[RAILS].forEach((one, index) => cell.append(drawn("rect", {
        class: `m ${colour(one)}${layers.length ? " net0" : ""}`, x: width / 2 + (index - data[RAILS].length / 2) * step + step * .12, y: -2.5, width: step * .76, height: 5, rx: 1.2})));
    });
    arrange();
    if (shown !== null) show(shown);
  };
  // Networks below the hosts move down as host groups open, together as others are left out, and up as a shelf is empty.
  const bands = [...svg.querySelectorAll(".band")], lifted = {}, shelfGap = 30;
  const net = band => number(band, "net"), shelf = element => Number(element.dataset.shelf || 0);
  const move = (element, x, y) => element.setAttribute("transform", `translate(${x} ${y})`);
  const arrangeBelow = (grownAt, most) => {
    const moved = {};
    let lift = 0;
    for (const row of new Set(bands.map(shelf).sort())) {
      const all = bands.filter(band => shelf(band) === row), shown = all.filter(band => !off(net(band)));
      for (const label of svg.querySelectorAll(`.low > [data-shelf="${row}"]:is(.row, .rowd)`)) {
        label.style.display = shown.length ? "" : "none";
        move(label, 0, -lift);
      }
      for (const band of all) lifted[net(band)] = lift;
      if (!shown.length) { lift += Number(all[0].getAttribute("height")) + shelfGap; continue; }
      const gap = all.length > 1 ? number(all[1], "x") - number(all[0], "x") - number(all[0], "w") : 0;
      const first = all[0], last = all[all.length - 1];
      let used = gap * (shown.length - 1);
      for (const band of shown) used += number(band, "w");
      let x = (number(first, "x") + number(last, "x") + number(last, "w") - used) / 2;
      for (const band of shown) {
        moved[net(band)] = x - number(band, "x");
        for (const part of svg.querySelectorAll(".low .net" + net(band))) move(part, moved[net(band)], -lift);
        x += number(band, "w") + gap;
      }
    }
    for (const low of svg.querySelectorAll(".low")) move(low, 0, most);
    for (const drop of svg.querySelectorAll(".drop")) {
      const x1 = number(drop, "x1"), x2 = number(drop, "x2") + (moved[drop.dataset.net] || 0);
      const y1 = number(drop, "y1") + grownAt(drop), y2 = number(drop, "y2") + most - (lifted[drop.dataset.net] || 0);
      const middle = (y1 + y2) / 2;
      drop.setAttribute("d", `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`);
    }
    crop(most);
  };
  // Segments stand on shelves: as host groups open, what is below moves down by what the shelves above have grown.
  const standing = [...svg.querySelectorAll("[data-shelf]")].filter(one => !one.closest(".low") && !one.matches(".tray, .frame"));
  for (const one of standing) {
    const at = one.transform.baseVal.length ? one.transform.baseVal[0].matrix : {e: 0, f: 0};
    one.dataset.at = `${at.e} ${at.f}`;
  }
  const ends = line => [Number(line.dataset.u || 0), Number(line.dataset.v || 0)];
  const between = [...svg.querySelectorAll(".lines .k[data-u]:not(.drop)")].filter(line => !line.closest(".low"));
  for (const line of between) line.dataset.d = line.getAttribute("d");
  const arrange = () => {
    const growth = new Map(), grown = [], before = new Map();
    for (const tray of trays) {
      before.set(tray, growth.get(tray.dataset.s) || 0);
      const after = before.get(tray) + (isOpen(tray) ? number(tray, "open") - number(tray, "h") : 0);
      growth.set(tray.dataset.s, after);
      grown[shelf(tray)] = Math.max(grown[shelf(tray)] || 0, after);
    }
    const upTo = last => grown.slice(0, last).reduce((sum, one) => sum + (one || 0), 0), most = upTo(grown.length);
    for (const tray of trays) move(tray, tray.transform.baseVal[0].matrix.e, number(tray, "y") + before.get(tray) + upTo(shelf(tray)));
    for (const frame of svg.querySelectorAll(".frame")) {
      const first = shelf(frame);
      move(frame, 0, upTo(first));
      frame.setAttribute("height", number(frame, "h") + upTo(first + number(frame, "span")) - upTo(first));
    }
    for (const one of standing) {
      const [x, y] = one.dataset.at.split(" ").map(Number);
      move(one, x, y + upTo(shelf(one)));
    }
    for (const line of between) {
      const at = line.dataset.d.match(/-?[\d.]+/g).map(Number), [upper, lower] = ends(line);
      const y1 = at[1] + upTo(upper), x2 = at[at.length - 2], y2 = at[at.length - 1] + upTo(lower), middle = (y1 + y2) / 2;
      line.setAttribute("d", `M${at[0]} ${y1}` + (line.dataset.d.includes("L") ? `L${x2} ${y2}` : `C${at[0]} ${middle} ${x2} ${middle} ${x2} ${y2}`));
    }
    const grownAt = drop => upTo(ends(drop)[1]) + (drop.dataset.b.startsWith("#") ? growth.get(trays[drop.dataset.b.slice(1)].dataset.s) : 0);
    arrangeBelow(grownAt, most);
    resize();
    if (!trays.length) return;
    const button = document.getElementById("expand"), all = trays.every(isOpen);
    button.textContent = all ? "Hide hosts" : "Show hosts";
    button.setAttribute("aria-pressed", String(all));
  };
  const setTrays = open => trays.forEach(tray => setTray(tray, open));
  const expand = document.getElementById("expand");
  if (expand) expand.addEventListener("click", () => setTrays(!trays.every(isOpen)));

  // --- zoom
  const size = {width: number(svg, "w"), height: number(svg, "h"), top: 0};
  let zoom = 1, untouched = true;
  const resize = () => {
    svg.setAttribute("viewBox", `0 ${size.top} ${size.width} ${size.height}`);
    svg.setAttribute("width", size.width * zoom);
    svg.setAttribute("height", size.height * zoom);
  };
  const crop = grown => {  // leave out, at the top and at the bottom, the room of networks that are not shown
    let bottom = number(svg, "h");
    if (layers.length) {
      size.top = layers.some(layer => layer.value === "0" && layer.checked) ? 0 : number(svg, "hosts") - 24;
      const ends = [...svg.querySelectorAll(".band")].filter(band => !off(net(band))).map(band => number(band, "end") - (lifted[net(band)] || 0));
      bottom = Math.max(number(svg, "rest"), ...ends);
    }
    size.height = bottom + grown - size.top;
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
      arrange();
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
    clear();
    if (!words) { settle(); return; }
    svg.classList.add("focus");
    lab.nodes.forEach((data, node) => {
      if (!data[NAME].toLowerCase().includes(words) || unseen(node)) return;
      boxes.get(node).classList.add("on");
      if (data[TRAY] >= 0) trays[data[TRAY]].classList.add("on");
    });
  };
  search.addEventListener("input", () => { pinned = null; shown = null; release(); overview.hidden = false; detail.hidden = true; if (search.value) find(); else settle(); });
  search.addEventListener("keydown", event => {
    if (event.key !== "Enter") return;
    const words = search.value.trim().toLowerCase();
    if (!words) return;
    const names = lab.nodes.map(data => data[NAME].toLowerCase());
    let node = names.indexOf(words);
    if (node < 0 || unseen(node)) node = names.findIndex((name, at) => name.includes(words) && !unseen(at));
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
    const from = place(current), centre = (from.top + from.bottom) / 2;
    let best = null, least = Infinity;
    for (const element of boxes.values()) {
      if (element === current || unseen(Number(element.dataset.n))) continue;
      const to = place(element), dx = to.x - from.x, dy = (to.top + to.bottom) / 2 - centre;
      const along = x ? dx * x : dy * y, aside = Math.abs(x ? dy : dx);
      if (along < 1 || (x && aside > 8)) continue;
      const cost = along + aside * (x ? 1 : .6);
      if (cost < least) { least = cost; best = element; }
    }
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
    if ((event.key === "Enter" || event.key === " ") && toggle) { event.preventDefault(); setTray(toggle.parentNode, !isOpen(toggle.parentNode)); }
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
  if (layers.length) arrange();
  fit(2);  // all of it is there at first, however small its labels: one zooms into what one has seen
  if (wanted.get("open") === "all" && expand) setTrays(true);
  const chip = chips.find(one => one.dataset.rail === wanted.get("rail"));
  if (chip) chip.click();
  const named = lab.nodes.findIndex(data => data[NAME] === wanted.get("node"));
  if (named >= 0) pin(named);
})();
