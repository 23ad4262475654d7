// A finger that rests opens the menu, as the right button of a mouse does: not every browser tells that as `contextmenu`.
const HELD_MS = 550, STILL = 8, QUIET_MS = 1200;

// Calls `held` with the event of a finger that has rested on the element; whatever the browser makes of that is kept away.
// Returns what ends that.
export const onHold = (element, held) => {
  let timer = 0, from = null, told = 0, by = null;
  const stop = () => { clearTimeout(timer); from = null; };
  const listeners = {
    pointerdown: event => {
      if (event.pointerType !== "touch" || !event.isPrimary) { stop(); return; }
      from = event;
      clearTimeout(timer);
      timer = setTimeout(() => { told = Date.now(); by = event.pointerId; const begun = from; from = null; held(begun); }, HELD_MS);
    },
    pointermove: event => { if (from && event.pointerId === from.pointerId && Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) > STILL) stop(); },
    pointerup: event => { stop(); if (event.pointerId === by) { told = Date.now(); by = null; } },
    pointercancel: stop,
  };
  const after = event => { if (Date.now() - told < QUIET_MS) { event.preventDefault(); event.stopPropagation(); } };
  const early = event => { if (from) { by = from.pointerId; stop(); told = Date.now(); } else after(event); };  // the browser was quicker: its event goes on
  for (const [name, listener] of Object.entries(listeners)) element.addEventListener(name, listener);
  element.addEventListener("click", after, true);
  element.addEventListener("contextmenu", early, true);
  return () => {
    stop();
    for (const [name, listener] of Object.entries(listeners)) element.removeEventListener(name, listener);
    element.removeEventListener("click", after, true);
    element.removeEventListener("contextmenu", early, true);
  };
};
