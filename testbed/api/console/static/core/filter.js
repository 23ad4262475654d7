// The words that `lab stats` and `lab inspect` take, to choose ports and nodes in the page: NODE or NODE:IF with wildcards,
// several of them (any will do), `network=NAME` and `state=down` (which must hold as well). A word without wildcards is
// found anywhere in a name, as one types it. Other values of columns, such as `peer=spine*`, choose rows of tables alone.

// A pattern as the command line takes it (Python's fnmatch): `*`, `?`, `[abc]` and `[!abc]`; a bracket that nothing closes is itself.
const pattern = text => {
  const source = text.replace(/\[(!?)([^\]]+)\]|[^]/g, (one, not, set) => set !== undefined ? `[${not ? "^" : ""}${set.replace(/[\\^[]/g, "\\$&")}]`
    : one === "*" ? ".*" : one === "?" ? "." : one.replace(/[.+^${}()|\\[\]]/, "\\$&"));
  try { return new RegExp(`^${source}$`, "i"); } catch { return /(?!)/; }  // a range that is turned round, such as [9-1], has nothing in it
};

const LINKS = ["down", "up", "up"];  // the last: changed
const KEYS = ["network", "state"];

export const readWords = text => {
  const names = [], keys = {};
  for (const word of text.trim().split(/[\s,]+/).filter(Boolean)) {
    const [, key, value] = /^([^=]*)=(.*)$/.exec(word) || [];
    if (KEYS.includes(key)) keys[key] = pattern(value);
    else if (key === undefined) names.push(word);
  }
  const tests = names.map(word => {
    if (!/[*?[]/.test(word)) return (node, place) => (word.includes(":") ? place : node).toLowerCase().includes(word.toLowerCase());
    const whole = pattern(word.includes(":") ? word : word + ":*"), alone = word.includes(":") ? null : pattern(word);
    return (node, place) => place === node ? alone !== null && alone.test(node) : whole.test(place);
  });
  return {
    empty: !names.length && !Object.keys(keys).length,
    keys,
    node: (name, network, state) => (!tests.length || tests.some(one => one(name, name))) && agrees(keys, network, state),
    port(lab, state, number) {
      const {ports} = lab, node = lab.nodes.name[ports.node[number]], network = (lab.networks[ports.network[number]] || {}).name;
      return (!tests.length || tests.some(one => one(node, `${node}:${ports.name[number]}`))) && agrees(keys, network, state && state.links ? LINKS[state.links[number]] : "");
    },
  };
};
const agrees = (keys, network, state) => (!keys.network || keys.network.test(network || "")) && (!keys.state || keys.state.test(state || ""));
