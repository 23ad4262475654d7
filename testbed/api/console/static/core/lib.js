// The libraries of the page under one name. Versions and licences are in ../vendor/list.json.
import {h, render, Component, Fragment, createPortal} from "../vendor/preact-11.2.0/preact.mjs";
import htm from "../vendor/htm-3.1.1/htm.mjs";

export {h, render, Component, Fragment, createPortal};
export {useState, useReducer, useEffect, useLayoutEffect, useRef, useMemo, useCallback} from "../vendor/preact-11.2.0/hooks.mjs";
export const html = htm.bind(h);

// Is fulfilled after the next frame has been drawn.
export const afterFrame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
