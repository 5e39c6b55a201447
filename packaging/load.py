#!/usr/bin/env python3
"""Load for trials of a router: real transfers whose contents are compared, and connections that are idle.

    load.py serve DIRECTORY               files to fetch and to send at port 80, an echo at port 7
    load.py ask ADDRESS DIRECTORY LOG N   N transfers at a time, over and over, and idle connections, until SIGTERM

LOG has a line for each thing that ended: seconds since the epoch, what, how, and more.

    1700000000.123 download good 8.1      the file came as it is, in so many seconds
    1700000000.123 upload lost curl: ...  the connection broke, and curl says how
    1700000000.123 upload wrong           other bytes came than were sent: never right
    1700000000.123 pulse gap 0.21         a question every 20 ms had no answer for so long (above 0.1 s)
    1700000000.123 idle answered 5        SIGUSR1 asks the idle ones, which say nothing else: so many answered
    1700000000.123 idle lost 1            and so many did not
"""

import hashlib
import http.server
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

IDLE = 5
PATIENCE_S = 30


class Files(http.server.SimpleHTTPRequestHandler):
    """What is sent here is answered with its SHA-256."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        digest = hashlib.sha256()
        while left > 0:
            block = self.rfile.read(min(left, 65536))
            if not block:
                return
            digest.update(block)
            left -= len(block)
        self.send_response(200)
        self.send_header("Content-Length", str(2 * digest.digest_size))
        self.end_headers()
        self.wfile.write(digest.hexdigest().encode())

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *_):
        """A connection that breaks is told by its client."""


def echo(connection):
    with connection:
        try:
            while said := connection.recv(4096):
                connection.sendall(said)
        except OSError:
            pass


def serve(directory):
    def files(*arguments):
        return Files(*arguments, directory=directory)

    web = Server(("", 80), files)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    listener = socket.create_server(("", 7), backlog=128)
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()


class Load:
    def __init__(self, address, directory, log):
        self.address = address
        self.file = pathlib.Path(directory, "file")
        self.digest = hashlib.sha256(self.file.read_bytes()).hexdigest()
        self.log = open(log, "a", buffering=1)
        self.over = threading.Event()
        self.asked = threading.Event()

    def note(self, *words):
        self.log.write(" ".join([f"{time.time():.3f}", *map(str, words)]) + "\n")

    def transfer(self, what):
        """One after the other, by real programs."""
        url = f"http://{self.address}/file"
        options = ["-T", str(self.file)] if what == "upload" else []
        while not self.over.is_set():
            begun = time.monotonic()
            curl = subprocess.run(["curl", "-sS", "--max-time", "120", *options, url], capture_output=True)
            took = time.monotonic() - begun
            got = curl.stdout.decode() if what == "upload" else hashlib.sha256(curl.stdout).hexdigest()
            if curl.returncode != 0:
                self.note(what, "lost", curl.stderr.decode().strip())
                # Not at once again and again.
                time.sleep(0.2)
            else:
                self.note(what, "good" if got == self.digest else "wrong", f"{took:.2f}")

    def connect(self):
        return socket.create_connection((self.address, 7), timeout=PATIENCE_S)

    def pulse(self):
        """Whether TCP flows. A connection that breaks is opened anew: only the time counts."""
        connection, answered = None, time.monotonic()
        while not self.over.is_set():
            try:
                connection = connection or self.connect()
                connection.sendall(b"x")
                if not connection.recv(1):
                    raise OSError("closed")
            except OSError:
                connection = None
                time.sleep(0.01)
                continue
            now = time.monotonic()
            if now - answered > 0.1:
                self.note("pulse", "gap", f"{now - answered:.2f}")
            answered = now
            time.sleep(0.02)

    def idle(self):
        connections = [self.connect() for _ in range(IDLE)]
        self.note("idle", "open", len(connections))
        while not self.over.is_set():
            if not self.asked.wait(0.2):
                continue
            self.asked.clear()
            answered = []
            for connection in connections:
                try:
                    connection.sendall(b"still there?")
                    if connection.recv(12, socket.MSG_WAITALL) == b"still there?":
                        answered.append(connection)
                except OSError:
                    pass
            if len(answered) < len(connections):
                self.note("idle", "lost", len(connections) - len(answered))
            self.note("idle", "answered", len(answered))
            # Those that broke are told once.
            connections = answered

    def run(self, transfers):
        signal.signal(signal.SIGTERM, lambda *_: self.over.set())
        signal.signal(signal.SIGUSR1, lambda *_: self.asked.set())
        work = [(self.pulse, ()), (self.idle, ())]
        work += [(self.transfer, (["download", "upload"][n % 2],)) for n in range(transfers)]
        threads = [threading.Thread(target=what, args=arguments) for what, arguments in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        Load(*sys.argv[2:5]).run(int(sys.argv[5]))
