"""A stand-in for Kubernetes: the part of its API server that Spark's scheduler for Kubernetes uses, in this process.

A pod of an executor is a process on this machine, with the environment of the pod's container and the command that the
entrypoint of Spark's image would run. There is no image, no other container and no network of pods: every pod has the
address of this machine."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import pyspark

HOME = Path(pyspark.__file__).parent
ADDRESS = "127.0.0.1"
KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "persistentvolumeclaims": "PersistentVolumeClaim"}
PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?(?P<rest>/.*)?")
CHOSEN = re.compile(r"(?P<label>[^\s,!=]+)\s*(?P<rule>!=|==?|in\b)\s*(?P<value>\([^)]*\)|[^,]*)")
Thing = dict[str, Any]


class Kubernetes:
    """`url` is the master of Spark. `created` has every object that was created, `things` those that there are."""

    def __init__(self, directory: Path) -> None:
        self.created: list[Thing] = []
        self.things: dict[tuple[str, str, str], Thing] = {}
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchers: list[tuple[str, str, SimpleQueue[Thing | None]]] = []
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        api = type("Handler", (_Handler,), {"kubernetes": self})
        self._server = ThreadingHTTPServer((ADDRESS, 0), api)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"k8s://http://{ADDRESS}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with self._lock:
            for watcher in self._watchers:
                watcher[2].put(None)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def pods(self) -> list[Thing]:
        """All pods that were created, in order."""
        return [thing for thing in self.created if thing["kind"] == "Pod"]

    def log(self, pod: Thing) -> str:
        """The output of its process."""
        return Path(self._directory, pod["metadata"]["name"], "log").read_text(errors="replace")

    # -- what is asked

    def create(self, namespace: str, kind: str, thing: Thing) -> Thing:
        with self._lock:
            number = next(self._numbers)
            metadata = thing["metadata"]
            thing |= {"kind": KINDS[kind], "apiVersion": "v1"}
            metadata |= {"namespace": namespace, "uid": f"uid-{number}", "resourceVersion": str(number)}
            metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            self.created.append(thing)
            self.things[namespace, kind, metadata["name"]] = thing
            if kind == "pods":
                self._start(thing)
            self._tell("ADDED", namespace, kind, thing)
            return thing

    def find(self, namespace: str, kind: str, selector: str) -> list[Thing]:
        with self._lock:
            return [
                thing
                for (where, what, _), thing in self.things.items()
                if (where, what) == (namespace, kind) and _chosen(thing, selector)
            ]

    def change(self, namespace: str, kind: str, name: str, change: Thing) -> Thing | None:
        with self._lock:
            thing = self.things.get((namespace, kind, name))
            if thing is not None:
                _merge(thing, change)
                self._tell("MODIFIED", namespace, kind, thing)
            return thing

    def delete(self, namespace: str, kind: str, thing: Thing) -> None:
        name = thing["metadata"]["name"]
        with self._lock:
            if self.things.pop((namespace, kind, name), None) is not None:
                self._tell("DELETED", namespace, kind, thing)
        if kind == "pods":
            self._processes[name].terminate()

    def watch(self, namespace: str, kind: str, selector: str) -> Iterator[Thing]:
        events: SimpleQueue[Thing | None] = SimpleQueue()
        with self._lock:
            self._watchers.append((f"{namespace}/{kind}", selector, events))
        while (event := events.get()) is not None:
            yield event

    def _tell(self, what: str, namespace: str, kind: str, thing: Thing) -> None:
        thing["metadata"]["resourceVersion"] = str(next(self._numbers))
        told = json.loads(json.dumps({"type": what, "object": thing}))
        for place, selector, events in self._watchers:
            if place == f"{namespace}/{kind}" and _chosen(thing, selector):
                events.put(told)

    # -- pods

    def _start(self, pod: Thing) -> None:
        [container] = pod["spec"]["containers"]
        assert container["args"] == ["executor"], container
        directory = self._directory / pod["metadata"]["name"]
        directory.mkdir(parents=True)
        status = {"phase": "Running", "podIP": ADDRESS, "startTime": "2026-01-01T00:00:00Z"}
        running = {"name": container["name"], "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        pod["status"] = status | {"containerStatuses": [running]}
        with open(directory / "log", "wb") as log:
            environment = _environment(pod, container, directory)
            pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            process = subprocess.Popen(entrypoint(environment), env=environment, cwd=directory, **pipes)
        self._processes[pod["metadata"]["name"]] = process


def entrypoint(environment: dict[str, str]) -> list[str]:
    """The command of an executor's container, as the entrypoint of Spark's image has it."""
    given = [environment[name] for name in sorted(environment) if re.fullmatch(r"SPARK_JAVA_OPT_\d+", name)]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    java = Path(environment["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in environment else "java"
    return [
        *(str(java), *given, f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{environment['SPARK_HOME']}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", environment["SPARK_DRIVER_URL"]),
        *("--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
    ]


def _environment(pod: Thing, container: Thing, directory: Path) -> dict[str, str]:
    """Of the container; directories that would be in it are in `directory`."""
    fields = {"status.podIP": pod["status"]["podIP"], "metadata.name": pod["metadata"]["name"]}
    found = {}
    for variable in container["env"]:
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found[variable["name"]] = fields[field] if field else variable.get("value", "")
    for mount in container.get("volumeMounts", ()):
        place = directory / mount["name"]
        place.mkdir(exist_ok=True)
        found = {name: value.replace(mount["mountPath"], str(place)) for name, value in found.items()}
    image = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "JDK_JAVA_OPTIONS") if name in os.environ}
    return image | {"SPARK_HOME": os.environ.get("SPARK_HOME", str(HOME)), "HOME": str(directory)} | found


def _chosen(thing: Thing, selector: str) -> bool:
    labels = thing["metadata"].get("labels", {})
    for rule in CHOSEN.finditer(selector):
        values = [value.strip() for value in rule["value"].strip("()").split(",")]
        if (labels.get(rule["label"]) in values) is (rule["rule"] == "!="):
            return False
    return True


def _merge(thing: Thing, change: Thing) -> None:
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(thing.get(name), dict):
            _merge(thing[name], value)
        else:
            thing[name] = value


class _Handler(BaseHTTPRequestHandler):
    kubernetes: Kubernetes
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _asked(self) -> tuple[str, str, str | None, dict[str, str]]:
        parts = urlsplit(self.path)
        found = PATH.fullmatch(parts.path)
        if found is None or found["kind"] not in KINDS or found["rest"]:
            raise LookupError(self.path)
        return found["namespace"], found["kind"], found["name"], dict(parse_qsl(parts.query))

    def _body(self) -> Thing:
        size = int(self.headers.get("Content-Length") or 0)
        return dict(json.loads(self.rfile.read(size) or b"{}"))

    def _reply(self, status: int, thing: Thing) -> None:
        body = json.dumps(thing).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _missing(self) -> None:
        self._reply(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})

    def do_POST(self) -> None:
        body = self._body()
        namespace, kind, _, _ = self._asked()
        self._reply(201, self.kubernetes.create(namespace, kind, body))

    def do_PATCH(self) -> None:
        body = self._body()
        namespace, kind, name, _ = self._asked()
        changed = self.kubernetes.change(namespace, kind, str(name), body)
        self._missing() if changed is None else self._reply(200, changed)

    def do_DELETE(self) -> None:
        self._body()
        namespace, kind, name, query = self._asked()
        for thing in self.kubernetes.find(namespace, kind, query.get("labelSelector", "")):
            if name is None or thing["metadata"]["name"] == name:
                self.kubernetes.delete(namespace, kind, thing)
        self._reply(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def do_GET(self) -> None:
        try:
            namespace, kind, name, query = self._asked()
        except LookupError:
            self._missing()
            return
        selector = query.get("labelSelector", "")
        if query.get("watch") == "true" and "Upgrade" not in self.headers:  # a watch by WebSocket is tried first
            self._watch(self.kubernetes.watch(namespace, kind, selector))
            return
        found = self.kubernetes.find(namespace, kind, selector)
        if name is None:
            version = {"resourceVersion": "1"}
            self._reply(200, {"kind": f"{KINDS[kind]}List", "apiVersion": "v1", "metadata": version, "items": found})
            return
        named = [thing for thing in found if thing["metadata"]["name"] == name]
        self._reply(200, named[0]) if named else self._missing()

    def _watch(self, events: Iterator[Thing]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for event in events:
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return  # whoever watched is gone
