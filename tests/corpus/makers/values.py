"""The records that every other writer wrote."""

RECORDS = [
    {
        "id": [n],
        "name": [f"record {n} é".encode()],
        "x": [n + 0.5, -float(n)],
        "many": list(range(-n, 0)),
    }
    for n in range(5)
]
