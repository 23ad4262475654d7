// The view "Map": the picture of all networks, or a honeycomb and a matrix where there is too much for one.
import {afterFrame, html, useEffect, useLayoutEffect, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Failure, Segments, Spinner, useTurn} from "../core/ui.js";
import {useTheme} from "../core/frame.js";
import {Cells} from "./cells.js";
import {Fabric} from "./fabric.js";

const MANY_NICS = 500;
const LOOKS = [
  {value: "map", title: "Map", about: "All networks as they are wired"},
  {value: "honeycomb", title: "Honeycomb", about: "Every NIC: a row for each rail, a column for each host"},
  {value: "matrix", title: "Matrix", about: "Every link between switches: leaf by spine"},
];

// The NICs of a lab: what its hosts have of ports on the back end.
export const nicsOf = lab => lab.ports.node.reduce((sum, node, port) => sum + (lab.nodes.kind[node] === "host" && lab.ports.network[port] === 0 ? 1 : 0), 0);

// Marks the moment when the first picture has been drawn.
const markPicture = async () => {
  await afterFrame();
  if (!performance.getEntriesByName("console-picture").length) performance.mark("console-picture");
};

const MapView = ({app}) => {
  const lab = useStore(app.live, l => l.lab), chosen = useStore(app.address, a => a.params.look), off = useStore(app.address, a => a.off);
  const look = LOOKS.some(one => one.value === chosen) ? chosen : nicsOf(lab) >= MANY_NICS ? "honeycomb" : "map";
  const stage = useRef(null), fabric = useRef(null), theme = useTheme();
  const [map, setMap] = useState(null), [failed, setFailed] = useState(null), [moving, setMoving] = useState(false), [open, setOpen] = useState(false), [moved, setMoved] = useState(false), turn = useTurn(failed);

  useLayoutEffect(() => {  // and not an effect, which waits for a frame
    const stop = new AbortController();
    Promise.all([app.get("./map", stop.signal), app.get("./positions", stop.signal).catch(() => ({}))])
      .then(([found, positions]) => { app.live.set({layers: found.layers.length ? found.layers : null}); setFailed(null); setMap({...found, positions, revision: lab.revision}); }, error => { if (error.name !== "AbortError") setFailed(error); });
    return () => stop.abort();
  }, [lab.revision, app.address.get().base, turn]);

  useLayoutEffect(() => {
    if (!map || map.revision !== lab.revision || !stage.current) return undefined;
    const keep = async positions => {
      map.positions = positions;
      setMoved(Object.keys(positions).length > 0);
      try { await app.put("./positions", positions); } catch (error) { app.say(`The position is not kept: ${error.message}`, {kind: "warn"}); }
    };
    const now = look === "map" ? new Fabric(stage.current, app, lab, map, map.positions, {moved: keep}) : new Cells(stage.current, app, lab, map, look);
    fabric.current = now;
    markPicture();
    setMoved(Object.keys(map.positions).length > 0);
    setOpen(Boolean(now.open));
    if (now.relayer && look === "map") now.relayer();
    now.emphasise();
    const ends = [
      app.live.on((after, before) => { if (after.shown !== before.shown) now.tick(); }),
      app.address.on((after, before) => {
        if (after.off !== before.off) now.relayer();
        if (after.selection !== before.selection || after.filter !== before.filter) now.emphasise();
        if (after.measure !== before.measure) now.look();
      }),
    ];
    return () => { ends.forEach(end => end()); now.close(); fabric.current = null; };
  }, [map, look, lab]);

  useEffect(() => { if (fabric.current) fabric.current.look(); }, [theme]);
  useEffect(() => { if (fabric.current && look === "map") { fabric.current.moving = moving; stage.current.classList.toggle("moving", moving); } }, [moving, map, look]);

  const on = (method, ...words) => () => { if (fabric.current) fabric.current[method](...words); };
  const zoom = factor => () => { if (fabric.current) fabric.current.view.zoomBy(factor); };
  const trays = () => { fabric.current.setTrays(!open); setOpen(!open); };
  const empty = look === "matrix" ? "No two tiers of switches are linked here" : "No NIC of the back end is shown";
  return html`<div class="map">
    <div class="map-tools">
      <${Segments} label="Look" value=${look} options=${LOOKS} onChange=${value => app.setParam({look: value})} />
      ${look === "map" && html`<span class="zoom" role="group" aria-label="Zoom"><button type="button" class="button icon" aria-label="Zoom out" title="Zoom out (−)" onClick=${zoom(.8)}>−</button><button type="button" class="button" title="Show all (0)" onClick=${on("fit")}>Fit</button><button type="button" class="button icon" aria-label="Zoom in" title="Zoom in (+)" onClick=${zoom(1.25)}>+</button></span>`}
      ${look === "map" && map && html`${map.svg.includes('class="tray"') && html`<button type="button" class="button" aria-pressed=${String(open)} onClick=${trays}>${open ? "Hide hosts" : "Show hosts"}</button>`}
        ${app.live.get().console && app.live.get().console.write && html`<button type="button" class="button" aria-pressed=${String(moving)} title="Drag nodes, or Shift and arrows; kept beside the topology file" onClick=${() => setMoving(!moving)}>Move nodes</button>`}
        ${moved && moving && html`<button type="button" class="button" onClick=${on("resetPositions")}>Put back</button>`}`}
    </div>
    <div class="stage" ref=${stage} tabindex=${look === "map" ? 0 : -1} data-empty=${empty} aria-label=${look === "map" ? "Map: arrows move it, plus and minus zoom" : undefined} role=${look === "map" ? "group" : undefined}></div>
    ${failed ? html`<${Failure} error=${failed} />` : !map && html`<div class="over"><${Spinner}>The map is drawn …</${Spinner}></div>`}
  </div>`;
};

export const mapView = {name: "map", title: "Map", order: 11, scope: "base", live: true, recorded: true, measures: true, component: MapView};
