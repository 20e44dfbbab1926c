"""Which account of Azure, and which credentials, the options and the environment of a job name."""

import os

import pytest
from azure.identity import DefaultAzureCredential

from readers.files.files import RefusedError
from readers.files.of_path import files_of
from readers.files.stores.azure import new_client
from readers.files.stores.errors import Errors, SignIn

KEY = "c2VjcmV0"  # "secret"
SIGNATURE = "sv=2026-01-01&ss=b&srt=sco&sp=r&sig=c2VjcmV0"
TEXT = f"DefaultEndpointsProtocol=https;AccountName=named;AccountKey={KEY};EndpointSuffix=core.windows.net"


@pytest.fixture(autouse=True)
def no_account(monkeypatch):
    for variable in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(variable)


def signed_by(client):
    """How a client signs its requests."""
    if "sig=" in client.url:
        return "signature"
    return "key" if hasattr(client.credential, "account_key") else type(client.credential).__name__


ERRORS = Errors(SignIn("sign in", "", ""))

OPTIONS = {"azure_connection_string": TEXT}

CASES = {
    "a connection string": ({}, {"CONNECTION_STRING": TEXT}, "named", "key"),
    "its flag": (OPTIONS, {"CONNECTION_STRING": "x", "ACCOUNT_NAME": "other"}, "named", "key"),
    "a name and a key": ({}, {"ACCOUNT_NAME": "mine", "ACCOUNT_KEY": KEY}, "mine", "key"),
    "those of Microsoft's command line": ({}, {"ACCOUNT": "mine", "KEY": KEY}, "mine", "key"),
    "a signature": ({}, {"ACCOUNT": "mine", "SAS_TOKEN": f"?{SIGNATURE}"}, "mine", "signature"),
    "a login": ({}, {"ACCOUNT": "mine"}, "mine", "DefaultAzureCredential"),
    "nothing": ({}, {"ACCOUNT": "mine", "ANON": "true"}, "mine", "NoneType"),
    "an address": (
        {"blob_service_endpoint": "https://there.blob.core.windows.net"},
        {"CONNECTION_STRING": TEXT},
        "there",
        "DefaultAzureCredential",
    ),
    "an address with a signature": (
        {"blob_service_endpoint": f"https://there.blob.core.windows.net/?{SIGNATURE}"},
        {},
        "there",
        "signature",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_credentials_are_those_that_users_of_azure_have(case, monkeypatch):
    options, variables, account, how = CASES[case]
    for name, value in variables.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    client = new_client(options, "", ERRORS)
    assert (client.account_name, signed_by(client)) == (account, how)
    assert client.url.startswith(f"https://{account}.blob.core.windows.net/")


def test_a_url_names_the_account(monkeypatch):
    client = new_client({}, "mine.dfs.core.windows.net", ERRORS)
    assert client.url == "https://mine.blob.core.windows.net/"
    assert isinstance(client.credential, DefaultAzureCredential)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", TEXT)
    assert new_client({}, "named.dfs.core.windows.net", ERRORS).account_name == "named"
    with pytest.raises(RefusedError, match=r"@mine\.dfs.*: the credentials are those of .*'named'"):
        new_client({}, "mine.dfs.core.windows.net", ERRORS)


def test_a_managed_identity_can_be_chosen(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    chosen = []
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda **how: chosen.append(how))
    new_client({"azure_managed_identity_client_id": "me"}, "", ERRORS)
    assert chosen == [{"managed_identity_client_id": "me"}]


@pytest.mark.parametrize("text", ["AccountName", f"AccountKey={KEY}", "x=1;AccountKey"])
def test_a_connection_string_of_a_wrong_form_is_a_usage_error(text):
    with pytest.raises(RefusedError, match=r"az://: .*: sign in") as caught:
        new_client({"azure_connection_string": text}, "", ERRORS)
    assert KEY not in str(caught.value)


def test_without_an_account_there_is_no_store():
    with pytest.raises(RefusedError, match="az://: no account is named: set AZURE_STORAGE_CONN"):
        files_of("az://c/x").stat("az://c/x")


def test_missing_credentials_are_reported_at_once(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "nobody")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    with pytest.raises(RefusedError, match=r"az://c/x.*: no credentials .*: set AZURE") as caught:
        files_of("az://c/x").stat("az://c/x")
    assert "\n" not in str(caught.value)
