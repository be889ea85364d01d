"""A hub on this machine that refuses, with the real hub's own header for the reason."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def refusing(answer: Callable[[str], tuple[int, str, bytes]]) -> Iterator[str]:
    """Yield the endpoint; `answer`: the path asked for → (status, code of the reason, body)."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            status, code, body = answer(self.path)
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", "as the hub says it")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
