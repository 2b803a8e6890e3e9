"""Who receives notifications in tests: an HTTP endpoint and an SMTP server, both real and local."""

import http.server
import json
import socketserver
import threading


class Endpoint:
    """An HTTP server that keeps what it is sent, and answers as it is set to."""

    def __init__(self):
        self.received, self.status = [], 200
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = endpoint.status
                endpoint.received.append((status, dict(self.headers), body.decode()))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def messages(self, kind="Notification", status=200):
        """What it has taken."""
        bodies = [json.loads(body) for answered, _, body in self.received if answered == status]
        return [body for body in bodies if body["Type"] == kind]


class Mailbox:
    """An SMTP server that keeps the mails that it is given."""

    def __init__(self):
        self.mails = []
        mailbox = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                self.wfile.write(b"220 here\r\n")
                sender, to = None, []
                for line in self.rfile:
                    command = line.decode().strip()
                    verb = command.upper().split(" ")[0].split(":")[0]
                    answer = "250 fine"
                    if verb == "EHLO":
                        answer = "250-here\r\n250 8BITMIME"
                    elif verb == "MAIL":
                        sender = command
                    elif verb == "RCPT":
                        to.append(command)
                    elif verb == "DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = []
                        while (data := self.rfile.readline()) != b".\r\n":
                            lines.append(data.decode())
                        mailbox.mails.append((sender, to, "".join(lines)))
                    elif verb == "QUIT":
                        self.wfile.write(b"221 bye\r\n")
                        return
                    self.wfile.write(f"{answer}\r\n".encode())

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address = True, True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"smtp://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
