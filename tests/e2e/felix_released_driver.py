# mypy: ignore-errors
"""A released felix-client, driven from outside: it runs in an environment of its own, without anything of this project.
Each line of its input is a call in JSON, each line of its output the result or the error."""

import json
import sys
import threading

import felix

SCOPE = ("default", "default")


class Driver:
    def __init__(self, address, ca_file):
        self.client = felix.Client(address, tenant_id="default", token="unused", ca_file=ca_file)
        self.subscriptions = []
        self.published = []
        self.stopping = threading.Event()
        self.publisher = None
        self.room = threading.Semaphore(100)  # a client drops events that its reader does not take; it must keep up

    def version(self):
        return felix.__version__

    def publish(self, stream, payload, key=None, ack="per_message"):
        key = None if key is None else key.encode()
        return self.client.publish(*SCOPE, stream, payload.encode(), key=key, ack=ack)

    def subscribe(self, stream, start):
        self.subscriptions.append(self.client.subscribe(*SCOPE, stream, start=start))
        return len(self.subscriptions) - 1

    def next(self, number, timeout):
        event = self.subscriptions[number].next_event(timeout=timeout)
        self.room.release()
        return None if event is None else [event.offset, event.payload.decode()]

    def read_all_shards(self, stream, count, timeout):
        with self.client.subscribe_sharded(*SCOPE, stream, start="earliest") as events:
            found = []
            while len(found) < count and (item := events.next_event(timeout=timeout)) is not None:
                found.append([item.shard, item.event.offset, item.event.payload.decode()])
            return found

    def cache_put(self, key, value):
        return self.client.cache_put(*SCOPE, "c", key, value.encode())

    def cache_get(self, key):
        value = self.client.cache_get(*SCOPE, "c", key)
        return None if value is None else value.decode()

    def cache_delete(self, key):
        value = self.client.cache_delete(*SCOPE, "c", key)
        return None if value is None else value.decode()

    def counter_add(self, key, delta):
        return self.client.counter_add(*SCOPE, "c", key, delta)

    def counter_get(self, key):
        return self.client.counter_get(*SCOPE, "c", key)

    def stream_shards(self, stream):
        return self.client.stream_shards(*SCOPE, stream)

    def start_publishing(self, stream):
        def work():
            number = 0
            while not self.stopping.is_set():
                if not self.room.acquire(timeout=0.1):
                    continue
                try:
                    result = [self.publish(stream, str(number), key=str(number % 3)), None]
                except felix.FelixError as error:
                    result = [None, str(error)]
                    self.room.release()
                self.published.append([str(number), *result])
                number += 1

        self.publisher = threading.Thread(target=work)
        self.publisher.start()

    def stop_publishing(self):
        self.stopping.set()
        self.publisher.join()
        return self.published


def main():
    driver = Driver(*sys.argv[1:])
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"result": getattr(driver, call.pop("call"))(**call)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the test is told
            answer = {"error": type(error).__name__, "text": str(error)}
            for name in ("code", "retry", "detail"):
                answer[name] = getattr(error, name, None)
        print(json.dumps(answer), flush=True)


main()
