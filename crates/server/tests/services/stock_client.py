"""Calls the services of the suite with a stock gRPC client, and fails where they differ from what they are."""

import sys

import grpc

channel = grpc.insecure_channel(sys.argv[1])


def call(method, body, **more):
    return channel.unary_unary(method)(body, **more)


def stream(method, body, **more):
    return channel.unary_stream(method)(body, **more)


def code_of(attempt):
    try:
        attempt()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError("it must fail")


# Unary.
for length in (0, 1, 100_000, 1 << 20):
    body = bytes(at % 251 for at in range(length))
    assert call("/echo/Say", body) == body, length
call("/kv/Put", b"put grpc 42")
assert call("/kv/Get", b"get grpc") == b"42"
assert call("/block/Reverse", b"abc") == b"cba"

# A service that takes a stream sees what is in the messages, and nothing else.
assert call("/sum/It", b"12345") == b"5"
assert channel.stream_unary("/sum/It")(iter([b"123", b"", b"4567", bytes(1 << 20)])) == str(7 + (1 << 20)).encode()

# Errors are statuses.
assert code_of(lambda: call("/kv/Get", b"dance")) == (
    grpc.StatusCode.INVALID_ARGUMENT,
    "get, put or scan is wanted",
)
assert code_of(lambda: call("/forget/It", b""))[0] == grpc.StatusCode.UNKNOWN
assert code_of(lambda: call("/block/Reverse", b"fail"))[0] == grpc.StatusCode.PERMISSION_DENIED

# Server streams.
records = list(stream("/count/Up", b"300 5000"))
assert records == [bytes([at % 256]) * 5000 for at in range(300)]
assert list(stream("/count/Up", b"0 0")) == []
failing = stream("/count/Up", b"3 2 then fail")
taken = []


def take():
    for record in failing:
        taken.append(record)


assert code_of(take)[0] == grpc.StatusCode.INTERNAL
assert taken == [b"\0\0", b"\1\1", b"\2\2"]

# Deadlines travel, and cancel the service.
assert code_of(lambda: call("/patient/Wait", b"grpc-late", timeout=0.3))[0] in (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
# So does a cancel.
future = channel.unary_unary("/patient/Wait").future(b"grpc-cancelled")
while True:
    try:
        if call("/kv/Get", b"get grpc-cancelled") == b"waits":
            break
    except grpc.RpcError:
        pass
future.cancel()
for key in (b"grpc-late", b"grpc-cancelled"):
    while call("/kv/Get", b"get " + key) != b"cancelled":
        pass
print("grpcio", grpc.__version__, "ok")
