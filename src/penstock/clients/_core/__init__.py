"""The one core of the five clients: errors, requests in flight, retries, procedures, a blocking and an asyncio driver.

Everything that decides something is sans-IO and written once; the two drivers only wait. The modules, in the order of
their imports:

    errors       PenstockError and what derives from it; ErrorFamily: the classes of a door that the core raises
    signal       Signal: something that has happened or not
    requests     RequestSpec[T]: a request, what its reply means, whether it is idempotent; RequestBatch: requests that
                 go out together, with their outcomes; result_of, results_of
    address      Address, parse_address
    addresses    Addresses: servers in the order in which to try them, with redirects to a leader
    retry        RetryState: what is sent again, what is OutcomeUnknown; by `penstock.retry.RetryPolicy`
    inflight     InFlightRequests, state of one connection: OrderedRequests (replies in order), NumberedRequests (by id,
                 with pushes and keepalive)
    connection   Connection: send(batch), write(data), lost, requests
    procedure    Procedure[T]: a generator of steps: CONNECTED, Wait(connection, signal), Drain(connection),
                 [spec, ...], a pause in seconds; exchange(connection, batch)
    binding      Binding: what a door supplies
    channel      ConnectOptions; Channel: connect and call as procedures, under both drivers
    blocking     BlockingConnection, BlockingDriver, BlockingClient (base class of the public blocking clients)
    aio          AsyncConnection, AsyncDriver, AsyncClientCore (base class of the public asyncio clients)
    methods      request_method of a function that makes a RequestSpec, procedure_method of one that is a Procedure: a
                 list of methods for both clients, in a class that both derive from
    pool         BlockingPool, AsyncPool: several clients used by many threads, or tasks
    closing      Closing, AsyncClosing: context managers that close at the end of the block
    shielded     ShieldedTask: a coroutine that a cancelled caller does not end
    backoff      AsyncBackoff: pauses of an operation that is tried again, where connections are not sockets (QUIC)
    loop_thread  LoopThread: blocking calls on top of an asyncio client

A door supplies: its errors, each derived from its own root and from the class of the same name here, and an
`ErrorFamily` of them; functions that make a `RequestSpec` of plain arguments; an `OrderedRequests` or
`NumberedRequests` that cuts frames and decodes messages; a `Binding` that encodes requests, makes the state of a new
connection, and logs in. It gets clients of both kinds:

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
            yield from exchange(connection, self.batch([hello(self.user)]))  # raises what the server says

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
    class AsyncClient(EchoMethods, AsyncClientCore): ...  # of an AsyncDriver

A procedure that must stay on one connection takes it by `connection = yield CONNECTED`, sends batches with
`connection.send(batch)`, which never blocks a task nor raises because of a lost connection, and waits by
`yield Wait(connection, batch)`; then `batch.outcomes` has the results, `batch.lost` the reason why some are missing.
Before it sends much it yields `Drain(connection)`. Pushes go to whatever `NumberedRequests.pushed` gives them to: an
event buffer of the door with a `Signal` that is set when there is something new, and that `Wait` waits for. `Wait` also
ends when the connection is lost.
"""
