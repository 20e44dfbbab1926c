"""Work on each record in the graph, between its bytes and its batch. Private; see docs/design.md."""
