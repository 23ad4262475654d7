// The strip of time at the lower edge: how the whole did over what is kept, what happened when, and the moment that the page
// shows. Dragging it sets map, table and charts to a moment.
import {html, useEffect, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {METRICS, measureText, spanText, timeText} from "../core/format.js";
import {useTheme} from "../core/frame.js";

const AGAIN_MS = 5000, SOON_MS = 1000, PAGE = 20, FRAME_S = .25, AHEAD = 40;

export const Strip = ({app}) => {
  const lab = useStore(app.live, l => l.lab), measure = useStore(app.address, a => a.measure), moment = useStore(app.address, a => a.moment);
  const off = useStore(app.address, a => a.off), events = useStore(app.live, l => l.events);
  const canvas = useRef(null), [total, setTotal] = useState(null), theme = useTheme(), [width, setWidth] = useState(0);
  const [playing, setPlaying] = useState(false), [chosen, setChosen] = useState(null);

  useEffect(() => {
    let stopped = false, timer = 0;
    const networks = lab.networks.map(one => one.name).filter(name => !off.includes(name));
    const load = async () => {
      let found = null;
      try {
        const chosen = off.length ? `&network=${networks.map(encodeURIComponent).join(",")}` : "";
        found = await app.get(`./history/total?metrics=${measure}&points=600${chosen}`);
        if (!stopped) setTotal(found);
      } catch { /* the next time */ }
      if (!stopped && lab.live) timer = setTimeout(load, found && !keptOf(lab, found) ? SOON_MS : AGAIN_MS);
    };
    load();
    return () => { stopped = true; clearTimeout(timer); };
  }, [lab, measure, off]);

  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    watch.observe(canvas.current);
    return () => watch.disconnect();
  }, []);

  const kept = keptOf(lab, total), span = kept || [Date.now() / 1000 - 900, Date.now() / 1000], values = (total && total.series[measure] && total.series[measure][0]) || [];
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, {total, values, span, moment, events: (total && total.events) || events});
  }, [total, span[0], span[1], moment, theme, width, events]);

  const timeAt = event => {
    const box = canvas.current.getBoundingClientRect();
    return span[0] + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (span[1] - span[0]);
  };
  const set = seconds => app.at(!kept || (lab.live && seconds >= span[1] - .3) ? null : Math.min(span[1], Math.max(span[0], seconds)));
  const down = event => { if (event.button === 0) { event.currentTarget.setPointerCapture(event.pointerId); setPlaying(false); set(timeAt(event)); } };
  const drag = event => { if (event.buttons & 1) set(timeAt(event)); };
  const now = moment === null ? span[1] : moment, length = span[1] - span[0], step = Math.max(lab.live ? 1 : 0, length / 400);
  const speeds = speedsOf(lab, length), {speed} = speeds.find(one => one.title === chosen) || speeds.find(one => one.first);
  const keys = event => {
    const to = {ArrowLeft: now - step, ArrowRight: now + step, PageUp: now + step * PAGE, PageDown: now - step * PAGE, Home: span[0], End: span[1] + 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    set(to);
  };

  useEffect(() => {
    if (!playing) return undefined;
    if (!kept) { setPlaying(false); return undefined; }
    let at = app.address.get().moment === null || app.address.get().moment >= span[1] - step ? span[0] : app.address.get().moment, stopped = false;
    const ahead = async () => {
      const times = Array.from({length: AHEAD}, (_, i) => app.rounded(at + i * FRAME_S * speed)).filter(one => one <= span[1]);
      const wanted = times.filter(one => !app.moments.has(one));
      if (wanted.length > times.length / 2) await app.fetchMoments(wanted).catch(() => {});
    };
    const tick = async () => {
      await ahead();
      if (stopped) return;
      app.at(Math.min(at, span[1]));
      if (at >= span[1]) { setPlaying(false); if (lab.live) app.at(null); return; }
      at = app.rounded(at + FRAME_S * speed);
      timer = setTimeout(tick, FRAME_S * 1000);
    };
    let timer = setTimeout(tick, 0);
    return () => { stopped = true; clearTimeout(timer); };
  }, [playing, speed, lab]);
  useEffect(() => {
    const ends = [app.key({key: " ", title: "Play from here, or stop", run: () => setPlaying(one => !one), when: event => event.target === document.body || event.target.id === "main"}),
      app.key({key: "[", title: "A little earlier", run: () => set((app.address.get().moment ?? span[1]) - step * 2)}),
      app.key({key: "]", title: "A little later", run: () => set((app.address.get().moment ?? span[1]) + step * 2)})];
    return () => ends.forEach(end => end());
  }, [span[0], span[1], lab]);

  const live = lab.live && moment === null, words = total && values.length ? valueAt(total.t, values, now) : null;
  return html`<footer class="strip" aria-label="Time">
    <div class="strip-words"><b>${live ? "Now" : timeText(now, lab.clock)}</b>
      <span class="soft">${live ? timeText(now, lab.clock) : lab.live ? `${spanText(span[1] - now)} ago` : `of ${timeText(span[1], lab.clock)}`}</span></div>
    <button type="button" class="button icon" aria-pressed=${String(playing)} aria-label=${playing ? "Stop" : "Play"} title=${playing ? "Stop (Space)" : "Play (Space)"} onClick=${() => setPlaying(!playing)}>${playing ? "❚❚" : "▶"}</button>
    <select aria-label="Speed of playing" value=${speeds.find(one => one.speed === speed).title} onChange=${event => setChosen(event.target.value)}>${speeds.map(one => html`<option key=${one.title} value=${one.title}>${one.title}</option>`)}</select>
    <div class="strip-line"><canvas ref=${canvas} role="slider" tabindex="0" aria-label="Moment that is shown" aria-valuemin=${app.rounded(span[0])} aria-valuemax=${app.rounded(span[1])} aria-valuenow=${app.rounded(now)}
      aria-valuetext=${live ? "now" : timeText(now, lab.clock)} onPointerDown=${down} onPointerMove=${drag} onKeyDown=${keys}></canvas>
      <span class="strip-title">${METRICS[measure].title} of ${["losses", "errors"].includes(measure) ? "all ports" : "the highest port"}${words === null ? "" : `: ${measureText(measure, words)}`}</span></div>
    <button type="button" class="button" aria-pressed=${String(live)} disabled=${!lab.live} title="Live (L)" onClick=${() => { setPlaying(false); app.at(null); }}>${lab.live ? "Live" : "Record"}</button>
  </footer>`;
};

