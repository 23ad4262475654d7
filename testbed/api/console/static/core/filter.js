// The words that `lab stats` and `lab inspect` take, to choose ports and nodes in the page: NODE or NODE:IF with wildcards,
// several of them (any will do), `network=NAME` and `state=down` (which must hold as well). A word without wildcards is
// found anywhere in a name, as one types it.
const pattern = text => new RegExp("^" + text.replace(/[.+^${}()|\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".") + "$", "i");

export const readWords = text => {
  const names = [], keys = {};
  for (const word of text.trim().split(/[\s,]+/).filter(Boolean)) {
    const pair = /^(class|network|state)=(.+)$/.exec(word);
    if (pair) keys[pair[1]] = pair[2];
    else names.push(word);
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
    port: (node, name, network, state) => (!tests.length || tests.some(one => one(node, `${node}:${name}`))) && agrees(keys, network, state),
  };
};
const agrees = (keys, network, state) => (keys.network === undefined || keys.network === network) && (keys.state === undefined || keys.state === state);
