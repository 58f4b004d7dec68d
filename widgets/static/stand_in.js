// A stand-in for the kernel: enough of a model that every module draws from its JSON state alone, so that a
// page saved to disk shows the same. What a message changes in the state is said by `reducers`.

/** What a page without a kernel still answers itself: (state, message) => changes. */
export const reducers = {
  lock: (state, message) => ({ locked: message.index }),
  layer: (state, message) => ({ selected: message.index }),
  step: (state, message) => ({ step: message.step, following: Boolean(message.following) }),
  play: (state, message) => ({ playing: message.playing }),
  fold: (state, message) => ({ folded: message.folded }),
  dismiss: () => ({ open: false }),
  answer: (state, message) => ({
    sections: (state.sections ?? []).map((section, i) =>
      i === message.section && section.question
        ? { ...section, question: { ...section.question, chosen: message.choice } }
        : section,
    ),
  }),
  values: (state, message) => ({ values: { ...state.values, ...message.changed } }),
};

/** A model with the methods that anywidget gives to `render`; `traits` are those that it has beside its state. */
export function standIn(state, { onSend = null, answers = reducers, traits = {} } = {}) {
  const listeners = new Map();
  const data = { ...traits, state };
  const emit = (name, ...values) => {
    for (const callback of [...(listeners.get(name) ?? [])]) callback(...values);
  };
  const model = {
    sent: [],
    get: (name) => data[name],
    set(name, value) {
      data[name] = value;
      emit(`change:${name}`);
    },
    save_changes() {},
    on(name, callback) {
      if (!listeners.has(name)) listeners.set(name, new Set());
      listeners.get(name).add(callback);
    },
    off(name, callback) {
      if (callback) listeners.get(name)?.delete(callback);
      else listeners.delete(name);
    },
    send(message) {
      model.sent.push(message);
      onSend?.(message, model);
      const changes = answers?.[message.type]?.(data.state, message);
      if (changes) model.set("state", { ...data.state, ...changes });
    },
    /** A custom message from the other side. */
    receive: (message, buffers = []) => emit("msg:custom", message, buffers),
    listening: () => [...listeners.values()].reduce((sum, set) => sum + set.size, 0),
  };
  return model;
}

/** Draw `module` (an anywidget module) into `el`; gives back the model and what ends the view. */
export async function mount(module, el, state, options) {
  const model = standIn(state, options);
  const cleanup = await module.default.render({ model, el });
  return { model, cleanup };
}
