// What is in the address: which lab or run, which view, what is selected, at which moment, coloured by what.
// `#/labs/demo/map?sel=node:p1-spine1&m=queue&t=1796000000.5&off=storage&q=p1-*&p.sort=-use`
export const EMPTY = {base: null, view: "", selection: [], moment: null, measure: "use", off: [], filter: "", params: {}};

const KINDS = {labs: 2, runs: 4};  // how many parts a base has, by its first

export const parse = hash => {
  const text = hash.replace(/^#\/?/, ""), cut = text.indexOf("?");
  const parts = (cut < 0 ? text : text.slice(0, cut)).split("/").filter(Boolean);
  const query = new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1));
  const length = KINDS[parts[0]];
  const based = length !== undefined && parts.length >= length;
  const list = name => (query.get(name) || "").split(",").filter(Boolean).map(decodeOne);
  const moment = query.has("t") ? Number(query.get("t")) : null;
  const params = {};
  for (const [key, value] of query) if (key.startsWith("p.")) params[key.slice(2)] = value;
  return {
    base: based ? "/api/" + parts.slice(0, length).join("/") : null,
    view: (based ? parts[length] : parts[0]) || "",
    selection: list("sel"),
    moment: Number.isFinite(moment) ? moment : null,
    measure: query.get("m") || EMPTY.measure,
    off: list("off"),
    filter: query.get("q") || "",
    params,
  };
};

export const format = address => {
  const query = new URLSearchParams();
  if (address.selection.length) query.set("sel", address.selection.map(encodeOne).join(","));
  if (address.moment !== null) query.set("t", String(address.moment));
  if (address.measure !== EMPTY.measure) query.set("m", address.measure);
  if (address.off.length) query.set("off", address.off.map(encodeOne).join(","));
  if (address.filter) query.set("q", address.filter);
  for (const key of Object.keys(address.params).sort()) query.set("p." + key, address.params[key]);
  const words = query.toString().replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%2F/g, "/");
  const path = [...(address.base ? [address.base.replace(/^\/api\//, "")] : []), ...(address.view ? [address.view] : [])].join("/");
  return `#/${path}${words ? "?" + words : ""}`;
};

// Names of a list are divided by commas, which a name may have itself.
const encodeOne = text => text.replace(/[%,]/g, one => encodeURIComponent(one));
const decodeOne = text => text.replace(/%25|%2C/g, one => decodeURIComponent(one));
