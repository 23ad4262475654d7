// The view "Time": what is selected, over what is kept, in one chart for each measure. A click sets the moment of the whole page.
import {html, useEffect, useMemo, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Empty, Failure, Segments, Spinner, useTurn} from "../core/ui.js";
import {METRICS, timeText} from "../core/format.js";
import {portsOf} from "../core/app.js";
import {useTheme} from "../core/frame.js";
import {worstPorts} from "../core/panel.js";

const MOST_SERIES = 8, AGAIN_MS = 30e3, APART_MS = 40;
let uPlot = null;  // is loaded with the first figures: most pages draw no chart
// Okabe and Ito's colours for who sees no red or green, and dashes besides.
const INKS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#5d3a9b", "#4d4d4d"],
  dark: ["#56b4e9", "#ff8c42", "#33c39a", "#e79cc5", "#f0e442", "#8fb8ff", "#b79cff", "#c8d0da"],
};
const DASHES = [[], [], [], [], [7, 3], [7, 3], [2, 3], [2, 3]];
const SHARES = new Set(["use", "marks", "pauses"]), TOPS = [10, 20, 50, 100, 200, 500, 1000];  // permille
const WHOLE = [1, 2, 5].flatMap(one => [0, 1, 2, 3, 4, 5, 6, 7].map(power => one * 10 ** power)).sort((one, other) => one - other);
const SPANS = [{value: "", title: "All"}, {value: "300", title: "5 min"}, {value: "60", title: "1 min"}];

