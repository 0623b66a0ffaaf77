// A page that is opened from the disk may start no worker, in which the search runs: an own frame does its work there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inner.document.createElement("script");
          Object.assign(script, { src: source, onload: resolve, onerror: reject });
          inner.document.head.append(script);
        });
      inner.importScripts = async (...sources) => {
        for (const source of sources) await load(source);
      };
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.send = (data) => inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.send(data));
    }
  };
}