const times = one => ({title: `${one}×`, speed: one, first: one === 1});
// How fast time may be played: as it was, or faster or slower; a run too short for that (a simulated one has microseconds), as long
// as one can look at it.
const speedsOf = (lab, length) => lab.live ? [1, 10, 60].map(times) : length >= 2 ? [.1, .25, 1, 4].map(times)
  : [60, 20, 5].map(seconds => ({title: `in ${seconds} s`, speed: (length || 1) / seconds, first: seconds === 20}));
// From when to when moments are kept; null for a console that was opened a moment ago: there is nothing to go back to.
const keptOf = (lab, total) => (total && total.span && total.span[1] > total.span[0] ? total.span : lab.span || null);

const valueAt = (times, values, seconds) => {
  let at = times.length - 1;
  while (at > 0 && times[at] > seconds) at -= 1;
  return values[at] === undefined || values[at] === null ? null : values[at];
};

const draw = (canvas, {total, values, span, moment, events}) => {
  const ratio = devicePixelRatio || 1, {clientWidth: width, clientHeight: height} = canvas;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const paint = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
  paint.scale(ratio, ratio);
  const x = seconds => (seconds - span[0]) / (span[1] - span[0]) * width, top = 16, room = height - top - 1;
  const known = values.filter(one => one !== null), most = Math.max(1, ...known);
  if (known.length) {
    paint.beginPath();
    let open = false;
    total.t.forEach((seconds, at) => {
      if (values[at] === null) { if (open) paint.lineTo(x(total.t[at - 1]), height); open = false; return; }
      const y = top + room - values[at] / most * room;
      if (!open) { paint.moveTo(x(seconds), height); open = true; }
      paint.lineTo(x(seconds), y);
    });
    if (open) paint.lineTo(x(total.t[total.t.length - 1]), height);
    paint.fillStyle = colour("--accent");
    paint.globalAlpha = .28;
    paint.fill();
    paint.globalAlpha = 1;
  }
  paint.fillStyle = colour("--warn");
  for (const event of events) {
    if (event.t < span[0] || event.t > span[1]) continue;
    paint.beginPath();
    paint.moveTo(x(event.t) - 3, top - 6); paint.lineTo(x(event.t) + 3, top - 6); paint.lineTo(x(event.t), top);
    paint.fill();
  }
  const at = moment === null ? width - 1 : x(moment);
  paint.fillStyle = colour("--accent");
  paint.fillRect(Math.round(at) - 1, 4, 2, height - 4);
  paint.beginPath();
  paint.arc(at, 6, 5, 0, Math.PI * 2);
  paint.fill();
};