const TimeView = ({app}) => {
  const lab = useStore(app.live, l => l.lab), selection = useStore(app.address, a => a.selection), measure = useStore(app.address, a => a.measure), moment = useStore(app.address, a => a.moment);
  const back = useStore(app.address, a => a.params.back) || "", off = useStore(app.address, a => a.off), has = useStore(app.live, l => l.shown !== null);
  const [found, setFound] = useState(null), [failed, setFailed] = useState(null), theme = useTheme(), turn = useTurn(failed);

  // The ports that are shown: what is selected, the highest first; nothing selected: the highest of all.
  const chosen = useMemo(() => {
    const {shown} = app.live.get(), columns = shown && shown.columns, all = portsOf(lab, selection);
    if (selection.length) {
      const column = columns && columns[measure];
      return {ports: column ? [...all].sort((one, other) => column[other] - column[one]).slice(0, MOST_SERIES) : all.slice(0, MOST_SERIES), of: all.length};
    }
    const worst = worstPorts(lab, columns, measure, off, MOST_SERIES);
    return {ports: worst.length ? worst : lab.ports.node.map((node, port) => port).slice(0, 4), of: lab.ports.node.length};
  }, [lab, selection, selection.length ? null : measure, off, has]);
  const {ports, of} = chosen;

  useEffect(() => {
    if (!ports.length) return undefined;
    let timer = 0;
    const stop = new AbortController();
    const load = async () => {
      try {
        const end = lab.live ? null : lab.span && lab.span[1], from = back ? `&from=${(end || app.live.get().t || Date.now() / 1000) - Number(back)}` : "";
        const drawing = import("../vendor/uplot-1.6.32/uPlot.esm.js");
        const answer = await app.get(`./history?ports=${ports.join(",")}&metrics=${lab.metrics.join(",")}&points=900${from}`, stop.signal);
        ({default: uPlot} = await drawing);
        setFound({ports, ...answer});
        setFailed(null);
      } catch (error) {
        if (error.name !== "AbortError") setFailed(error);
      }
      if (lab.live && !stop.signal.aborted) timer = setTimeout(load, AGAIN_MS);
    };
    load();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [lab, ports, back, turn]);

  if (selection.length && !ports.length) return html`<${Empty} title="Nothing to draw">What is selected has no ports that are measured.</${Empty}>`;
  if (failed) return html`<${Failure} error=${failed} />`;
  if (!found || found.ports !== ports) return html`<${Spinner} />`;
  const order = [measure, ...lab.metrics.filter(name => name !== measure)];
  return html`<div class="time">
    <div class="time-head"><ul class="series">${ports.map((port, at) => html`<li key=${port}><button type="button" onClick=${() => app.select([`port:${lab.portName(port)}`])}><svg width="20" height="8" aria-hidden="true"><path d="M0 4H20" fill="none" stroke=${INKS[theme][at]} stroke-width="2.4" stroke-dasharray=${DASHES[at].join(" ")} /></svg>${lab.portName(port)}</button></li>`)}
      ${of > ports.length && html`<li class="soft">${selection.length ? `the highest of ${of} ports` : "the highest of all: select something for its own"}</li>`}</ul>
      ${lab.live && html`<${Segments} label="How far back" value=${back} options=${SPANS} onChange=${value => app.setParam({back: value})} />`}</div>
    <div class="charts">${order.map((metric, at) => html`<${Chart} key=${`${metric} ${at === 0}`} app=${app} lab=${lab} metric=${metric} found=${found} ports=${ports} theme=${theme} moment=${moment} large=${at === 0} order=${at} back=${back} />`)}</div>
  </div>`;
};

const Chart = ({app, lab, metric, found, ports, theme, moment, large, back, order}) => {
  const place = useRef(null), chart = useRef(null), now = useRef({}), late = useRef(0);
  now.current = {moment, found};
  const data = useMemo(() => [[...found.t], ...ports.map((port, at) => [...((found.series[metric] || [])[at] || found.t.map(() => null))].map(value => value === null || value < 0 ? null : value))], [found, metric]);
  useEffect(() => {
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
    const axis = {stroke: colour("--soft"), grid: {stroke: colour("--edge"), width: 1}, ticks: {stroke: colour("--edge"), width: 1}, font: "11px system-ui, 'DejaVu Sans', sans-serif"};
    const size = () => ({width: Math.max(120, place.current.clientWidth), height: Math.max(80, place.current.clientHeight)});
    const mark = self => {
      const {moment: at, found: {events}} = now.current, {ctx, bbox} = self;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.fillStyle = colour("--warn");
      for (const event of events || []) {
        const x = self.valToPos(event.t, "x", true);
        ctx.globalAlpha = .35;
        ctx.fillRect(x, bbox.top, devicePixelRatio, bbox.height);
        ctx.globalAlpha = 1;
        ctx.fillRect(x - 2 * devicePixelRatio, bbox.top, 4 * devicePixelRatio, 4 * devicePixelRatio);
      }
      if (at !== null) {
        ctx.fillStyle = colour("--accent");
        ctx.fillRect(self.valToPos(at, "x", true) - devicePixelRatio, bbox.top, 2 * devicePixelRatio, bbox.height);
      }
      ctx.restore();
    };
    const clock = values => values.map(value => value === null ? "" : timeText(value, lab.clock));
    const bytes = metric === "queue";
    const self = new uPlot({
      ...size(), padding: [10, 26, 0, 0], legend: {show: false},
      cursor: {sync: {key: "console", setSeries: false}, drag: {x: true, y: false}, focus: {prox: 24}, points: {size: 6}},
      focus: {alpha: .25},
      scales: {x: {time: false}, y: {range: (_, low, high) => [0, (SHARES.has(metric) ? TOPS.find(top => top >= (high || 0)) || high : Math.max(high || 0, bytes ? 1000 : 1)) * 1.06]}},
      axes: [{...axis, values: (_, splits) => clock(splits), space: 90, size: 28}, {...axis, size: 64, ...(["losses", "errors"].includes(metric) ? {incrs: WHOLE} : {}), values: (_, splits) => splits.map(value => METRICS[metric].axis(value)), space: large ? 34 : 24}],
      series: [{}, ...ports.map((port, at) => ({label: lab.portName(port), stroke: INKS[theme][at], width: 1.8, dash: DASHES[at].length ? DASHES[at] : undefined, points: {show: false}, spanGaps: false}))],
      hooks: {
        drawAxes: [mark],
        setCursor: [shown => { if (place.current) tell(place.current.previousElementSibling, shown, metric, lab, ports); }],
      },
    }, data, place.current);
    chart.current = self;
    const click = event => {
      if (event.detail !== 1 || Math.abs((self.mouseDownX || 0) - event.offsetX) > 3) return;
      app.at(self.posToVal(event.offsetX, "x"));
    };
    self.over.addEventListener("mousedown", event => { self.mouseDownX = event.offsetX; });
    self.over.addEventListener("click", click);
    const watch = new ResizeObserver(() => { if (place.current) self.setSize(size()); });  // it is told of its end, too, before it is disconnected
    watch.observe(place.current);
    return () => { watch.disconnect(); self.destroy(); chart.current = null; };
  }, [theme, ports, metric, lab]);
  useEffect(() => { if (chart.current) chart.current.setData(data); }, [data]);
  useEffect(() => { if (chart.current) chart.current.redraw(false, false); }, [moment]);

  // Live: each tick adds a point at the end, and takes what is too old off the beginning.
  useEffect(() => lab.live ? app.live.on((after, before) => {
    if (after.t === before.t || after.t === null || !after.columns || !after.columns[metric] || !chart.current) return;
    const self = chart.current, [times] = self.data, at = after.t;
    if (times.length && at <= times[times.length - 1]) return;
    const oldest = back ? at - Number(back) : at - 900;
    let cut = 0;
    while (cut < times.length && times[cut] < oldest) cut += 1;
    for (let row = 0; row < self.data.length; row++) {
      const value = row === 0 ? at : after.columns[metric][ports[row - 1]];
      self.data[row].push(row > 0 && value < 0 ? null : value);
      if (cut) self.data[row].splice(0, cut);
    }
    clearTimeout(late.current);
    late.current = setTimeout(() => { if (chart.current === self) self.setData(self.data); }, order * APART_MS);  // one after the other: no long task
  }) : undefined, [lab, ports, metric, back, order]);

  return html`<section class=${`chart ${large ? "large" : ""}`} aria-label=${`${METRICS[metric].title} over time`}>
    <h2><button type="button" title=${METRICS[metric].about} onClick=${() => app.go({measure: metric})}>${METRICS[metric].title}</button><span class="chart-value"></span></h2>
    <div class="plot" ref=${place}></div>${data.slice(1).every(row => row.every(value => value === null)) && html`<p class="unmeasured">not measured at these ports</p>`}</section>`;
};

// Says what the cursor is at: the highest value there, and whose it is.
const tell = (heading, chart, metric, lab, ports) => {
  const words = heading.querySelector(".chart-value"), {idx} = chart.cursor;
  if (idx === null || idx === undefined || chart.cursor.left < 0) { words.textContent = ""; return; }
  let best = -1;
  for (let row = 1; row < chart.data.length; row++) if (chart.data[row][idx] !== null && (best < 0 || chart.data[row][idx] > chart.data[best][idx])) best = row;
  words.textContent = best < 0 ? "" : `${timeText(chart.data[0][idx], lab.clock)} · ${METRICS[metric].text(chart.data[best][idx])}${ports.length > 1 ? ` at ${lab.portName(ports[best - 1])}` : ""}`;
};

export const timeView = {name: "time", title: "Time", order: 30, scope: "base", live: true, recorded: true, measures: true, component: TimeView};
