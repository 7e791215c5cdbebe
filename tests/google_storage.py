"""Google Cloud Storage on loopback: as much of its interfaces as its clients use.

gcsfs and TensorStore use the JSON interface, LanceDB the older one of XML (and of S3).

Objects live in this process. Generations and their conditions are kept, as TensorStore's database
of a checkpoint rests on them.
"""

import base64
import binascii
import contextlib
import dataclasses
import email
import email.utils
import http.server
import itertools
import json
import math
import re
import threading
import time
import urllib.parse
import xml.sax.saxutils
from collections.abc import Iterator
from typing import Any

OBJECT = re.compile(r"(?:/download)?/storage/v1/b/([^/]+)/o/([^/]+)")
COPY = re.compile(OBJECT.pattern + r"/(?:rewrite|copy)To/b/([^/]+)/o/([^/]+)")
LISTING = re.compile(r"/storage/v1/b/([^/]+)/o")
BUCKET = re.compile(r"/storage/v1/b/([^/]+)")
# Of the XML interface.
PLAIN_LISTING, PLAIN_OBJECT = re.compile(r"/([^/]+)"), re.compile(r"/([^/]+)/(.+)")
UPLOAD = re.compile(r"(?:/resumable)?/upload/storage/v1/b/([^/]+)/o")


@dataclasses.dataclass(frozen=True)
class Stored:
    """An object."""

    content: bytes
    generation: int
    changed: float


