"""An S3 server for tests (moto), which checks signatures, and a prompt that looks into it from outside.

Commands come by lines of JSON on standard input, answers as lines of JSON on standard output. The first line says where the
server is and which keys it accepts.
"""
import json
import os
import signal
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    os.environ[name] = "testing"

import boto3
from botocore.config import Config
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionAuthenticatorMixin
from moto.iam import iam_backends
from moto.server import ThreadedMotoServer

import moto.settings as settings

port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://127.0.0.1:{port}"

# What it does by itself is not checked; what comes later is.
iam = boto3.client("iam", endpoint_url=url)
iam.create_user(UserName="sekisho")
policy = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
}
iam.put_user_policy(UserName="sekisho", PolicyName="all", PolicyDocument=json.dumps(policy))
iam.create_access_key(UserName="sekisho")
# The same keys after a restart.
key = {"AccessKeyId": "AKIASEKISHOTEST00001", "SecretAccessKey": "SecretOfTheTestThatIsNeverShown/0123456"}
for user in iam_backends[DEFAULT_ACCOUNT_ID]["aws"].users.values():
    for known in user.access_keys:
        known.access_key_id, known.secret_access_key = key["AccessKeyId"], key["SecretAccessKey"]
s3 = boto3.client(
    "s3",
    endpoint_url=url,
    aws_access_key_id=key["AccessKeyId"],
    aws_secret_access_key=key["SecretAccessKey"],
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
)
s3.create_bucket(Bucket="bucket")

settings.INITIAL_NO_AUTH_ACTION_COUNT = 0.0
ActionAuthenticatorMixin.request_count = 1


def say(value):
    print(json.dumps(value), flush=True)


say({"port": port, "access": key["AccessKeyId"], "secret": key["SecretAccessKey"]})


def answer(command):
    what = command["do"]
    if what == "put":
        more = {"ContentType": command["type"]} if "type" in command else {}
        s3.put_object(Bucket="bucket", Key=command["key"], Body=command["body"].encode(), **more)
        return True
    if what == "delete":
        s3.delete_object(Bucket="bucket", Key=command["key"])
        return True
    if what == "keys":
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket="bucket")
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    if what == "sum":
        import hashlib

        body = s3.get_object(Bucket="bucket", Key=command["key"])["Body"].read()
        return hashlib.sha256(body).hexdigest()
    if what == "type":
        return s3.head_object(Bucket="bucket", Key=command["key"])["ContentType"]
    if what == "uploads":
        found = s3.list_multipart_uploads(Bucket="bucket").get("Uploads", [])
        return [upload["Key"] for upload in found]
    if what == "fill":
        for number in range(command["count"]):
            s3.put_object(Bucket="bucket", Key=f"{command['prefix']}{number:06}", Body=b"x")
        return True
    if what == "abort":
        for upload in s3.list_multipart_uploads(Bucket="bucket").get("Uploads", []):
            s3.abort_multipart_upload(Bucket="bucket", Key=upload["Key"], UploadId=upload["UploadId"])
        return True
    if what == "begin":
        return s3.create_multipart_upload(Bucket="bucket", Key=command["key"])["UploadId"]
    raise ValueError(what)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for line in sys.stdin:
    try:
        say({"ok": answer(json.loads(line))})
    except Exception as error:  # noqa: BLE001
        say({"error": str(error)})
