// The frame of all pages: the bar, what colours mean, the panel of what is selected, the strip of time.
import {html, useEffect, useRef, useState} from "./lib.js";
import {useStore} from "./store.js";
import {Dialogs, Empty, Failure, Guarded, Pill, Segments, Spinner, Toasts} from "./ui.js";
import {METRICS, countText} from "./format.js";
import {shownViews} from "./keys.js";
import {ramp, stepTexts, themeNow} from "./scales.js";
import {Panel} from "./panel.js";
import {Strip} from "../time/strip.js";

const ICON = new URL("icon.svg", import.meta.url).href;

export const useTheme = () => {
  const [theme, setTheme] = useState(themeNow());
  useEffect(() => {
    const look = () => setTheme(themeNow());
    const system = matchMedia("(prefers-color-scheme: dark)"), watch = new MutationObserver(look);
    system.addEventListener("change", look);
    watch.observe(document.documentElement, {attributeFilter: ["data-theme"]});
    return () => { system.removeEventListener("change", look); watch.disconnect(); };
  }, []);
  return theme;
};

const turnTheme = () => {
  const next = themeNow() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
};

export const Frame = ({app}) => {
  const view = useStore(app.address, a => a.view), base = useStore(app.address, a => a.base);
  const lab = useStore(app.live, l => l.lab), failed = useStore(app.live, l => l.failed), gone = useStore(app.live, l => l.gone), views = useStore(app.views, v => v.list), loaded = useStore(app.views, v => v.loaded);
  const name = view || (base ? "map" : "labs"), chosen = views.find(one => one.name === name && one.component);
  const about = chosen && chosen.measures, based = Boolean(base) && chosen && chosen.scope !== "machine";
  useEffect(() => {
    document.title = `${lab ? lab.name + " · " : ""}${chosen ? chosen.title : "testbed"} · testbed console`;
  }, [lab, chosen]);
  return html`
    <a class="skip" href="#main" onClick=${event => { event.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <${Bar} app=${app} view=${name} />
    <${LoggedOut} app=${app} />
    <${Failing} app=${app} />
    <${Crowded} app=${app} />
    <${Slots} app=${app} name="band" />
    ${based && lab && about && !gone && html`<${Scale} app=${app} />`}
    <div class=${`body ${based && lab && !gone && chosen.panel !== false ? "with-panel" : ""}`}>
      <main id="main" tabindex="-1">
        <h1 class="unseen">${[chosen ? chosen.title : "", based && lab ? lab.name : ""].filter(Boolean).join(" of ")}</h1>
        ${gone && based ? html`<${Empty} title="This lab was destroyed">When a lab of this name is deployed, this page shows it.</${Empty}>`
        : failed && based ? html`<${Failure} error=${failed} />`
        : failed && !base ? html`<${Failure} error=${failed} />`
        : !chosen ? (loaded ? html`<${Empty} title="There is no such page">The address asks for "${name}".</${Empty}>` : html`<${Spinner} />`)
        : based && !lab ? html`<${Spinner} />`
        : !based && chosen.scope !== "machine" ? html`<${Empty} title="No lab is chosen">Choose one above, or deploy one under Labs.</${Empty}>`
        : html`<${Guarded} key=${`${base} ${name}`}><${chosen.component} app=${app} /></${Guarded}>`}
      </main>
      ${based && lab && !gone && chosen.panel !== false && html`<${Guarded} key=${base}><${Panel} app=${app} /></${Guarded}>`}
    </div>
    <${Slots} app=${app} name="dock" />
    ${based && lab && !gone && html`<${Guarded} key=${base}><${Strip} app=${app} /></${Guarded}>`}
    <${Dialogs} app=${app} />
    <${Toasts} app=${app} />`;
};