class Storage:
    """The buckets' objects, by (bucket, name), and the uploads that are under way.

    Attributes:
        writes_left: requests that may write; all later ones are refused.
    """

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.writes_left = math.inf
        self.objects: dict[tuple[str, str], Stored] = {}
        self.uploads: dict[str, tuple[tuple[str, str], bytes]] = {}
        self._numbers = itertools.count(int(time.time() * 1e6))

    def put(self, key: tuple[str, str], content: bytes) -> dict[str, Any]:
        self.objects[key] = Stored(content, next(self._numbers), time.time())
        return self.describe(key)

    def describe(self, key: tuple[str, str]) -> dict[str, Any]:
        stored = self.objects[key]
        changed = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.changed))
        checksum = binascii.crc32(stored.content).to_bytes(4, "big")
        return {
            "kind": "storage#object",
            "bucket": key[0],
            "name": key[1],
            "id": f"{key[0]}/{key[1]}/{stored.generation}",
            "size": str(len(stored.content)),
            "generation": str(stored.generation),
            "metageneration": "1",
            "etag": base64.b64encode(checksum + str(stored.generation).encode()).decode(),
            "timeCreated": changed,
            "updated": changed,
            "contentType": "application/octet-stream",
        }

    def list(self, bucket: str, prefix: str, delimiter: str) -> dict[str, Any]:
        items, prefixes = [], set()
        for key in sorted(self.objects):
            if key[0] != bucket or not key[1].startswith(prefix):
                continue
            rest = key[1].removeprefix(prefix)
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                items.append(self.describe(key))
        return {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests; each connection has its own thread."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for an acknowledgement
    storage: Storage

    def do_GET(self) -> None:
        path, query = self._request()
        if match := OBJECT.fullmatch(path):
            return self._object(_key(match), query)
        if (match := LISTING.fullmatch(path)) and match[1] == self.storage.bucket:
            below = query.get("prefix", ""), query.get("delimiter", "")
            return self._json(self.storage.list(match[1], *below))
        if (match := BUCKET.fullmatch(path)) and match[1] == self.storage.bucket:
            return self._json({"kind": "storage#bucket", "name": match[1]})
        if (match := PLAIN_LISTING.fullmatch(path)) and "list-type" in query:
            return self._plain_list(match[1], query)
        if match := PLAIN_OBJECT.fullmatch(path):
            return self._object(_key(match), {"alt": "media"})
        return self._answer(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _plain_list(self, bucket: str, query: dict[str, str]) -> None:
        found = self.storage.list(bucket, query.get("prefix", ""), query.get("delimiter", ""))
        escape = xml.sax.saxutils.escape
        parts = [
            f"<Contents><Key>{escape(item['name'])}</Key><Size>{item['size']}</Size>"
            f"<LastModified>{item['updated']}</LastModified><ETag>{item['etag']}</ETag></Contents>"
            for item in found["items"]
        ]
        parts += [
            f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>"
            for prefix in found["prefixes"]
        ]
        content = f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"
        self._answer(200, content.encode(), {"Content-Type": "application/xml"})

    def _object(self, key: tuple[str, str], query: dict[str, str]) -> None:
        stored = self.storage.objects.get(key)
        if stored is None:
            return self._answer(404)
        if code := _condition(stored.generation, query):
            return self._answer(code)
        if query.get("alt") != "media":
            return self._json(self.storage.describe(key))
        content, size = stored.content, len(stored.content)
        headers = {
            "x-goog-generation": str(stored.generation),
            "ETag": f'"{stored.generation}"',
            "Last-Modified": email.utils.formatdate(stored.changed, usegmt=True),
        }
        if wanted := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            start = int(wanted[1]) if wanted[1] else size - int(wanted[2])
            stop = int(wanted[2]) + 1 if wanted[1] and wanted[2] else size
            if start >= size:
                return self._answer(416)
            headers["Content-Range"] = f"bytes {start}-{min(stop, size) - 1}/{size}"
            return self._answer(206, content[start:stop], headers)
        return self._answer(200, content, headers)

    def do_POST(self) -> None:
        path, query = self._request()
        if self._refuses():
            return None
        if match := UPLOAD.fullmatch(path):
            return self._upload(urllib.parse.unquote(match[1]), query)
        if (match := COPY.fullmatch(path)) and (source := _key(match)) in self.storage.objects:
            target = (urllib.parse.unquote(match[3]), urllib.parse.unquote(match[4]))
            made = self.storage.put(target, self.storage.objects[source].content)
            return self._json({"done": True, "resource": made})
        if path == "/batch/storage/v1":
            return self._batch()
        if path.startswith("/resume/"):
            return self._resume(path)
        return self._answer(404)

    def _upload(self, bucket: str, query: dict[str, str]) -> None:
        if bucket != self.storage.bucket:
            return self._answer(404)
        kind = query["uploadType"]
        if kind == "multipart":
            description, content = _parts(self.headers["Content-Type"], self.body)
            key = (bucket, json.loads(description)["name"])
        elif kind == "resumable":
            key = (bucket, query.get("name") or json.loads(self.body)["name"])
            number = str(len(self.storage.uploads))
            self.storage.uploads[number] = (key, b"")
            return self._answer(200, b"", {"Location": f"{self._place()}/resume/{number}"})
        else:
            key, content = (bucket, query["name"]), self.body
        stored = self.storage.objects.get(key)
        if code := _condition(stored.generation if stored else 0, query):
            return self._answer(code)
        return self._json(self.storage.put(key, content))

    def do_PUT(self) -> None:
        path, _ = self._request()
        if self._refuses():
            return
        if path.startswith("/resume/") or not (match := PLAIN_OBJECT.fullmatch(path)):
            self._resume(path)
            return
        stored = self.storage.objects.get(_key(match))
        condition = self.headers.get("x-goog-if-generation-match", "")
        if condition and int(condition) != (stored.generation if stored else 0):
            self._answer(412)
            return
        content = self.body
        if source := self.headers.get("x-goog-copy-source"):
            bucket, _, name = urllib.parse.unquote(source).partition("/")
            content = self.storage.objects[bucket, name].content
        made = self.storage.put(_key(match), content)
        self._answer(200, b"", {"ETag": made["etag"], "x-goog-generation": made["generation"]})

    def _refuses(self) -> bool:
        """Counts a request that writes, and answers one too many."""
        self.storage.writes_left -= 1
        if self.storage.writes_left < 0:
            self._answer(403)
        return self.storage.writes_left < 0

    def _resume(self, path: str) -> None:
        number = path.removeprefix("/resume/")
        key, content = self.storage.uploads[number]
        content += self.body
        self.storage.uploads[number] = (key, content)
        if self.headers.get("Content-Range", "").endswith("/*"):
            return self._answer(308, b"", {"Range": f"bytes=0-{len(content) - 1}"})
        return self._json(self.storage.put(key, content))

    def do_DELETE(self) -> None:
        path, query = self._request()
        if self._refuses():
            return None
        match = OBJECT.fullmatch(path) or PLAIN_OBJECT.fullmatch(path)
        key = _key(match) if match else ("", "")
        if key not in self.storage.objects:
            return self._answer(404)
        if code := _condition(self.storage.objects[key].generation, query):
            return self._answer(code)
        del self.storage.objects[key]
        return self._answer(204)

    def _batch(self) -> None:
        """Many removals in one request."""
        answers = []
        for part in _parts(self.headers["Content-Type"], self.body):
            path = urllib.parse.urlsplit(part.split()[1].decode()).path
            match = OBJECT.fullmatch(path)
            removed = self.storage.objects.pop(_key(match), None) if match else None
            line = "HTTP/1.1 204 No Content" if removed else "HTTP/1.1 404 Not Found"
            answers.append(f"Content-Type: application/http\r\n\r\n{line}\r\n\r\n")
        text = "".join(f"--batch\r\n{answer}\r\n" for answer in answers) + "--batch--"
        self._answer(200, text.encode(), {"Content-Type": "multipart/mixed; boundary=batch"})

    def _request(self) -> tuple[str, dict[str, str]]:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urllib.parse.urlsplit(self.path)
        return parts.path, dict(urllib.parse.parse_qsl(parts.query))

    def _place(self) -> str:
        return f"http://{self.headers['Host']}"

    def _json(self, value: dict[str, Any]) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(
        self, code: int, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that has read enough hangs up
            super().handle_one_request()

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


def _key(match: re.Match[str]) -> tuple[str, str]:
    return urllib.parse.unquote(match[1]), urllib.parse.unquote(match[2])


def _condition(generation: int, query: dict[str, str]) -> int:
    """The code of a condition on the generation that does not hold, 0 if all do."""
    if "ifGenerationMatch" in query and int(query["ifGenerationMatch"]) != generation:
        return 412
    if "ifGenerationNotMatch" in query and int(query["ifGenerationNotMatch"]) == generation:
        return 304
    return 0


def _parts(content_type: str, body: bytes) -> list[bytes]:
    """The parts of a multipart body, to the byte."""
    message = email.message_from_string(f"Content-Type: {content_type}\n\n")
    boundary = b"--" + str(message.get_boundary()).encode()
    parts = body.split(boundary)[1:-1]
    return [re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1].removesuffix(b"\r\n").removesuffix(b"\n")
            for part in parts]  # fmt: skip


@contextlib.contextmanager
def google_storage(bucket: str | Storage) -> Iterator[str]:
    """Serves a bucket, an empty one for a name; gives the address."""
    storage = Storage(bucket) if isinstance(bucket, str) else bucket
    handler = type("BucketHandler", (Handler,), {"storage": storage})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.request_queue_size = 128
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
