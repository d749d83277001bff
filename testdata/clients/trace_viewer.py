"""Opens a Chrome trace with the trace viewer of Chromium (catapult), the one of chrome://tracing.

    trace_viewer.py TRACE MODULES [PICTURE]

Prints what the viewer has read, as JSON: its warnings, and each process with its threads, their slices and counters.
Durations are sums in milliseconds. MODULES is a folder of npm packages with the polyfill that the viewer needs, and the
viewer is that of the package torch-tb-profiler for Python. PICTURE takes a picture of the first tracks.
"""

import functools
import http.server
import json
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

import torch_tb_profiler
from browser import Browser

# What the viewer needs to load and to read a trace, seconds.
DEADLINE = 180

PAGE = """<!DOCTYPE html><title>trace</title>
<style>html, body, #viewer { margin: 0; width: 100%; height: 100%; overflow: hidden }</style>
<script src="webcomponents.min.js"></script>
<link rel="import" href="trace_viewer_full.html">
<script>
window.__hideTraceViewerPolyfillWarning = true;
document.addEventListener('WebComponentsReady', async () => {
  const viewer = document.createElement('tr-ui-timeline-view');
  viewer.track_view_container = document.createElement('track-view-container');
  viewer.track_view_container.id = 'track_view_container';
  Polymer.dom(viewer).appendChild(viewer.track_view_container);
  viewer.id = 'viewer';
  viewer.globalMode = true;
  Polymer.dom(document.body).appendChild(viewer);
  const model = new tr.Model();
  const trace = await (await fetch('trace.json')).text();
  try {
    await new tr.importer.Import(model).importTracesWithProgressDialog([trace]);
    viewer.model = model;
    window.imported = model;
  } catch (error) {
    window.failure = String(error);
  }
});
</script>"""

FIGURES = """JSON.stringify({
  warnings: imported.importWarnings.map(warning => `${warning.type}: ${warning.message}`),
  processes: imported.getAllProcesses().map(process => ({
    name: process.name,
    threads: Object.values(process.threads).map(thread => ({
      name: thread.name,
      slices: thread.sliceGroup.length,
      duration_ms: thread.sliceGroup.slices.reduce((sum, slice) => sum + slice.duration, 0),
      unfinished: thread.sliceGroup.slices.filter(slice => slice.didNotFinish).length,
      in_flight: thread.asyncSliceGroup.length,
      first: thread.sliceGroup.length === 0 ? null : thread.sliceGroup.slices[0].title,
    })),
    counters: Object.values(process.counters).map(counter => ({
      name: counter.name,
      samples: counter.timestamps.length,
    })),
  })),
})"""


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a log."""

    def log_message(self, *_):
        """Writes nothing."""


def main():
    trace, modules, *picture = sys.argv[1:]
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"the viewer has not read the trace within {DEADLINE} s"))
    signal.alarm(DEADLINE)
    program = shutil.which("chromium") or sys.exit("no chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        site = pathlib.Path(folder, "site")
        site.mkdir()
        (site / "index.html").write_text(PAGE)
        viewer = pathlib.Path(torch_tb_profiler.__file__).parent / "static/trace_viewer_full.html"
        shutil.copy(viewer, site)
        shutil.copy(pathlib.Path(modules, "webcomponents.js/webcomponents.min.js"), site)
        shutil.copy(trace, site / "trace.json")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=site))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = Browser(program, pathlib.Path(folder, "profile"))
        try:
            browser.go(f"http://127.0.0.1:{server.server_port}/index.html")
            while not browser.value("Boolean(window.imported || window.failure)"):
                time.sleep(0.2)
            failure = browser.value("window.failure")
            if failure:
                sys.exit(f"the viewer cannot read the trace: {failure}")
            print(browser.value(FIGURES))
            if picture:
                browser.look({"width": 1400})
                browser.top([picture[0], 800])
        finally:
            browser.close()
        server.shutdown()


if __name__ == "__main__":
    main()
