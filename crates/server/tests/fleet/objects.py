"""An S3 server (moto) whose objects outlive it: what it holds at SIGTERM is there when it starts again.

objects.py ADDRESS PORT FILE
"""
import os
import pickle
import signal
import sys
import time

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

address, port, kept = sys.argv[1], int(sys.argv[2]), sys.argv[3]
backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
backend.create_bucket("bucket", "us-east-1")
if os.path.exists(kept):
    with open(kept, "rb") as file:
        for key, body in pickle.load(file).items():
            backend.put_object("bucket", key, body)
server = ThreadedMotoServer(ip_address=address, port=port, verbose=False)


def end(*_):
    # No new requests; those that run are answered, and what they stored is kept.
    server.stop()
    time.sleep(1)
    found = {key: stored.value for key, stored in backend.buckets["bucket"].keys.items()}
    with open(kept, "wb") as file:
        pickle.dump(found, file)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
server.start()
while True:
    time.sleep(3600)
