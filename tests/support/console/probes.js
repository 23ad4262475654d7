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
