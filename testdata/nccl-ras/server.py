"""Stands in for the RAS port of NCCL, with answers that it gave.

    server.py PORT ANSWER [HOST]

Listens on PORT of the loopback interface (0 for any) and prints the port. Each client gets the lines of the file ANSWER,
which may be replaced meanwhile, one for each of its own, and the rest for the last one. HOST takes the place of the
recorded address of the job's host.
"""

import pathlib
import socketserver
import sys

RECORDED_HOST = "192.0.2.2"


class Port(socketserver.StreamRequestHandler):
    """Answers one client."""

    def handle(self):
        """Replies to protocol, timeout and format with a line each, then to the query of the status."""
        answer = pathlib.Path(sys.argv[2]).read_text()
        if len(sys.argv) > 3:
            answer = answer.replace(RECORDED_HOST, sys.argv[3])
        *replies, status = answer.split("\n", 3)
        for reply in [*(f"{line}\n" for line in replies), status]:
            if not self.rfile.readline():
                return
            self.wfile.write(reply.encode())


class Server(socketserver.ThreadingTCPServer):
    """Listens again at once after a restart."""

    allow_reuse_address = True
    daemon_threads = True


with Server(("127.0.0.1", int(sys.argv[1])), Port) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
