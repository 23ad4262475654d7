// A value that parts of the page share, and are told of when it changes.
import {useEffect, useReducer, useRef} from "./lib.js";

export class Store {
  constructor(value) {
    this.value = value;
    this.listeners = new Set();
  }

  get() { return this.value; }

  // Puts these members for those of the same name; tells who listens if one of them is another value.
  set(changes) {
    const before = this.value;
    if (Object.keys(changes).every(key => Object.is(before[key], changes[key]))) return false;
    this.value = {...before, ...changes};
    for (const listener of [...this.listeners]) listener(this.value, before);
    return true;
  }

  on(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

// What `pick` finds in a store, in a component that is drawn anew when it finds another value.
export const useStore = (store, pick = value => value) => {
  const [, again] = useReducer(count => count + 1, 0);
  const found = pick(store.get()), last = useRef(found);
  last.current = found;
  const picking = useRef(pick);
  picking.current = pick;
  useEffect(() => {
    const look = () => {
      const now = picking.current(store.get());
      if (!Object.is(now, last.current)) again();
    };
    look();
    return store.on(look);
  }, [store]);
  return found;
};
