"""What the errors of boto3 mean to a job."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from beam_jobs.errors import UsageError
from beam_jobs.storage.object_store import (
    SignIn,
    failing,
    no_bucket,
    no_credentials,
    one_line,
    refusal,
)
from readers.files import backoff

_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
)

# Error codes that mean the same as an HTTP status, which differs between stores.
_STATUSES = dict.fromkeys(
    [
        "AuthFailure",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    ],
    401,
) | dict.fromkeys(
    [
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    ],
    503,
)

SIGN_IN = SignIn(
    "give --s3_access_key_id and --s3_secret_access_key, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or a profile",
    "add --s3_access_key_id=... --s3_secret_access_key=... (and --s3_session_token=...) to the "
    "command, or give the workers' machines a role",
)


class BeyondEnd(OSError):
    """A range that begins at or after the end of its object."""


def may_pass(error: BotoCoreError | ClientError) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, ClientError):
        return backoff.may_pass(_status(error))
    return isinstance(error, HTTPClientError)  # No answer arrived, or only a part of one.


def _status(error: ClientError) -> int:
    """The HTTP status of an answer, or the one that its error code stands for."""
    answered = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return _STATUSES.get(error.response.get("Error", {}).get("Code", ""), answered)


def job_error(error: BotoCoreError | ClientError, path: str, reads: bool) -> Exception:
    """The error that one of boto3's means to a job; arguments as for `refusal`."""
    if isinstance(error, _NO_CREDENTIALS):
        return no_credentials(path, error, SIGN_IN)
    if isinstance(error, ParamValidationError):
        return UsageError(f"{path}: {one_line(error)}")
    if not isinstance(error, ClientError):
        return failing(path, error)
    status, details = _status(error), error.response.get("Error", {})
    code = str(details.get("Code", ""))
    if code == "NoSuchBucket":
        return no_bucket(path)
    if status == 416:
        return BeyondEnd(f"{path}: it ends before")
    answered = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    words = dict.fromkeys([str(answered), code])  # Without a body, the code repeats the status.
    answer = one_line(f"{' '.join(words)}: {details.get('Message', '')}")
    return refusal(path, status, answer, SIGN_IN, reads)
