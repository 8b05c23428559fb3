"""The shared core of the five clients: errors, requests in flight, retries, procedures, a blocking and an asyncio
driver.

All logic is sans-IO and written once; the two drivers only do I/O. The modules, in import order:

    errors       PenstockError and its subclasses; ErrorFamily: the classes of a door that the core raises
    signal       Signal: an event that can be waited for
    requests     RequestSpec[T]: a request, how to decode its reply, whether it is idempotent; RequestBatch: requests
                 that are sent together, with their outcomes; result_of, results_of
    address      Address, parse_address
    addresses    Addresses: servers in the order in which to try them, with redirects to a leader
    retry        RetryState: which requests are retried, which are OutcomeUnknown; by `penstock.retry.RetryPolicy`
    inflight     InFlightRequests, state of one connection: OrderedRequests (replies in order), NumberedRequests (by id,
                 with pushes and keepalive)
    connection   Connection: send(batch), write(data), lost, requests
    procedure    Procedure[T]: a generator of steps: CONNECTED, Wait(connection, signal), Drain(connection),
                 [spec, ...], a pause in seconds; exchange(connection, batch)
    binding      Binding: the interface that a door implements
    channel      ConnectOptions; Channel: connect and call as procedures, under both drivers
    blocking     BlockingConnection, BlockingDriver, BlockingClient (base class of the public blocking clients)
    aio          AsyncConnection, AsyncDriver, AsyncClientCore (base class of the public asyncio clients)
    methods      request_method wraps a function that makes a RequestSpec, procedure_method wraps a Procedure: they
                 define the methods of both clients once, in a base class of both
    pool         BlockingPool, AsyncPool: several clients shared by many threads, or tasks
    closing      Closing, AsyncClosing: context managers that close at the end of the block
    shielded     ShieldedTask: a coroutine that goes on if its caller is cancelled
    backoff      AsyncBackoff: pauses between retries, where connections are not sockets (QUIC)
    loop_thread  LoopThread: blocking calls on top of an asyncio client

A door supplies: its errors, each derived from its own root and from the class of the same name here, and an
`ErrorFamily` of them; functions that make a `RequestSpec` from plain arguments; an `OrderedRequests` or
`NumberedRequests` that splits frames and decodes messages; a `Binding` that encodes requests, makes the state of a new
connection, and logs in. In return it gets both clients:

    class InFlight(OrderedRequests[bytes]):
        def frames(self, data: bytes) -> Iterable[bytes]: ...               # raises BadReply
        def message(self, spec: RequestSpec[Any], frame: bytes) -> Any: ...  # raises ReplyError, BadReply

    class EchoBinding(Binding):
        errors = ErrorFamily(unsendable=Unsendable, bad_reply=BadReply, ...)

        def encode(self, spec: RequestSpec[Any], request_id: int) -> bytes:
            return frame(spec.request)

        def in_flight(self) -> InFlight:
            return InFlight(timeout, self.errors)

        def login(self, connection: Connection) -> Procedure[None]:
            yield from exchange(connection, self.batch([hello(self.user)]))  # raises the server's error

    def echo(text: str) -> RequestSpec[str]:
        \"\"\"The same text.\"\"\"
        return RequestSpec(Echo(text), lambda reply: reply.text, EchoReply, idempotent=True)

    def echo_twice(client: Client | AsyncClient, text: str) -> Procedure[str]:
        first, second = results_of((yield [echo(text), echo(text)]))         # sent together, retried
        yield 0.1                                                            # seconds
        return first + second

    class EchoMethods:
        echo = request_method(echo)
        echo_twice = procedure_method(echo_twice)

    class Client(EchoMethods, BlockingClient): ...        # __init__ makes a BlockingDriver(binding, options, sleep)
    class AsyncClient(EchoMethods, AsyncClientCore): ...  # with an AsyncDriver

A procedure that must stay on one connection gets it with `connection = yield CONNECTED`, sends batches with
`connection.send(batch)`, which never blocks a task nor raises because of a lost connection, and waits with
`yield Wait(connection, batch)`; then `batch.outcomes` has the results, and `batch.lost` the reason if some are missing.
Before it sends much it yields `Drain(connection)`. Frames pushed by the server go to `NumberedRequests.pushed`, which
puts them into an event buffer of the door and sets its `Signal`, for which `Wait` can wait. `Wait` also ends when the
connection is lost.
"""