// What to do where the console does not know this browser any more: it was started anew. What the page holds stays.
const LoggedOut = ({app}) => {
  const out = useStore(app.live, l => l.loggedOut), [token, setToken] = useState(""), [wrong, setWrong] = useState(false), [busy, setBusy] = useState(false), field = useRef(null);
  useEffect(() => { if (out && field.current) field.current.focus(); }, [out]);  // a dialog that is open keeps Tab to itself
  if (!out) return null;
  const enter = async event => {
    event.preventDefault();
    setBusy(true);
    try { setWrong(!await app.logIn(token)); } catch { setWrong(true); }
    setBusy(false);
    setToken("");
  };
  return html`<form class="band bad above" role="alert" onSubmit=${enter}><strong>This console was started anew, and does not know this browser.</strong>
    <span>Paste the link that it has printed, or the token in it: the page goes on where it is.</span>
    <input ref=${field} type="password" aria-label="Link or token" autocomplete="off" spellcheck=${false} maxlength="400" required value=${token} onInput=${event => setToken(event.target.value)} />
    <button type="submit" class="button small" disabled=${busy}>Log in</button>${wrong && html`<b>That token is not right: each is good for one login.</b>`}</form>`;
};

const Crowded = ({app}) => useStore(app.live, l => l.crowded) && html`<div class="band" role="alert"><strong>Nothing moves on this page yet:</strong>
  <span>five others of this browser look at the console. It is live as soon as one of them is closed or hidden.</span></div>`;

const Failing = ({app}) => {
  const failing = useStore(app.live, l => l.failing);
  if (!failing.length) return null;
  return html`<div class="band bad" role="alert"><strong>${failing.length === 1 ? "A part of this console fails:" : "Parts of this console fail:"}</strong>
    <span>${failing.map(one => `${one.part} (${one.error})`).join("; ")}. What it shows may be old; it is tried again. Standard error of the console has more.</span></div>`;
};

export const Slots = ({app, name}) => useStore(app.views, v => v.list).filter(one => one.slots && one.slots[name])
  .map(one => html`<${Guarded} key=${one.name}><${one.slots[name]} app=${app} /></${Guarded}>`);

const Bar = ({app, view}) => {
  const base = useStore(app.address, a => a.base);
  useStore(app.views);
  const [labs, lab, console, connected] = ["labs", "lab", "console", "connected"].map(key => useStore(app.live, l => l[key]));
  const here = labs.find(one => one.base === base);
  return html`<header class="bar">
    <a class="brand" href="#/labs" title="All labs"><img src=${ICON} alt="" width="22" height="22" /><span>testbed</span></a>
    <div class="where">
      <select aria-label="Lab" value=${base || ""} onChange=${event => app.go({base: event.target.value || null, view: event.target.value ? (view === "labs" ? "map" : view) : "labs"})}>
        <option value="">Labs …</option>
        ${labs.filter(one => one.base).map(one => html`<option key=${one.base} value=${one.base}>${one.machine ? `${one.machine}: ` : ""}${one.name}</option>`)}
        ${base && !here && html`<option value=${base}>${lab ? lab.name : base.replace("/api/", "")}</option>`}
      </select>
      ${base && html`<${Health} app=${app} here=${here} />`}
    </div>
    <nav aria-label="Views"><ul>${shownViews(app).map((one, at) => html`
      <li key=${one.name}><a href="#" aria-current=${one.name === view ? "page" : undefined} title=${`${one.title} (${at + 1})`}
        onClick=${event => { event.preventDefault(); app.go({view: one.name}); }}>${one.title}</a></li>`)}</ul></nav>
    <div class="tools">
      ${base && html`<${Find} app=${app} />`}
      <${Slots} app=${app} name="bar" />
      ${console && !console.write && html`<${Pill} title="Started without --write: nothing can be changed">read-only</${Pill}>`}
      ${console && !connected && html`<${Pill} kind="bad" title="The console does not answer: is it still running? It is tried again; when it is started anew, this page asks for its link">offline</${Pill}>`}
      <button type="button" class="button icon" aria-label="Light or dark" title="Light or dark" onClick=${turnTheme}>◐</button>
      <button type="button" class="button icon" aria-label="Keys" title="Keys (?)" onClick=${() => app.keys.get("?")[0].run()}>?</button>
    </div>
  </header>`;
};

