"""A server that takes mail, as Airflow's SMTP provider sends it."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from email.message import EmailMessage
from typing import Any


class _Session(socketserver.StreamRequestHandler):
    server: Any

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                text = b"".join(line.removeprefix(b".") if line.startswith(b"..") else line for line in lines)
                self.server.mails.append(email.message_from_bytes(text, policy=email.policy.default))
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            if verb == b"QUIT":
                return


class MailServer(socketserver.ThreadingTCPServer):
    """Takes every mail."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[EmailMessage] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def connection(self) -> dict[str, Any]:
        """The fields of an ``smtp`` connection to it."""
        extra = {"disable_ssl": True, "disable_tls": True, "timeout": 5, "retry_limit": 1}
        return {"conn_type": "smtp", "host": "127.0.0.1", "port": self.server_address[1], "extra": extra}

    def close(self) -> None:
        self.shutdown()
        self.server_close()


def text_of(mail: Any) -> str:
    """Return a mail's HTML."""
    body = mail.get_body(("html",))
    return "" if body is None else str(body.get_content())
