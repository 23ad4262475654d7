// What benchmarks run in a page of the console: they count frames and long tasks, and move the map as a hand does.
window.longTasks = [];
new PerformanceObserver(list => window.longTasks.push(...list.getEntries().map(one => one.duration))).observe({type: "longtask"});

window.marks = () => Object.fromEntries(["console-picture", "console-ready"].map(name => [name, performance.getEntriesByName(name)[0].startTime / 1000]));

// Frames per second for which the browser asks the page during so many ms.
const countFrames = ms => new Promise(done => {
  const begin = performance.now(), times = [];
  const frame = now => {
    times.push(now);
    if (now - begin < ms) requestAnimationFrame(frame);
    else done(1000 * (times.length - 1) / (times[times.length - 1] - times[0]));
  };
  requestAnimationFrame(frame);
});

// Pans or zooms the map for so many ms, an event for each frame, as a mouse gives them; returns the frames per second.
window.gesture = async (kind, ms) => {
  const stage = document.querySelector(".stage"), box = stage.getBoundingClientRect(), begin = performance.now();
  const middle = {x: box.left + box.width / 2, y: box.top + box.height / 2};
  const place = t => ({clientX: middle.x + Math.sin(t / 300) * box.width / 3, clientY: middle.y + Math.cos(t / 420) * box.height / 4});
  const send = (type, more) => stage.dispatchEvent(new PointerEvent(type, {bubbles: true, pointerId: 1, pointerType: "mouse", button: 0, ...more}));
  if (kind === "pan") {
    stage.setPointerCapture = () => {};  // there is no real pointer to capture
    send("pointerdown", {buttons: 1, ...place(0)});
  }
  const moved = new Promise(done => {
    const frame = () => {
      const t = performance.now() - begin;
      if (kind === "pan") send("pointermove", {buttons: 1, ...place(t)});
      else stage.dispatchEvent(new WheelEvent("wheel", {bubbles: true, cancelable: true, deltaY: Math.sin(t / 500) * 40, clientX: middle.x, clientY: middle.y}));
      if (t < ms) requestAnimationFrame(frame);
      else { if (kind === "pan") send("pointerup", place(t)); done(); }
    };
    requestAnimationFrame(frame);
  });
  const frames = await countFrames(ms);
  await moved;
  return frames;
};

const afterFrame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));

// --- what tests of the map look at
// The colours that the canvas has, as #rrggbb without the #: those of more than a few opaque pixels.
window.painted = () => {
  const canvas = document.querySelector(".world > canvas"), {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), seen = new Map();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] <= 230) continue;
    const key = [data[at], data[at + 1], data[at + 2]].map(one => one.toString(16).padStart(2, "0")).join("");
    seen.set(key, (seen.get(key) || 0) + 1);
  }
  return [...seen].filter(([, count]) => count > 20).map(([key]) => key);
};

// Puts a value of a measure in the page's hand for all ports, instead of what the stream says; waits until it is drawn.
window.setAll = (measure, value) => {
  const {shown} = consoleApp.live.get();
  consoleApp.stream.close();
  consoleApp.live.set({shown: {...shown, columns: {...shown.columns, [measure]: shown.columns[measure].map(() => value)}}});
  return afterFrame();
};

const matrixNow = () => new DOMMatrix(getComputedStyle(document.querySelector(".world").firstChild).transform);
window.transformNow = () => { const matrix = matrixNow(); return [matrix.a, matrix.e, matrix.f]; };

// Waits until the map rests, without the band that comes and goes with the load of the machine: all below it would move.
window.rest = async () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(".trust-band { display: none }");
  document.adoptedStyleSheets = [sheet];
  for (let before = ""; ;) {
    await afterFrame();
    await afterFrame();
    const view = document.querySelector(".world"), now = view && view.firstChild ? transformNow().join() : "";
    if (now && now === before && !view.firstChild.style.willChange) return;
    before = now;
  }
};

// A point of a line between switches, in pixels of the stage.
window.pointOnLine = () => {
  const line = document.querySelector(".world .lines .k.mesh"), [x1, y1, x2, y2] = line.getAttribute("d").match(/-?[\d.]+/g).map(Number);
  const point = matrixNow().transformPoint({x: x1 + (x2 - x1) * .2, y: y1 + (y2 - y1) * .2});
  return [point.x, point.y];
};

window.seenNodes = () => [...document.querySelectorAll(".world .n")].filter(node => node.getClientRects().length).length;
window.selection = () => consoleApp.address.get().selection;
window.tableRows = () => [...document.querySelectorAll(".rows tbody tr")].map(row => [...row.cells].map(cell => cell.innerText.trim()).join("\t"));


// --- how soon something is seen
// The time (ms since the epoch) of the first frame that shows a link as down (0) or up (1).
window.frameOfLink = (place, word) => new Promise(done => {
  const look = () => {
    const {lab, state} = consoleApp.live.get();
    if (state.links[lab.portNumber.get(place)] !== word) return;
    end();
    afterFrame().then(() => done(Date.now()));
  };
  const end = consoleApp.live.on(look);
  look();
});

// From now on `echoes` has, for each key, the ms from its event to the frame after the text has changed.
window.watchEcho = where => {
  window.echoes = [];
  let pressed = null;
  addEventListener("keydown", event => { pressed = event.timeStamp; }, true);
  new MutationObserver(() => {
    if (pressed === null) return;
    const begin = pressed;
    pressed = null;
    afterFrame().then(() => window.echoes.push(performance.now() - begin));
  }).observe(document.querySelector(where), {childList: true, subtree: true, characterData: true});
};
