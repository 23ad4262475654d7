// Where the page begins.
import {afterFrame, html, render} from "./lib.js";
import {App} from "./app.js";
import {Failure} from "./ui.js";
import {Frame} from "./frame.js";
import {bindKeys} from "./keys.js";
import {mapView} from "../map/map.js";
import {tableView} from "../table/table.js";
import {timeView} from "../time/time.js";

const page = document.getElementById("page");
const app = new App();
globalThis.consoleApp = app;  // for who looks behind the page, and for its tests
for (const view of [mapView, tableView, timeView]) app.addView(view);
bindKeys(app);

const stored = localStorage.getItem("theme");
if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;

const begin = async () => {
  page.replaceChildren();
  render(html`<${Frame} app=${app} />`, page);
  try {
    await app.start();
  } catch (error) {
    app.live.set({failed: error});
    return;
  }
  await afterFrame();  // the picture goes first
  const {views} = app.live.get().console;
  await Promise.all(views.filter(one => one.module).map(async one => {
    try {
      if (one.style) addStyle(one.style);
      const {default: view} = await import(`../${one.module}`);
      app.addView({...one, ...view});
    } catch (error) {
      app.say(`The part "${one.title}" of this page does not load: ${error.message}`, {kind: "bad", lasts: 0});
    }
  }));
  app.views.set({loaded: true});
  performance.mark("console-ready");
};

const addStyle = href => {
  const link = document.createElement("link");
  Object.assign(link, {rel: "stylesheet", href: new URL(`../${href}`, import.meta.url)});
  document.head.append(link);
};

begin().catch(error => render(html`<${Failure} error=${error} />`, page));