const Health = ({app, here}) => {
  const lab = useStore(app.live, l => l.lab), state = useStore(app.live, l => l.state !== null), gone = useStore(app.live, l => l.gone);
  if (gone) return html`<${Pill} kind="bad">destroyed</${Pill}>`;
  if (lab && !lab.live) return html`<${Pill} title="A record, played back without its lab">record</${Pill}>`;
  const word = here ? here.state : state ? "running" : "", kind = word === "running" ? "ok" : word === "" ? "" : "warn";
  return html`${word && html`<${Pill} kind=${kind} title=${here ? `k = ${here.k}` : ""}>${word}</${Pill}>`}${lab && lab.k > 1 && html`<span class="soft scale-k">k = ${countText(+lab.k.toPrecision(3))}</span>`}`;
};

// Finds nodes and ports; what it matches is what the map shows lit and the table lists.
const Find = ({app}) => {
  const filter = useStore(app.address, a => a.filter), field = useRef(null), timer = useRef(0);
  useEffect(() => { if (document.activeElement !== field.current) field.current.value = filter; }, [filter]);
  const typed = event => {
    const {value} = event.target;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => app.go({filter: value.trim()}), 120);
  };
  const keys = event => {
    if (event.key === "Escape") { field.current.value = ""; app.go({filter: ""}); field.current.blur(); }
    if (event.key !== "Enter") return;
    clearTimeout(timer.current);
    const words = field.current.value.trim(), {lab} = app.live.get();
    app.go({filter: words});
    if (!lab || !words) return;
    const low = words.toLowerCase(), names = lab.nodes.name;
    const node = names.find(one => one.toLowerCase() === low) || names.find(one => one.toLowerCase().includes(low));
    if (lab.portNumber.has(words)) app.select([`port:${words}`]);
    else if (node) app.select([`node:${node}`]);
  };
  return html`<label class="search"><svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="7" cy="7" r="4.5"/><path d="M10.5 10.5L14 14"/></svg>
    <input id="find" ref=${field} type="search" placeholder="Find  ( / )" aria-label="Find nodes and ports: NODE or NODE:IF with wildcards, network=NAME, state=down" autocomplete="off" spellcheck=${false}
      defaultValue=${filter} onInput=${typed} onKeyDown=${keys} /></label>`;
};

// The measure, what its colours mean, and the networks that are shown.
const Scale = ({app}) => {
  const lab = useStore(app.live, l => l.lab), measure = useStore(app.address, a => a.measure), off = useStore(app.address, a => a.off);
  const theme = useTheme(), texts = stepTexts(measure), colours = ramp(theme);
  const drawn = useStore(app.live, l => l.layers), layers = drawn || lab.networks.map((one, number) => ({name: one.name, number}));
  const flip = name => app.go({off: off.includes(name) ? off.filter(one => one !== name) : [...off, name]});
  return html`<section class="scale" aria-label="Colours and networks">
    <${Segments} label="Coloured by" value=${measure} onChange=${value => app.go({measure: value})}
      options=${lab.metrics.map(name => ({value: name, title: METRICS[name].title, about: METRICS[name].about}))} />
    <ol class="legend" aria-label=${`Colours: ${METRICS[measure].about}`} title=${METRICS[measure].about}>
      ${colours.map((one, step) => html`<li key=${step}><i style=${{background: one}}></i>${texts[step]}</li>`)}
      <li><i class="unknown"></i>unknown</li></ol>
    ${layers.length > 1 && html`<fieldset class="networks"><legend>Networks</legend>
      ${layers.map(one => html`<label key=${one.name} class=${`layer net${one.number}`}><input type="checkbox" checked=${!off.includes(one.name)} onChange=${() => flip(one.name)} /><i></i>${one.name.replace(" domains", "")}</label>`)}
    </fieldset>`}
  </section>`;
};
