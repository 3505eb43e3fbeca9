"""A gRPC server and its client: every kind of call, with messages that are plain bytes."""

import sys
from concurrent import futures

import grpc

SERVICE = "/test.Service/"


def same(value):
    return value


def unary(request, context):
    if request == b"fail":
        context.set_trailing_metadata((("reason", "asked for"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it was asked for: 100 %")
    if request == b"wait":
        while context.is_active():
            futures.wait([], timeout=0.01)
    return b"got " + request


def down(request, context):
    for at in range(int(request)):
        yield b"message %d" % at


def up(requests, context):
    return b"%d" % sum(len(request) for request in requests)


def both(requests, context):
    for request in requests:
        yield b"echo " + request


class Handler(grpc.GenericRpcHandler):
    def service(self, call):
        kinds = {
            "Unary": grpc.unary_unary_rpc_method_handler(unary, same, same),
            "Down": grpc.unary_stream_rpc_method_handler(down, same, same),
            "Up": grpc.stream_unary_rpc_method_handler(up, same, same),
            "Both": grpc.stream_stream_rpc_method_handler(both, same, same),
        }
        return kinds.get(call.method.removeprefix(SERVICE))


def serve(socket):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port("unix:" + socket)
    server.start()
    server.wait_for_termination()


def ask(address):
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(SERVICE + "Unary", same, same)
        assert call(b"hello", timeout=30) == b"got hello"
        large = b"x" * 3_000_000
        assert call(large, timeout=30) == b"got " + large
        try:
            call(b"fail", timeout=30)
            raise AssertionError("it must fail")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
            assert error.details() == "it was asked for: 100 %", error
            assert ("reason", "asked for") in error.trailing_metadata(), error
        try:
            call(b"wait", timeout=0.5)
            raise AssertionError("it must be late")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        try:
            channel.unary_unary(SERVICE + "None", same, same)(b"", timeout=30)
            raise AssertionError("there is none")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        answers = list(channel.unary_stream(SERVICE + "Down", same, same)(b"500", timeout=30))
        assert answers == [b"message %d" % at for at in range(500)]
        total = channel.stream_unary(SERVICE + "Up", same, same)
        assert total((b"y" * 1000 for _ in range(500)), timeout=30) == b"500000"
        echo = channel.stream_stream(SERVICE + "Both", same, same)
        seen = []

        def ping_pong():
            yield b"0"
            for at in range(1, 50):
                while len(seen) < at:
                    futures.wait([], timeout=0.001)
                yield b"%d" % at

        for answer in echo(ping_pong(), timeout=60):
            seen.append(answer)
        assert seen == [b"echo %d" % at for at in range(50)], seen
    print("all is well")


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](sys.argv[2])
