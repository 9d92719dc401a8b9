// A browser refuses workers to pages that are opened as files. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.inside = new Promise((done, failed) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        document.body.append(frame);
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.tell(data);
        const script = inside.document.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = () => done(inside);
        script.onerror = failed;
        inside.document.body.append(script);
      });
    }
    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    terminate() {}
  };
}
